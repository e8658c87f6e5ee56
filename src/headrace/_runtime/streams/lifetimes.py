"""Lifetimes: how long received frames stay alive, and how far the host may run ahead of the device.

A received frame stays alive until the program has released it and every stream that may read it has completed a
fence after that (`held_frames`).

The frames that a compute received must live until the operator's stream has completed a fence after the compute.
The next `emit` inserts such a fence anyway. For an operator that emits nothing, one is inserted here.

Which frames the program has released and which fences are complete is looked at for several computes at once: with
the usual limit of 8, after every sixth. At every compute it would free frames sooner, at six times the cost.
Querying an event costs less than a callback. If the device is behind, there is a look at every other compute, so
that no more is kept than the limit says, and the operator goes on as soon as the oldest compute is complete.

A query costs 2 µs, and the next launch of a library takes up to 2 µs longer. So a look (`look_unless_early`) is put
off while it cannot find much: the device kept up at the last looks, and the frames that were received since, with
those that the program held or released then, are small and came within a few milliseconds. Looks are then up to 96
computes apart. The bytes are counted after every sixth compute, and after every twelfth while less than half of the
bytes and of the time is used up. So a look comes at most 8 MiB and the frames of twelve computes late. It finds a
device that falls behind after at most 96 computes, or after twelve if these take more than a few milliseconds. An
operator that emits no fences inserts one whenever the bytes are counted, so for that one it is twelve more. A limit
below 8 is kept exactly.

An operator with `Operator.max_in_flight` unfinished computes is not ready until the device has finished the oldest.
Only in this case is a callback requested.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from headrace import gpu
from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.owners import size_of_all
from headrace._runtime.streams.watch import owners_in
from headrace.core.whole_numbers import whole_number

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import Fences
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.running_operator import RunningOperator

_COMPUTES: Final = 6  # between two looks
# For looks that are put off: the most computes, bytes received and nanoseconds between two, and the least limit.
_MOST_COMPUTES: Final = 96
_QUIET: Final = 48
_MOST_BYTES: Final = 8 << 20
_MOST_NS: Final = 10_000_000
_LEAST_LIMIT: Final = 8


class Lifetimes:
    """The frames that one operator received, while its streams may read them.

    All fields are changed in the operator's computes or between two computes, and never concurrently.

    Attributes
    ----------
    held
        The received frames, and the frames that the program still holds.
    readers
        The unfinished computes on each stream that may read received frames.
    full
        A stream with the maximum number of unfinished computes; the engine then throttles the operator.
    after_look
        Called after each look of an operator with one stream, with whether the device keeps up.
    """

    __slots__ = (
        "after_look",
        *("_added", "_bytes", "_counted", "_counted_shared", "_limit", "_looked", "_node", "_streams"),
        *("full", "held", "readers"),
    )

    def __init__(self, run: RunStreams, node: RunningOperator) -> None:
        self._node = node
        self._streams = ReaderStreams()
        self.held = HeldFrames(run.watch, self._streams)
        self.readers: list[InFlight] = []
        self.full: InFlight | None = None
        self.after_look: Callable[[bool], None] | None = None
        # Those that this compute added.
        self._added: list[InFlight] = []
        # How many of the received owners have been counted since the last look, their bytes, and its time.
        self._counted = self._counted_shared = self._bytes = self._looked = 0
        limit = node.operator._headrace.max_in_flight
        given = node.operator.fragment._headrace.max_in_flight if limit is None else limit
        self._limit = whole_number(given, f"operator {node.name!r}: max_in_flight", 1)

    def add_reader(self, fences: Fences) -> None:
        """From now on, also keep received frames until this stream has completed its work."""
        for reader in self.readers:
            reader.look_at = 0  # at the end of this compute
        added = InFlight(fences, self._limit)
        self.readers.append(added)
        self._added.append(added)
        self._streams.add(fences.stream)

    def move(self, fences: Fences) -> None:
        """From now on, the operator works on another stream instead, which waits for its work on the former one."""
        (former,) = self.readers
        reader = InFlight(fences, self._limit)
        reader.take_over(former)
        self.readers[0] = reader
        self._streams.add(fences.stream)
        if self.full is not None:
            self.full = reader

    def is_read_on(self, fences: Fences) -> bool:
        """Return whether received frames are kept until a stream has completed its work."""
        for reader in self.readers:  # noqa: SIM110 (a generator costs four times as much)
            if reader.fences is fences:
                return True
        return False

    def end_compute(self) -> None:
        """Note the end of a compute, and look at what it received."""
        self._added = self.readers[:]
        self.look()

    def note_compute(self) -> None:
        """Note the end of a compute, and look at what was received if it is time for that."""
        if self._added:
            self.end_compute()
            return
        is_due = False
        for reader in self.readers:
            numbers = reader.numbers
            numbers.append(reader.fences.last)
            is_due = is_due or len(numbers) >= reader.look_at
        if is_due:
            self.look_unless_early()
        elif self.held.unsorted:
            self.held.sort()

    def look_unless_early(self) -> None:
        """Look at what was received, unless the device has kept up and little was received since the last look."""
        held, reader = self.held, self.readers[0]
        received, shared = held.received, held.shared
        if held.unsorted:
            held.sort()
        if len(received) > 1 and received[-1] is received[0]:
            held.keep_once()
        if reader.may_put_off() and len(self.readers) == 1:
            if not (self._counted or self._counted_shared):
                self._bytes = (held.watched_bytes() if held.watched else 0) + reader.released_bytes()
            if len(received) > self._counted:
                self._bytes += size_of_all(received[self._counted :])
                self._counted = len(received)
            if shared:
                self._bytes += size_of_all([frame.owner for frame in shared[self._counted_shared :]])
                self._counted_shared = len(shared)
            elapsed = monotonic_ns() - self._looked
            if self._bytes <= _MOST_BYTES and elapsed <= _MOST_NS:
                reader.put_off(2 * self._bytes <= _MOST_BYTES and 2 * elapsed <= _MOST_NS)
                return
        self.look()
        self._looked = monotonic_ns()
        if self.after_look is not None:
            self.after_look(reader.keeps_up and self.full is None)

    def look(self) -> None:
        """Keep the frames that were received and released until the streams have completed their work so far."""
        if self._added:
            for reader in self._added:
                reader.numbers.append(reader.fences.last)
            self._added = []
        self._counted = self._counted_shared = self._bytes = 0
        held = self.held
        released: list[Any] | None = None
        if held.received or held.watched or held.shared or held.unsorted:
            released = held.look()
        for reader in self.readers:
            if reader.turn(released):
                self._is_full(reader)

    def settle(self) -> bool:
        """Release what no stream reads, where no compute follows; return whether only held frames are left."""
        self.look()
        return not [reader for reader in self.readers if not reader.settle()]

    def is_still_full(self) -> bool:
        """Release completed computes, and return whether the maximum number is still unfinished."""
        still: InFlight | None = None
        for reader in self.readers:
            if reader.is_full and reader.turn(None):
                still = reader
        self.full = still
        if still is None:
            return False
        self._node.has_extra_work = True  # for the engine to see
        return True

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call a function, from another thread, when the oldest unfinished compute may be finished."""
        assert self.full is not None
        stream = self.full.fences.stream.stream
        gpu.when_done(stream, lambda error: callback(), event=self.full.oldest_event())

    @property
    def frames_in_flight(self) -> int:
        """The number of frames that are kept because a stream may still read them, with those just received."""
        if not self.readers:
            return 0
        return (
            max([len(reader.frames) for reader in self.readers])
            + len(self.held.received)
            + len(self.held.unsorted)
            + len(self.held.shared)
        )

    def clear(self) -> None:
        """Release all frames but those that the program holds, because the streams have finished."""
        self.held.look()
        for reader in self.readers:
            reader.clear()

    def _is_full(self, reader: InFlight) -> None:
        self.full = reader
        self._node.has_extra_work = True  # for the engine to see


