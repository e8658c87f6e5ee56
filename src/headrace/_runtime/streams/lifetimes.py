"""Lifetimes: how long received frames stay alive, and how far the host may run ahead of the device.

A received frame stays alive until the program has released it and the stream that may read it has passed a fence
after that. Each operator checks what it received itself (`HeldFrames`). What was released waits in one list for
each stream (`StreamFrames`), whether one operator works on it or several. Which frames the program has released,
and which fences are complete, is found out for several computes at once: with the usual limit, when an operator has
six computes that are not known to be complete. At every compute it would free frames sooner, at six times the cost.
Querying an event costs less than a callback. If the device is behind, it is found out at every other compute, so
that the operator goes on as soon as the oldest compute is complete. So what is kept are at most the frames of as
many computes as the limit says, and of six more.

The next `emit` inserts the fence after a compute anyway. If there was none since the last time, one is inserted
here.

**What was released, and what is held.** CuPy and PyTorch reuse a freed block at once on the stream on which it was
allocated, even if another stream still reads it. So the owners of the memory that an operator received (`owners`)
are kept here. At a check there are two kinds. Owners with no other reference were released in the computes since
the last one. They live until the stream has passed a fence after that. The others are held: by an operator, which
may read them in a later compute, or by operators that they were passed on to. They are watched, and checked again
later. An owner that is no longer held is treated as if it had just been received.

Each of several receivers of a message keeps its owner, and would take it for held by the program. So they share its
record from the beginning, and keep that (`HeldFrames.shared`).

Memory of headrace's own allocators is neither kept nor watched after the compute. It knows the streams that may
work on it, and its next user is ordered after them (`headrace.gpu.allocation`). The stream is added to its users.

If many frames are watched, they are checked less often, so that a check of the others pays for about 32 of these.
So at most one in 32 of the frames that a program holds is released late.

An operator with `Operator.max_in_flight` unfinished computes is not ready until the device has finished the
oldest. Only in this case is a callback requested.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace import gpu, waits
from headrace._runtime.messages.fences import Fences
from headrace._runtime.streams.owners import (
    Watch,
    Watched,
    no_longer_held,
    only_kept,
    sort_allocations,
    still_held,
)
from headrace.core.values import whole_number

if TYPE_CHECKING:
    from headrace._runtime.messages.fences import ManagedStream
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.gpu.allocation import StreamUser


# The unfinished computes of an operator at which it is found out what is complete. A query takes about as long as
# an event and a wait, so that it costs a sixth of these.
_COMPUTES: Final = 6


class Lifetimes:
    """The computes of one operator that its stream may not have completed.

    Parameters
    ----------
    node
        The operator.
    frames
        The frames of its stream.
    limit
        The number of its computes that may be unfinished (`limit_of`).

    All fields are changed in the operator's computes or between two computes. On a stream with several operators,
    another one may find out at any time that computes are complete, and remove their `numbers`.

    Attributes
    ----------
    frames
        The frames of the stream.
    held
        The frames that the operator received, and those of them that the program still holds.
    fences
        The fences that complete the computes.
    numbers
        The number of the last fence at the end of each unfinished compute, oldest first: the next fence completes
        the compute.
    check_at
        The number of unfinished computes at which to call `check`.
    is_full
        Whether the maximum number of computes is unfinished; the engine then throttles the operator.
    is_settling
        Whether it is to settle when the device has passed the last compute.
    """

    __slots__ = (
        "_awaited",
        "_check_at",
        "_fence_next",
        "_limit",
        "_node",
        "check_at",
        "fences",
        "frames",
        "held",
        "is_full",
        "is_settling",
        "numbers",
    )

    def __init__(self, node: RunningOperator, frames: StreamFrames, limit: int) -> None:
        self._node = node
        self.frames = frames
        self.held = HeldFrames(frames.watch, frames.user)
        self.fences = frames.fences
        self.numbers: list[int] = []
        self.is_full = self.is_settling = False
        self._limit = limit
        self.check_at = 1
        self._fence_next = False
        self._check_at = 1  # while a fence is to be inserted
        # The fences for which a callback waits.
        self._awaited: set[int] = set()
        frames.members.append(self)

    def note_compute(self) -> None:
        """Note the end of a compute, and find out what is complete if it is time for that."""
        numbers = self.numbers
        numbers.append(self.fences.last)
        if len(numbers) >= self.check_at:
            self.check()
        elif self.held.unsorted:
            self.sort()

    def check(self) -> None:
        """Find out what is complete, between two computes."""
        is_early = self._fence_next and len(self.numbers) < self._check_at
        if is_early:
            self.check_at = self._check_at
            if self.held.unsorted:
                self.sort()
        else:
            self.frames.check(self)
        if self._fence_next:  # after the check, which keeps what was released until the next fence
            self._fence_next = False
            for number in self.numbers[-1:]:
                self.frames.insert_after(number)
        if is_early:
            return
        if self.held.has_seen_again:
            self.held.has_seen_again = False
            self.suspect()
        left = len(self.numbers)
        self.check_at = min(left + (_COMPUTES if left <= 2 else 2), self._limit)
        if left >= self._limit:
            for number in self.numbers[:1]:
                self.frames.insert_after(number)
            self.is_full = self._node.has_extra_work = True  # for the engine to see

    @property
    def frames_in_flight(self) -> int:
        """The number of frames that are kept because the stream may still read them, once for all who share it."""
        return self.frames.count if self.frames.members[:1] == [self] else 0

    @waits.shielded
    def sort(self) -> None:
        """Sort out memory of headrace's own allocators."""
        self.held.sort()

    def fence_next(self) -> None:
        """Insert a fence at the end of this compute."""
        if not self._fence_next:
            self._fence_next = True
            self._check_at, self.check_at = self.check_at, 1

    def suspect(self) -> None:
        """Let those who send to the operator note what they send, since it received memory that it still has."""
        seen: set[Any] = set()
        senders = [feeder for queue in self._node.inputs for feeder in queue.feeders]
        for sender in senders:  # which grows
            if sender in seen:
                continue
            seen.add(sender)
            if sender.operator._headrace.moves_messages:
                senders += [each for queue in sender.inputs for each in queue.feeders]
            else:
                sender.streams.expect_resends()

    def settle(self) -> bool:
        """Release what the stream no longer reads, where no compute follows; return whether nothing is left."""
        frames = self.frames
        frames.check(self, is_last=True)
        for number in self.numbers[-1:]:
            frames.insert_after(number)
        frames.check(self)
        # The others who share the stream release what is left.
        return not self.numbers and (len(frames.members) > 1 or not frames.are_in_flight)

    def settle_when_passed(self, callback: Callable[[], None]) -> None:
        """Settle; call a function, from another thread, when there is more to be released."""
        self.is_settling = not self.settle()
        if self.is_settling:
            fences = self.fences
            self.frames.insert_after(max(self.numbers[-1:], default=fences.last - 1))
            self._call_when_passed(fences.last, callback)

    def is_still_full(self) -> bool:
        """Release completed computes, and return whether the maximum number is still unfinished."""
        if self.is_full:
            self.frames.check(self)
            self.is_full = len(self.numbers) >= self._limit
        if not self.is_full:
            return False
        self._node.has_extra_work = True  # for the engine to see
        return True

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        """Call a function, from another thread, when the oldest unfinished compute may be finished."""
        fences = self.fences
        # If none is left, any fence that is complete.
        numbers = self.numbers[:1] or [fences.completed - 1]
        self._call_when_passed(numbers[0] + 1, callback)

    def _call_when_passed(self, number: int, callback: Callable[[], None]) -> None:
        """Call a function when the stream has passed a fence: once, however often that is asked for until then.

        Each call leads to the question whether there is more to wait for. With a callback for each question, their
        number would double from fence to fence.
        """
        if number in self._awaited:
            return
        self._awaited.add(number)

        def passed(error: BaseException | None) -> None:
            self._awaited.discard(number)
            callback()

        gpu.when_done(self.fences.stream.stream, passed, event=self.fences.event(number))

    def forget(self) -> None:
        """Regard every compute as complete, because the device has finished."""
        self.numbers.clear()
        self.is_full = False


