"""Branch: operators in a row that share one stream, for good or until the device falls behind.

On one stream, messages need no event and no wait. While the device keeps up with the host, there is nothing else to
gain: each stage is done before the next one is launched. As soon as the device falls behind, it could work on one
frame in one stage and on the next frame in the stage before. So the operators then leave the shared stream, each
for one of its own, and stay there:

- An operator whose looks (`lifetimes`) have found the device behind several times in a row splits the branch. So
  does one whose computes are far apart, where events cost little. An operator of the row may wait for the device,
  as by a copy to the host: then the device is never behind, and yet the others could work meanwhile.
- At their next looks, the others notice. From then on, each sends its messages with a fence, and says so.
- An operator whose senders all do leaves: its new stream waits for all work on the shared one so far. That includes
  its own work, and the work behind the messages without a fence that it has still to receive. The first operator
  keeps the shared stream.

An operator that was given the handle of the stream, or read which one is current, keeps it. Its stream never
changes within a compute.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace.core.operator import Operator

_LOOKS = 4  # that find the device behind before the operators leave
_FAR_NS = 200_000  # between two computes: an event and a wait cost about 2 µs of it
_FIRST = 64  # computes whose distance says nothing: libraries still take memory, and load kernels


class Branch:
    """Operators in a row that share one stream.

    Attributes
    ----------
    first
        The first operator of the row.
    may_split
        Whether the operators leave the stream when the device falls behind.
    is_split
        Whether they do so now. The compute of any of them sets it, and none clears it.
    stream
        The stream, once the first of them has asked for it (`is_open`); None if the pool had none left.
    """

    __slots__ = ("_with_fences", "first", "is_open", "is_split", "may_split", "stream")

    def __init__(self, first: Operator, may_split: bool) -> None:
        self.first = first
        self.may_split = may_split
        self.is_split = False
        self.is_open = False
        self.stream: ManagedStream | None = None
        # The operators whose messages have fences. Their computes add them: CPython makes that atomic.
        self._with_fences: set[Operator] = set()

    def note_fences(self, operator: Operator) -> None:
        """Note that all messages that an operator sends from now on have a fence."""
        self._with_fences.add(operator)

    def may_leave(self, operator: Operator, senders: Iterable[Operator]) -> bool:
        """Return whether an operator may leave: no message without a fence will be sent to it."""
        return operator is not self.first and self._with_fences.issuperset(senders)


class Member:
    """How often in a row the looks of one operator of a branch have found that it should split."""

    __slots__ = ("_at", "_first", "_looks", "_remaining", "branch", "stays")

    def __init__(self, branch: Branch, remaining: int, timestamp: int) -> None:
        self.branch = branch
        self._looks = 0
        self._first = remaining - _FIRST
        # The compute of the last look, and its time.
        self._remaining, self._at = remaining, timestamp
        # Whether the operator was given the handle of the stream.
        self.stays = False

    def is_to_split(self, keeps_up: bool, remaining: int, timestamp: int) -> bool:
        """Note whether a look has found that the device keeps up; return whether the branch is split."""
        computes = self._remaining - remaining
        are_far_apart = remaining < self._first and timestamp - self._at > _FAR_NS * computes
        self._remaining, self._at = remaining, timestamp
        self._looks = 0 if keeps_up and not are_far_apart else self._looks + 1
        if self._looks >= _LOOKS:
            self.branch.is_split = True
        return self.branch.is_split