class InFlight:
    """The frames that must live until one stream has completed its work on them.

    Only the thread that runs the operator changes it, in a compute or between two computes.

    Parameters
    ----------
    fences
        The fences of the operator on the stream.
    limit
        The maximum number of unfinished computes.

    Attributes
    ----------
    numbers
        The number of the last fence at the end of each unfinished compute, oldest first: the next fence completes
        the compute.
    look_at
        The number of unfinished computes at which to call `turn` again.
    keeps_up
        Whether the device kept up with the operator the last time.
    """

    __slots__ = (
        "_earlier",
        "_frames",
        "_last",
        "_left",
        "_limit",
        "_patience",
        "_stride",
        "_until",
        "fences",
        "keeps_up",
        "look_at",
        "numbers",
    )

    def __init__(self, fences: Fences, limit: int) -> None:
        self.fences = fences
        self._limit = limit
        self._stride = max(min(limit - 2, _COMPUTES), 1)
        self.look_at = 1
        self.numbers: list[int] = []
        # The frames that were released last, and the number of the fence that completes the work on them.
        self._frames: list[Any] | None = None
        self._until = 0
        self.keeps_up = True
        # The number of computes between two looks, if they are put off.
        self._patience = 0
        # The last fence and the number of unfinished computes when `turn` was called the last time.
        self._last = self._left = 0
        # The same for those that were released before, oldest first.
        self._earlier: deque[tuple[int, list[Any]]] = deque()

    @property
    def is_quiet(self) -> bool:
        """Whether the device has kept up for several looks."""
        return self._patience >= _QUIET

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of computes is unfinished."""
        return len(self.numbers) >= self._limit

    @property
    def frames(self) -> list[Any]:
        """The frames that are kept alive, oldest first."""
        return [frame for _, frames in self._earlier for frame in frames] + (self._frames or [])

    def turn(self, released: list[Any] | None) -> bool:
        """Release what the stream no longer reads, and keep other frames until the next fence is complete.

        The next `emit` inserts that fence. For an operator that emits nothing, one is inserted here. Returns
        whether the maximum number of computes is unfinished.
        """
        fences, numbers, limit = self.fences, self.numbers, self._limit
        last, count = fences.last, len(numbers)
        # The fence of the last look, or that of the last compute but one: the device has had time for it.
        has_new = last != self._last
        number = last - 1 if has_new else last
        if self.keeps_up and self._until <= number and not self._earlier and fences.has_passed(number):
            del numbers[: bisect_left(numbers, number)]
            self._frames, self._until = released, last + 1
            if limit >= _LEAST_LIMIT:
                self._patience = min(2 * self._patience or _COMPUTES, _MOST_COMPUTES)
        else:
            self._release_some(released)
            self._patience = 0
        left = len(numbers)
        # If looks were put off, and the device had completed its work up to the last fence, no more is known.
        is_full = left >= limit and self._patience <= _COMPUTES
        if left and (
            numbers[0] >= last if has_new and left >= limit else numbers[-1] >= last and not has_new
        ):
            fences.insert()  # there was none since the last look, or none that shows that the oldest is complete
            last += 1
        self._last = last
        # Whether the device has completed all computes of the last look, or is that far with these.
        self.keeps_up = keeps_up = left <= 2 or left <= count - self._left
        self._left = left
        look_at = left + (self._stride if keeps_up else 2)
        self.look_at = look_at if look_at < limit or (left >= limit and not is_full) else limit
        return is_full

    def take_over(self, former: InFlight) -> None:
        """Keep what was kept until the work on another stream is complete, which this stream waits for."""
        fences = self.fences
        fences.insert()
        self.numbers = [fences.last - 1] * len(former.numbers)
        self._frames, self._until = former.frames or None, fences.last
        self._last, self._left, self.keeps_up = fences.last, len(self.numbers), False
        self.look_at = min(self._left + 2, self._limit)

    def released_bytes(self) -> int:
        """Return the bytes of the frames that the last look found released, and that the next one lets go."""
        return size_of_all(owners_in(self._frames)) if self._frames else 0

    def doubt(self) -> None:
        """Put no looks off until it is known again that the device keeps up."""
        self._patience = 0

    def resume(self) -> None:
        """Go on after computes that were not counted, with a look at the next one."""
        self._patience = 0
        self._last = self.fences.last
        self.look_at = len(self.numbers) + 1

    def may_put_off(self) -> bool:
        """Return whether the next look may come some computes later, because the device has kept up."""
        return len(self.numbers) - self._left + _COMPUTES <= self._patience

    def put_off(self, is_quiet: bool) -> None:
        """Go on without a look for six computes, or twelve with `is_quiet`; the look finds a fence from here."""
        numbers, fences = self.numbers, self.fences
        count, last = len(numbers), fences.last
        if count > 1 and numbers[count - 2] >= last:  # the operator emits no fences, or seldom
            fences.insert()
            self._last = last + 1
        rest = self._patience - count + self._left
        self.look_at = count + (min(2 * _COMPUTES, rest) if is_quiet else _COMPUTES)

    def _release_some(self, released: list[Any] | None) -> None:
        fences, numbers, earlier = self.fences, self.numbers, self._earlier
        if self._frames:
            earlier.append((self._until, self._frames))
        waiting = [*(number + 1 for number in numbers[:1]), *(number for number, _ in islice(earlier, 1))]
        if waiting:
            fences.update(min(waiting))
        del numbers[: bisect_left(numbers, fences.completed)]
        while earlier and earlier[0][0] <= fences.completed:
            earlier.popleft()
        self._frames, self._until = released, fences.last + 1

    def settle(self) -> bool:
        """Release what the stream no longer reads, where no compute follows; return whether nothing is left."""
        fences, numbers = self.fences, self.numbers
        if (numbers and numbers[-1] >= fences.last) or (self._frames and self._until > fences.last):
            fences.insert()
        self.turn(None)
        return not (self.numbers or self.frames)

    def oldest_event(self) -> Any:
        """Return the event of the fence that the oldest unfinished compute waits for; call it when full."""
        return self.fences.event(self.numbers[0] + 1)

    def clear(self) -> None:
        """Release everything, because the device has finished."""
        self.numbers.clear()
        self._earlier.clear()
        self._frames = None
        self._left = 0


class ReaderStreams:
    """The streams whose work may read what an operator received, as the memory that it received refers to them.

    It refers to nothing else of the run. The garbage collector does not see what a NumPy array refers to. So an
    application that keeps a frame as such an array would never be collected if the frame referred to it.
    """

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: list[ManagedStream] = []

    def add(self, stream: ManagedStream) -> None:
        """Add a stream."""
        self._streams.append(stream)

    def streams(self) -> tuple[ManagedStream, ...]:
        """Return the streams; may be called from any thread."""
        return tuple(self._streams)
