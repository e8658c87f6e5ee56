"""GraphCache: which graph is for which frame.

A graph belongs to frames of one key: the structure of the messages, which of their arrays share memory, the values
of the host that the operators use (`tensor.structures`), and the parameters of the operators. The parameters are
looked at only when their version has changed.

Up to `shapes` graphs are kept. The first frames of a key run as without capture: libraries load kernels and make
handles in the first one, and a value that is there for a single frame is not worth a graph. If the cache is full, a
graph for values that have not come for a while makes room for one with new values; a graph of another structure
never does, so that messages of too many shapes do not drive each other out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope
from headrace.tensor.device_arrays import Unsupported, shared_memory
from headrace.tensor.structures import Leaves, Structure, key_of_value, stand_in, take_apart

if TYPE_CHECKING:
    from headrace._runtime import Boundary
    from headrace.capture.declaration import SegmentOptions
    from headrace.capture.graph import Graph

_SETTLED = 8  # frames with other values of a known structure before a graph is recorded for them
_UNUSED = 64  # frames for which a graph was not launched before it makes room
_MOST_WAITING = 16  # keys without a graph that are remembered
_MOST_USED = 64  # kinds of frames and sets of parameters of which the used values are remembered


class Entry:
    """What is known about the frames of one key.

    Attributes
    ----------
    frames, last
        The number of frames that ran as without capture, and the number of the last frame.
    graph
        Its graph, once it is recorded.
    copied_back
        The arrays that the operators change in place, by their number.
    matches
        Of frames that are one array: tells whether another is like them.
    """

    __slots__ = ("copied_back", "frames", "graph", "kind", "last", "matches")

    matches: Callable[[Any], bool]

    def __init__(self, kind: Hashable) -> None:
        self.kind = kind
        self.frames = self.last = 0
        self.graph: Graph | None = None
        self.copied_back: set[int] = set()


class Frame:
    """The messages of one frame, taken apart."""

    __slots__ = ("ends", "kind", "leaves", "structures", "values")

    def __init__(self, items: list[Any]) -> None:
        self.leaves: Leaves = []
        self.values: Leaves = []
        self.ends: list[int] = []
        structures: list[Structure] = []
        for item in items:
            data = item.data if type(item) is Envelope else item
            structures.append(take_apart(data, self.leaves, self.values))
            self.ends.append(len(self.values))
        self.structures = tuple(structures)
        self.kind: Hashable = self.structures
        if len(self.leaves) > 1 and (shared := shared_memory(self.leaves)):
            self.kind = (self.structures, shared)

    def standing_for(self, used: set[int], uses: set[int]) -> list[Any]:
        """Return its values for a recording, with something that can only be passed on for those not used."""
        return [
            value if number in used else stand_in(value, number, uses)
            for number, value in enumerate(self.values)
        ]


class GraphCache:
    """The graphs of a segment, by key.

    Attributes
    ----------
    parameters
        What the parameters of the operators are now, by operator and name.
    """

    def __init__(
        self, options: SegmentOptions, inputs: list[Boundary], close: Callable[[Entry], None]
    ) -> None:
        self.parameters: dict[tuple[str, str], Hashable] = {}
        self._used: dict[Hashable, set[int]] = {}
        self._options = options
        self._inputs = inputs
        self._close = close
        self._entries: dict[Hashable, Entry] = {}
        self._frames = 0
        self._last_key: Any = None
        self.unmet = 0
        """The number of frames in a row with values that were not met before."""
        self.changing = ""
        """Which value was another one in the last of these."""

    def find(self, frame: Frame) -> Entry:
        """Return the entry of a frame; raise Unsupported if its values cannot be compared."""
        used = sorted(self.used_in(frame))
        values = tuple([self._key_of(frame, number) for number in used])
        key = (frame.kind, tuple(self.parameters.values()), values)
        self._frames += 1
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(frame.kind)
            self._note_change(key, frame, used)
            waiting = [each for each, known in self._entries.items() if known.graph is None]
            if len(waiting) > _MOST_WAITING:
                del self._entries[waiting[0]]
        elif entry.graph is not None:
            self.unmet = 0
        self._last_key = key
        entry.last = self._frames
        return entry

    def used_in(self, frame: Frame) -> set[int]:
        """Return the values that the operators use in frames of a kind and with these parameters, by number.

        One mode of an operator may use a value that another one passes on.
        """
        if len(self._used) > _MOST_USED:
            self._used.clear()  # they are found again
        return self._used.setdefault((frame.kind, tuple(self.parameters.values())), set())

    def _key_of(self, frame: Frame, number: int) -> Hashable:
        try:
            return key_of_value(frame.values[number])
        except Unsupported as error:
            raise Unsupported(f"{self.place_of(frame, number)} is {error}") from None

    def place_of(self, frame: Frame, number: int) -> str:
        """Return where a value of a frame was received, in words."""
        boundary = next(one for one, end in zip(self._inputs, frame.ends, strict=True) if number < end)
        return f"a value that operator {boundary.node.name!r} receives at {boundary.port!r} and uses"

    def _note_change(self, key: Any, frame: Frame, used: list[int]) -> None:
        last, self.changing = self._last_key, ""
        if last is None or last[0] != key[0] or len(last[1]) != len(key[1]):
            return  # frames of another kind, or knobs have become known
        self.unmet += 1
        for (operator, name), one, two in zip(self.parameters, key[1], last[1], strict=True):
            if one != two:
                self.changing = f"parameter {name!r} of operator {operator!r}"
        for number, one, two in zip(used, key[2], last[2], strict=False):
            if one != two:
                self.changing = self.place_of(frame, number)

    def is_due(self, entry: Entry) -> bool:
        """Return whether the next frame of an entry is to be recorded; make room if that is necessary."""
        if entry.graph is not None:
            return False
        recorded = [each for each in self._entries.values() if each.graph is not None]
        is_known = any(each.kind == entry.kind for each in recorded)
        if entry.frames < (max(_SETTLED, self._options.warmup) if is_known else self._options.warmup):
            return False
        if len(recorded) < self._options.shapes:
            return True
        others = [each for each in recorded if each.kind == entry.kind]
        oldest = min(others, key=lambda each: each.last, default=None)
        if oldest is None or self._frames - oldest.last < _UNUSED:
            return False
        self._close(oldest)
        self._entries = {key: each for key, each in self._entries.items() if each is not oldest}
        return True

    def clear(self, but: Entry | None = None) -> None:
        """Forget all graphs, except those of one entry."""
        for entry in self._entries.values():
            if entry is not but:
                self._close(entry)
        self._entries = {key: entry for key, entry in self._entries.items() if entry is but}
