"""QueueHistory: how many messages waited in a queue at each time, and which were dropped.

Both follow exactly from when messages were emitted and received. A message that was never received although a later
one was, has been dropped: when it came if the queue rejects messages, and otherwise when the queue overflowed. That
was with the message that came as many places later as the queue is long.

What was emitted and what was received is known at different times. So the history is told up to a time before which
nothing new can be learned, and the rest waits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

from headrace.core.ports import IOSpec
from headrace.observe.traces.level import Level

if TYPE_CHECKING:
    from headrace.observe.events.records import Arrivals, Discards, Emissions, OperatorInfo, QueueInfo

__all__ = ["QueueHistory"]

_END = 1 << 62
_MOST = 10_000  # messages of which nothing is known for long: their consumer computes, or is stuck


class QueueHistory:
    """The messages of one queue.

    Attributes
    ----------
    dropped
        The number of messages that were dropped.
    """

    def __init__(self, queue: QueueInfo) -> None:
        self.queue = queue
        self.dropped = 0
        self._depth = Level()
        self._drops: list[int] = []
        # When the computes that are known ended, by operator.
        self._known: dict[OperatorInfo, int] = dict.fromkeys(
            (queue.operator, *(output.operator for output in queue.outputs)), -_END
        )
        # In the order in which they entered the queue: (emitted, output, number).
        self._waiting: deque[tuple[int, int, int]] = deque()
        # When those that were received were, by output and number.
        self._received: dict[tuple[int, int], int] = {}
        self._newest = [-1] * len(queue.outputs)
        self._pops = queue.queue.policy is IOSpec.QueuePolicy.POP

    def computed(self, operator: OperatorInfo, ended: int) -> None:
        """Note that the computes of an operator up to a time are known."""
        self._known[operator] = ended

    def emitted(self, emissions: Emissions) -> None:
        """Note emitted messages."""
        output = emissions.output
        self._waiting.extend(
            (emitted, output, number)
            for emitted, number in zip(emissions.emitted.tolist(), emissions.number.tolist(), strict=True)
        )
        self._drops.extend(emissions.rejected.tolist())

    def received(self, arrivals: Arrivals) -> None:
        """Note received messages."""
        for output, number, received in zip(
            arrivals.output.tolist(), arrivals.number.tolist(), arrivals.received.tolist(), strict=True
        ):
            self._received[output, number] = received
            self._newest[output] = number

    def discarded(self, discards: Discards) -> None:
        """Note messages that were discarded."""
        for output, number, discarded in zip(
            discards.output.tolist(), discards.number.tolist(), discards.discarded.tolist(), strict=True
        ):
            self._received[output, number] = discarded
            self._newest[output] = number

    def tell(self, is_last: bool = False) -> tuple[list[tuple[int, int]], list[int]]:
        """Return what is now known: pairs of a time and the depth from then on, and the times of drops."""
        horizon = _END if is_last else min(self._known.values())
        self._settle(is_last, horizon)
        if self._waiting:
            horizon = min(horizon, self._waiting[0][0] - 1)
        self._drops.sort()
        count = bisect_right(self._drops, horizon)
        drops = self._drops[:count]
        del self._drops[:count]
        self.dropped += count
        return self._depth.tell(horizon), drops

    def _lost_at_the_end(self) -> set[int]:
        """Return the places of messages that were dropped after the last one was received; the others wait."""
        known = self.dropped + len(self._drops)
        left = []
        for place, (_, output, number) in enumerate(self._waiting):
            if (output, number) in self._received:
                continue
            if number < self._newest[output]:
                known += 1
            else:
                left.append(place)
        count = min(max(self.queue.dropped - known, 0), len(left))
        return set(left[:count] if self._pops else left[len(left) - count :])

    def _settle(self, is_last: bool, horizon: int) -> None:
        """Find out which of the oldest messages were received and which were dropped."""
        if len(self.queue.outputs) > 1:
            # What several operators emitted is noted one operator after the other.
            self._waiting = deque(sorted(self._waiting))
        waiting, limit = self._waiting, self.queue.limit
        emitted_at = [message[0] for message in waiting]
        lost = self._lost_at_the_end() if is_last else set()
        settled = 0
        entered, left = [], []
        for place, (emitted, output, number) in enumerate(waiting):
            if emitted > horizon:
                break
            received = self._received.pop((output, number), None)
            if received is not None:
                left.append(received)
            elif number < self._newest[output] or place in lost or len(waiting) - place > _MOST + limit:
                dropped = emitted
                if self._pops and place + limit < len(waiting):
                    dropped = emitted_at[place + limit]
                left.append(dropped)
                self._drops.append(dropped)
            elif not is_last:
                break
            entered.append(emitted)
            settled += 1
        for _ in range(settled):
            waiting.popleft()
        self._depth.change(entered, 1)
        self._depth.change(left, -1)
        if len(self._received) > _MOST:  # of messages that were taken for dropped
            self._received.clear()
