"""BranchFrames: the frames that operators hand to each other on one stream, while the device keeps up.

Operators of a branch (`branch`) work on one stream. As long as the device keeps up with the host, they keep what
they receive in one list for all of them, and look at it together. So a frame costs its receiver an entry in the
list, and a look, with its event and its query, serves all operators. Otherwise each operator counts its computes
and looks for itself (`lifetimes`). In a graph of ten short stages that took 682 bytecodes a compute, and 555
together; on the default stream, where nothing is kept, it was 470.

A look takes the frames that came before the look before. By then they have passed through the branch as a rule.
Frames that nobody refers to live until the stream has completed a fence after that; the others are watched
(`held_frames`). The bytes of the frames are counted now and then, and a look comes as soon as there are many or a
few milliseconds have passed, as in `lifetimes`. Operators that hand on nothing to keep look after as many computes:
the device may fall behind them, too.

It ends when a look finds that the device has not completed the fence of the look before, when the branch splits, or
when the operators are to find out whether it should (`Member.probes`):
`look_at` is 0 from then on, so that each operator looks at the end of its next compute, and keeps what it receives
by itself (`NodeStreams`). It ends for good when the frames are so large that they have to be looked at more often.
An operator that receives such frames does not begin with it: twice as many would be kept until the first look.

What is here stays here until the shared stream has completed its work on it (`settle`): nobody knows which operator
received a frame, holds it or is about to read it. An operator that begins to use another stream also keeps all of
it by itself (`copy_to`), since it may read a frame there.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from headrace import waits
from headrace._runtime.messages.fences import Fences
from headrace._runtime.streams.branch import Branch, Member
from headrace._runtime.streams.held_frames import HeldFrames
from headrace._runtime.streams.owners import size_of_all, take_each_once
from headrace._runtime.streams.watch import owners_in

if TYPE_CHECKING:
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.watch import Watch

# For each operator of the branch: entries until the bytes are counted, and the most bytes, of which there may be
# three times as many: since the last look, before it, and released.
_STEP = 12
_MOST_BYTES = 4 << 20
# Entries and time until a look. Few are released sooner and faster: with ten operators, a compute on an H200 took
# 0.35 µs less with looks at 120 entries than at 480.
_ENOUGH = 96
_MOST_NS = 10_000_000


class Reader(Protocol):
    """What an operator keeps until its stream has completed its work (`lifetimes.InFlight`)."""

    @property
    def frames(self) -> list[Any]:
        """The frames that are kept alive."""

    def take_frames(self) -> list[Any]:
        """Return the frames that are kept alive, which somebody else keeps from now on."""


class Keeper(Protocol):
    """What an operator keeps by itself (`lifetimes.Lifetimes`)."""

    @property
    def held(self) -> HeldFrames:
        """The frames that it received."""

    @property
    def readers(self) -> Sequence[Reader]:
        """The frames that its streams may read."""


class BranchFrames:
    """The frames that the operators of a branch received.

    Several operators may append to `received` at once; everything else is done with the lock held. A signal that
    raises would leave it held, so its handler waits.

    Attributes
    ----------
    received
        The owners of the memory that was received, always in the same list, oldest first; an owner may appear more
        than once.
    look_at
        The number of entries at which an operator calls `look` at the end of its compute.
    is_heavy
        Whether the frames were found to be large.
    """

    __slots__ = (
        *(
            "_before",
            "_branch",
            "_bytes",
            "_bytes_before",
            "_counted",
            "_fences",
            "_held",
            "_keepers",
            "_lock",
            "_looked",
        ),
        *("_member", "_released", "_teller", "is_heavy", "look_at", "received"),
    )

    def __init__(self, branch: Branch, stream: ManagedStream, watch: Watch) -> None:
        self.received: list[Any] = []
        self.look_at = 0
        self.is_heavy = False
        self._branch = branch
        self._lock = threading.Lock()
        self._fences = Fences(stream)
        self._held = HeldFrames(watch, self)  # nobody keeps memory of headrace's own allocators here
        # Those that the last look found released; its fence is the last one.
        self._released: list[Any] | None = None
        # How many entries are older than the last look and how many have been counted, and the bytes of both.
        self._forget_counts()
        self._looked = 0
        self._keepers = 0  # operators that keep what they receive here
        self._member: Member | None = None
        self._teller: Keeper | None = None  # the first of them, which may have left

    @waits.shielded
    def begin(self, keeper: Keeper, timestamp: int) -> bool:
        """Let an operator keep here what it receives from now on and keeps so far, unless that is large."""
        held = keeper.held
        brought = owners_in([frame for reader in keeper.readers for frame in reader.frames])
        if _are_large(size_of_all(brought), len(brought)):
            return False
        del brought
        with self._lock:
            self._keepers += 1
            self.received += held.received
            held.received.clear()
            for reader in keeper.readers:
                self.received += owners_in(reader.take_frames())
            self._held.watched.update(held.watched)
            held.watched.clear()
            if self._teller is None:
                self._teller = keeper
            if not self.look_at:
                if self._member is None:
                    self._member = Member(self._branch, -self._branch.computes, timestamp)
                else:
                    if self._member.probes:  # those of the operators found nothing
                        self._member.rest()
                    self._member.begin_span(-self._branch.computes, timestamp)
                self._looked = monotonic_ns()
                self.look_at = len(self.received) + self._for_all(_STEP)
        return True

    @waits.shielded
    def end(self) -> None:
        """Note that an operator keeps what it receives by itself again."""
        with self._lock:
            self._keepers -= 1
            if not self._keepers:
                self.look_at = 0

    @waits.shielded
    def look(self, timestamp: int, is_due: bool = False) -> bool:
        """Look at what was received, if it is time for that; return whether the operators go on like this.

        It is time in any case if it `is_due`: there was no look in many computes of an operator.
        """
        if not self._lock.acquire(blocking=False):
            return True  # another operator is about it
        try:
            return self.look_at > 0 and self._look(timestamp, is_due)
        finally:
            self._lock.release()

    @waits.shielded
    def settle(self, timestamp: int) -> bool:
        """Release what nobody needs, for an operator that keeps alone; return whether nothing is left."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.look_at:
                return self._settle()
            if monotonic_ns() - self._looked > _MOST_NS:  # those that keep it receive little
                self._look(timestamp)
            return False
        finally:
            self._lock.release()

    @waits.shielded
    def copy_to(self, held: HeldFrames) -> None:
        """Let an operator also keep what is kept here and may be held."""
        with self._lock:
            held.received += {id(owner): owner for owner in self.received[:]}.values()
            held.watched.update(self._held.watched)

    @waits.shielded
    def hand_over(self, held: HeldFrames) -> None:
        """Let one operator keep everything that is kept here, because the streams have finished."""
        with self._lock:
            held.received += take_each_once(self.received, len(self.received))
            if self._released is not None:
                held.received += owners_in(self._released)
                self._released = None
            held.watched.update(self._held.watched)
            self._held.watched.clear()
            self._forget_counts()

    @property
    def are_to_probe(self) -> bool:
        """Whether the operators are to find out if the branch should split."""
        return self._member is not None and self._member.probes

    @property
    def looks(self) -> int:
        """The number of looks so far."""
        return self._fences.last

    def streams(self) -> tuple[ManagedStream, ...]:
        """Return the stream of the branch."""
        return (self._fences.stream,)

    def count_for(self, keeper: Keeper) -> int:
        """Return the number of frames for one of the operators, and 0 for the others."""
        return len(self.received) + len(self._released or ()) if keeper is self._teller else 0

    def _for_all(self, of_each: int) -> int:
        """Return what there is for all operators."""
        return of_each * self._branch.members

    def _forget_counts(self) -> None:
        """Begin with an empty list."""
        self._before = self._counted = self._bytes = self._bytes_before = 0

    def _settle(self) -> bool:
        held, fences = self._held, self._fences
        if not fences.has_passed(fences.last):
            return False
        self._released = None
        self._forget_counts()
        held.received += take_each_once(self.received, len(self.received))
        if held.received or held.watched:
            self._released = held.look()
        if self._released:
            fences.insert()
        return not (self._released or held.watched)

    def _look(self, timestamp: int, is_due: bool = False) -> bool:
        received = self.received
        count = len(received)
        self._bytes += size_of_all(received[self._counted : count])
        self._counted = count
        now = monotonic_ns()
        is_early = count < _ENOUGH and now - self._looked <= _MOST_NS
        if is_early and not is_due and self._bytes <= self._for_all(_MOST_BYTES):
            self.look_at = count + self._for_all(_STEP)
            return True
        fences, member = self._fences, self._member
        assert member is not None
        keeps_up = fences.has_passed(fences.last)
        is_split = member.is_to_split(keeps_up, -self._branch.computes, timestamp)
        if is_split or not keeps_up or member.probes:  # which each operator does by itself
            self.look_at = 0
            return False
        self._released = None
        held = self._held
        if self._before:
            held.received += take_each_once(received, self._before)
        if held.received or held.watched:
            self._released = held.look()
        fences.insert()
        self._counted = self._before = count = self._counted - self._before
        self._bytes = self._bytes_before = self._bytes - self._bytes_before
        self._looked = now
        self.is_heavy = _are_large(self._bytes, count)
        self.look_at = 0 if self.is_heavy else count + self._for_all(_STEP)
        return not self.is_heavy


def _are_large(size: int, count: int) -> bool:
    """Return whether frames are so large that looks at every step would not do."""
    return size * _STEP > _MOST_BYTES * count