def limit_of(node: RunningOperator) -> int:
    """Return how many computes of an operator may be unfinished."""
    limit = node.operator._headrace.max_in_flight
    given = node.operator.fragment._headrace.max_in_flight if limit is None else limit
    return whole_number(given, f"operator {node.name!r}: max_in_flight", 1)


class StreamFrames:
    """A stream that operators work on, and the frames that they received, while its work may read them.

    Attributes
    ----------
    managed, is_shared
        The stream, and whether several operators may work on it.
    watch
        The frames of the run that are still held.
    fences
        Fences on the stream: those that its only operator emits, or others that only this object inserts.
    members
        The computes of each operator.
    user
        What memory of allocators refers to.
    """

    __slots__ = (
        "_checked",
        "_in_flight",
        "_lock",
        "fences",
        "is_shared",
        "managed",
        "members",
        "user",
        "watch",
    )

    def __init__(self, managed: ManagedStream, watch: Watch, is_shared: bool) -> None:
        self.managed = managed
        self.is_shared = is_shared
        self.watch = watch
        self.fences = Fences(managed)
        self.user = FrameStream(managed)
        self.members: list[Lifetimes] = []
        self._lock = threading.Lock()  # of operators on several threads
        # What was released, with the number of the fence that completes the work on it, oldest first.
        self._in_flight: deque[tuple[int, list[Any]]] = deque()
        self._checked = 0  # the number of the last fence at the last check

    @property
    def are_in_flight(self) -> bool:
        """Whether frames were released that the stream may still read."""
        return bool(self._in_flight)

    @property
    def count(self) -> int:
        """The number of frames that are kept because the stream may still read them, with those just received."""
        released = sum([len(frames) for _, frames in tuple(self._in_flight)])
        return released + sum([each.held.received_count for each in self.members])

    # A signal that raises would leave the lock held, so the handler waits (`waits.shielded`).

    @waits.shielded
    def check(self, member: Lifetimes, is_last: bool = False) -> None:
        """Keep what was released until the next fence, and release what the stream has passed."""
        with self._lock:
            self._check(member, is_last)

    @waits.shielded
    def insert_after(self, number: int) -> None:
        """Make sure that there is a fence after one, for which somebody waits."""
        with self._lock:
            if self.fences.last <= number:
                self.fences.insert()

    def _check(self, member: Lifetimes, is_last: bool) -> None:
        fences, in_flight, numbers = self.fences, self._in_flight, member.numbers
        released = member.held.check(is_last)
        waiting = [*(number + 1 for number in numbers[:1]), *(number for number, _ in tuple(in_flight)[:1])]
        if waiting:
            fences.update(min(waiting))
        completed, last = fences.completed, fences.last
        while in_flight and in_flight[0][0] <= completed:
            in_flight.popleft()
        # Its own: the others have to check what they received as often.
        del numbers[: bisect_left(numbers, completed)]
        if released:
            in_flight.append((last + 1, released))
        waits_for = max([*(number + 1 for number in numbers[-1:]), in_flight[-1][0] if in_flight else 0])
        if last == self._checked and waits_for > last:
            fences.insert()  # nobody else has inserted one since the last time
            last += 1
        self._checked = last

    def clear(self) -> None:
        """Release all frames but those that the program holds, because the stream has finished."""
        self._in_flight.clear()
        for each in self.members:
            each.held.check(is_last=True)
            each.forget()

    def remove(self, member: Lifetimes) -> None:
        """Release what an operator received that works no more; what the others received stays."""
        member.held.clear()
        self.members = [each for each in self.members if each is not member]
        if not self.members:
            self.fences.close()
            self._in_flight.clear()


