"""InOrder: operators on a shared stream that keep nothing of what they hand to each other.

CuPy and PyTorch give freed memory only to work that comes later on the stream on which it was allocated. Operators
of a branch (`branch`) work on one stream. So what one of them made, and another one read and released, needs no
keeping: whatever uses it next comes after the read. This is the order that a program by hand relies on as well, in
which all of it works on the current stream. An operator keeps nothing as long as all of this holds:

- All that it receives comes from operators of its branch that refer to no stream of a library (`placement`). An
  operator that does may send memory that belongs to another stream. One that receives from outside of the branch
  keeps what it receives, and goes on keeping it while those read it that it was passed on to (`held_frames`), also
  when it no longer receives from there.
- CUDA orders the shared stream with the default stream. What a program allocated before the run, or on a thread of
  its own, belongs to the default stream as a rule.
- The memory is of a kind that its library reuses in order (`is_reused_in_order`). Memory of JAX, for example, is
  not, and neither is an array of CuPy on memory of others. The first such object ends it for the operator.
- The device keeps up. If it does not, the host must not run ahead of it, so each operator counts its computes again
  (`lifetimes`).

The operators look at the device together: one look serves all, since all wait for one stream. It also finds whether
they should probe for a split of the branch. When the branch splits, the operators leave the shared stream, and
nobody works on it any more. So nothing there is used again before the library has waited for the device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from headrace import waits
from headrace._runtime.messages.fences import Fences
from headrace._runtime.streams.branch import Branch, Member

if TYPE_CHECKING:
    from headrace._runtime.messages.managed_stream import ManagedStream

# The fewest and the most computes after which an operator asks whether it is time for a look.
_STEPS: Final = 8, 96
# Of a step, and between two looks; there is also one when each operator has asked once.
_MOST_NS: Final = 40_000_000


class Step:
    """A step of one operator.

    Attributes
    ----------
    left
        The number of computes until its end; other operators may end it early.
    epoch
        That in which the operator began to keep nothing.
    """

    __slots__ = ("_began", "_size", "epoch", "left")

    def __init__(self) -> None:
        self.left = self._size = _STEPS[0]
        self._began = self.epoch = 0

    def begin(self, epoch: int) -> None:
        """Begin with the first step."""
        self.epoch = epoch
        self.left = self._size = _STEPS[0]
        self._began = monotonic_ns()

    def begin_next(self) -> int:
        """Begin with the next step, of as many computes as take the time of a step; return the time."""
        now = monotonic_ns()
        elapsed = now - self._began
        if 2 * elapsed <= _MOST_NS:
            self._size = min(2 * self._size, _STEPS[1])
        elif elapsed > _MOST_NS:
            self._size = max(self._size // 2, _STEPS[0])
        self.left = self._size
        self._began = now
        return now


class InOrder:
    """The looks at the device of the operators of a branch that keep nothing.

    Any of the operators may call it; a signal that raises would leave its lock held, so the handler waits.
    """

    __slots__ = ("_begun", "_branch", "_ended", "_epoch", "_fences", "_is_on", "_lock", "_looked", "_member")

    def __init__(self, branch: Branch, stream: ManagedStream) -> None:
        self._branch = branch
        self._lock = threading.Lock()
        self._fences = Fences(stream)
        self._member: Member | None = None
        self._is_on = False
        self._epoch = 0  # how often the operators have had to begin to count their computes again
        self._begun: list[Step] = []  # those of the operators that have begun in this epoch
        self._ended = self._looked = 0  # how many have ended since the last look, and its time

    @waits.shielded
    def begin(self, step: Step, timestamp: int) -> None:
        """Note that an operator keeps nothing from now on."""
        with self._lock:
            if not self._is_on:
                self._is_on = True
                if self._member is None:
                    self._member = Member(self._branch, self._remaining, timestamp)
                else:
                    if self._member.probes:  # those of the operators found nothing
                        self._member.rest()
                    self._member.begin_span(self._remaining, timestamp)
                self._begin_look()
            step.begin(self._epoch)
            if step not in self._begun:
                self._begun.append(step)

    @waits.shielded
    def end(self, step: Step, timestamp: Callable[[], int]) -> bool:
        """Look at the device if it is time for that; return whether an operator goes on keeping nothing."""
        now = step.begin_next()
        if step.epoch != self._epoch:
            return False
        if not self._lock.acquire(blocking=False):
            return True  # another operator is about it
        try:
            self._ended += 1
            if self._ended >= self._branch.members or now - self._looked > _MOST_NS:
                self._look(timestamp())
            return step.epoch == self._epoch
        finally:
            self._lock.release()

    @property
    def are_to_probe(self) -> bool:
        """Whether the operators are to find out if the branch should split."""
        return self._member is not None and self._member.probes

    @property
    def _remaining(self) -> int:
        """Falls by one when each operator has computed once."""
        return -(self._branch.computes // self._branch.members)

    def _look(self, timestamp: int) -> None:
        fences, member = self._fences, self._member
        assert member is not None
        keeps_up = fences.has_passed(fences.last)
        if member.is_to_split(keeps_up, self._remaining, timestamp) or not keeps_up or member.probes:
            self._is_on = False
            self._epoch += 1
            for step in self._begun:
                step.left = 1  # if an operator counts at this moment, it goes on to the end of its step
            self._begun.clear()
        else:
            self._begin_look()

    def _begin_look(self) -> None:
        self._fences.insert()
        self._ended = 0
        self._looked = monotonic_ns()
