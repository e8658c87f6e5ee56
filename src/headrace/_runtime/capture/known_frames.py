"""What is known about the frames of a part: which recording is for which frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.few_buffers import FewBuffers
from headrace._runtime.capture.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.capture.border import Border
    from headrace._runtime.capture.device_arrays import Extent
    from headrace._runtime.capture.recording import Recording
    from headrace._runtime.capture.slots import Slots
    from headrace._runtime.scheduling.node import Node

__all__ = ["Known", "Quick"]


class Known:
    """What is known about the frames of one signature.

    Attributes
    ----------
    extents
        Where the bytes of their arrays are, seen from the addresses.
    frames
        The number of frames that ran as without capture.
    recording
        The recording that copies what enters and leaves.
    slots
        The recordings that send their own memory, with ``outputs="ring"``.
    buffers
        What enters, while it may turn out that it comes in few buffers.
    at
        The recordings that read the buffers where they are, by address.
    changed
        The arrays that the operators change in place, by their number; what is copied in is copied back.
    emits, silent
        How many messages its frames emitted at each output, and the operators that emitted nothing to the next.
    """

    __slots__ = ("at", "buffers", "changed", "emits", "extents", "frames", "recording", "silent", "slots")

    def __init__(self, slots: Slots | None, extents: list[Extent]) -> None:
        self.extents = extents
        self.frames = 0
        self.changed: set[int] = set()
        self.emits: dict[str, set[int]] = {}
        self.silent: list[Node] = []
        self.recording: Recording | None = None
        self.slots = slots
        self.buffers: FewBuffers | None = FewBuffers()
        self.at: dict[tuple[int, ...], Recording | None] = {}

    def note_emits(self, collected: dict[str, list[Any]], silent: list[Node]) -> None:
        """Note what a frame emitted that ran as without capture."""
        self.silent += silent
        for name, messages in collected.items():
            self.emits.setdefault(name, set()).add(len(messages))

    def check_emits(self, recording: Recording, outputs: list[Border]) -> None:
        """Raise Refusal if the frames before emitted more or less than the recorded one, which all replays do."""
        if self.silent:
            recording.close()
            name = self.silent[0].name
            raise Refusal(
                f"operator {name!r} emitted nothing to the next in some frames; operators that are recorded "
                "together emit one message for each frame: leave it out of the segment",
                name,
            )
        names = {output.name for output in recording.outputs}
        for border in outputs:
            count = int(border.name in names)
            others = self.emits.get(border.name, {count})
            if others != {count}:
                recording.close()
                counts = " and ".join(map(str, sorted(others | {count})))
                raise Refusal(
                    f"operator {border.node.name!r} emitted {counts} messages at {border.port!r} in different "
                    "frames; a recorded operator emits the same number in each: leave it out of the segment",
                    border.node.name,
                )


class Quick:
    """The recordings of nearly every frame, where frames are single arrays, to be found without a look-up.

    Parameters
    ----------
    matches
        Tells whether an object is such an array.
    recording
        The recording that copies what enters and leaves; None with slots.
    address_of
        Returns the address of such an array.
    at
        The recordings that read single buffers where they are.
    slots
        The recordings that send their own memory.

    Attributes
    ----------
    slots
        As given.
    """

    __slots__ = ("_address_of", "_at", "_matches", "_recording", "slots")

    def __init__(
        self,
        matches: Callable[[Any], bool],
        recording: Recording | None,
        address_of: Callable[[Any], int],
        at: dict[tuple[int, ...], Recording | None],
        slots: Slots | None,
    ) -> None:
        self.slots = slots
        self._matches = matches
        self._recording = recording
        self._address_of = address_of
        self._at = at

    def choose(self, data: Any) -> Recording | None:
        """Return the recording for an array; None if it has to be looked at. A slot is not taken yet."""
        if not self._matches(data):
            return None
        if self.slots is not None:
            return self.slots.free[0].recording
        if not self._at:
            return self._recording
        found = self._at.get((self._address_of(data),), self._recording)
        return found if found is None or found.reads([data]) else None