class FrameStream:
    """The streams whose work may read what operators received, as memory of allocators refers to them.

    These are the stream of the operators and their further streams: memory may be released in the compute that
    works on it there, before the stream is ordered after them.

    It refers to nothing else of the run. The garbage collector does not see what a NumPy array refers to. So an
    application that keeps a frame as such an array would never be collected if the frame referred to the run.
    """

    __slots__ = ("_streams",)

    def __init__(self, stream: ManagedStream) -> None:
        self._streams: tuple[ManagedStream, ...] = (stream,)

    def add(self, stream: ManagedStream) -> None:
        """Add a further stream."""
        if stream not in self._streams:
            self._streams += (stream,)

    def streams(self) -> tuple[ManagedStream, ...]:
        """Return the streams; may be called from any thread."""
        return self._streams


_CHECKS: Final = 32


class HeldFrames:
    """The frames that one operator received and that may still be held.

    The lists stay the same objects. They change in the operator's computes or between two computes.

    Attributes
    ----------
    received
        The owners of the memory that was received since the last `check`; an owner may appear more than once.
    unsorted
        The same for owners that may be allocations; empty between two computes.
    shared
        The records of the same for messages with several receivers.
    watched
        The frames that were still held at the end of a compute, by the identity of the owner.
    has_seen_again
        Whether owners were received again while they were watched, since this was last set to False.
    """

    __slots__ = (
        "_countdown",
        "_user",
        "_watch",
        "has_seen_again",
        "received",
        "shared",
        "unsorted",
        "watched",
    )

    def __init__(self, watch: Watch, user: StreamUser) -> None:
        self._watch = watch
        self._user = user
        self.received: list[Any] = []
        self.shared: list[Watched] = []
        self.unsorted: list[Any] = []
        self.watched: dict[int, Watched] = {}
        self.has_seen_again = False
        self._countdown = 0  # checks left before `watched` is checked again

    @property
    def received_count(self) -> int:
        """The number of frames that were received since the last `check`; may be called from any thread."""
        return len(self.received) + len(self.unsorted) + len(self.shared)

    def sort(self) -> None:
        """Add the stream to the users of received memory of headrace's own allocators; keep the other owners."""
        self.received += sort_allocations(take_all(self.unsorted), self._user)

    def check(self, is_last: bool = False) -> list[Any] | None:
        """Return the owners that must live until the stream has completed its work so far.

        Where no compute follows (`is_last`), all that are watched are looked at.
        """
        released: list[Any] | None = None
        if self.unsorted:
            self.sort()
        if self.received:
            received = take_all(self.received)
            released = received if only_kept(received) else self._sort(received)
        if self.shared:
            released = self._sort_shared(released)
        if self.watched:
            self._countdown -= 1
            if self._countdown < 0 or is_last:
                released = self._check_watched(released)
        return released

    def has(self, owner: Any) -> bool:
        """Return whether an owner was received, and is not known to be released."""
        received = [*self.received, *self.unsorted, *(record.owner for record in self.shared)]
        return id(owner) in self.watched or any(each is owner for each in received)

    def clear(self) -> None:
        """Release everything."""
        self.received.clear()
        self.unsorted.clear()
        self.shared.clear()
        self.watched.clear()

    def _sort(self, received: list[Any]) -> list[Any]:
        """Watch the owners that are still held, and return the others; at least one is held or appears twice."""
        watched = self.watched
        once = list({id(owner): owner for owner in received}.values())
        self.has_seen_again = self.has_seen_again or len(once) < len(received)
        received.clear()
        released: list[Any] = []
        while once:
            one = [once.pop()]
            if id(one[0]) in watched:  # it is checked with those
                self.has_seen_again = True
            elif only_kept(one):
                released += one
            else:
                self._begin(one.pop())
        return released

    def _sort_shared(self, released: list[Any] | None) -> list[Any]:
        """Watch the frames with several receivers that are still held, and add the others to the released ones."""
        records = dict.fromkeys(take_all(self.shared))
        for record in still_held(list(records)):
            self.has_seen_again = self.has_seen_again or id(record.owner) in self.watched
            self.watched[id(record.owner)] = self._watch.begin(record.owner, record)
            del records[record]
        return [*records] if released is None else [*released, *records]

    def _begin(self, owner: Any) -> None:
        self.watched[id(owner)] = self._watch.begin(owner)

    def _check_watched(self, released: list[Any] | None) -> list[Any] | None:
        """Add the owners that are no longer held to the released ones."""
        watched = self.watched
        found = no_longer_held(watched)
        self._countdown = (len(watched) - len(found)) // _CHECKS
        if found:
            if released is None:
                released = []
            released += [watched.pop(key) for key in found]
        return released


def take_all(kept: list[Any]) -> list[Any]:
    """Remove what is in a list, which stays the same object, and return it."""
    taken = kept[:]
    kept.clear()
    return taken
