"""EvaluatedConditions: the conditions of a node that cannot be counted as blockers and must be evaluated.

What the last evaluation found is one value, `Awaited`: what the node waits for, besides the messages and the room
that the states of its queues count. It is in `Node.awaited`, and only `Engine.set_awaited` changes it. Everything
that the engine counts or lists about waiting nodes follows from that change: the events that are outstanding, the
timers, the nodes to poll, the nodes that may run again. So these cannot disagree.

The value holds until something happens that may have changed it: an announcement, a time, a message, a poll. Each
of these leads to another evaluation. While a node has blockers, only an event counts, because it keeps the run from
ending; times and polls begin to count when the last blocker is gone and the node is evaluated again.

`tests/interleavings` compares the value with a new evaluation wherever one thread hands over to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._runtime.scheduling.notes import note_condition
from headrace.core.ports import SchedulingStatusType
from headrace.gpu.current import leave

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace._runtime.scheduling.resume import Resume
    from headrace.core.condition import Condition


_NEVER = SchedulingStatusType.NEVER
_READY = SchedulingStatusType.READY
_WAIT = SchedulingStatusType.WAIT
_WAIT_TIME = SchedulingStatusType.WAIT_TIME
_WAIT_EVENT = SchedulingStatusType.WAIT_EVENT


class EvaluatedConditions:
    """The conditions of one node that are evaluated before each compute; set before the run begins.

    Attributes
    ----------
    are_polled
        Whether any of them, written by a user, can become READY without an announcement.
    matter_while_blocked
        Whether any of them must be evaluated while the node has blockers.
    reserving
        Those that take something before each compute that others might take as well.
    resume
        What lets the node continue with messages that it received before, if anything does. The conditions about
        inputs do not count meanwhile.
    """

    __slots__ = ("are_polled", "conditions", "matter_while_blocked", "operator", "reserving", "resume")

    def __init__(self, operator: str) -> None:
        self.operator = operator
        self.conditions: list[Condition] = []
        self.are_polled = False
        self.matter_while_blocked = False
        self.reserving: list[Condition] = []
        self.resume: Resume | None = None

    def add(self, condition: Condition) -> None:
        """Add a condition."""
        self.conditions.append(condition)
        self.are_polled = self.are_polled or condition.polled
        self.matter_while_blocked = self.matter_while_blocked or condition.matters_while_blocked
        if condition.reserves:
            self.reserving.append(condition)

    def for_end(self) -> EvaluatedConditions | None:
        """Return those that the `end` waits for, or None."""
        found = EvaluatedConditions(self.operator)
        for condition in self.conditions:
            if condition.holds_end:
                found.add(condition)
        return found if found.conditions else None

    def reserve(self) -> bool:
        """Take what conditions found, for the compute that follows on this thread; return whether all was there."""
        resume = self.resume
        for place, condition in enumerate(self.reserving):
            if resume is not None and resume.is_on and condition in resume.conditions:
                continue
            if not condition.reserve():
                for taken in self.reserving[:place]:
                    taken.cancel()
                return False
        return True

    def combine(self, timestamp: int, only_check: bool = False) -> Awaited:
        """Evaluate the conditions, and combine their states with AND; with `only_check`, do not change them."""
        combined = _READY
        until: int | None = None
        waiting: list[Condition] = []
        resume = self.resume
        if self.are_polled:
            leave()  # the program's own code finds its own current stream
        for condition in self.conditions:
            if resume is not None and resume.needs_no_message and condition in resume.conditions:
                continue
            try:
                status, target = condition.check(timestamp) if only_check else condition.evaluate(timestamp)
            except Exception as error:
                note_condition(error, "check", condition, self.operator)
                raise
            if status is _READY:
                continue
            if status is _NEVER:
                return ENDED
            if status is _WAIT_TIME:
                if target is None:
                    missing = ValueError(
                        f"condition {condition.name!r} of operator {self.operator!r} returned WAIT_TIME "
                        "without a time"
                    )
                    note_condition(missing, "check", condition, self.operator)
                    raise missing
                if target <= timestamp:
                    continue  # the time that it waits for has come
                until = target if until is None else max(until, target)
            waiting.append(condition)
            if _RANK[status] > _RANK[combined]:
                combined = status
        if not waiting:
            return NOTHING
        return Awaited(
            combined,
            until if combined is _WAIT_TIME else None,
            # One that waits for an event or a time is evaluated when it comes. It must also be polled if any one of
            # several conditions is enough and another of them returned WAIT.
            self.are_polled
            and (combined is _WAIT or any(each._headrace.is_polled_beside for each in self.conditions)),
            tuple(waiting),
        )

    def on_execute(self, timestamp: int) -> None:
        """Notify the conditions that compute ran."""
        resume = self.resume
        if self.are_polled:
            leave()
        for condition in self.conditions:
            if resume is not None and not resume.received and condition in resume.conditions:
                continue
            try:
                condition.on_execute(timestamp)
            except BaseException as error:
                note_condition(error, "on_execute", condition, self.operator)
                raise

    def on_resume(self, timestamp: int) -> None:
        """Notify the conditions that a pause has ended."""
        for condition in self.conditions:
            try:
                condition.on_resume(timestamp)
            except BaseException as error:
                note_condition(error, "on_resume", condition, self.operator)
                raise


_RANK = {_READY: 0, _WAIT_TIME: 1, _WAIT: 2, _WAIT_EVENT: 3}


def leaves_of(condition: Condition) -> Iterator[Condition]:
    """Yield the conditions that a condition combines, directly or indirectly; itself if it combines none."""
    for term in condition.terms:
        yield from leaves_of(term)
    if not condition.terms:
        yield condition


class Awaited:
    """What a node waits for; never changed after it was made.

    Attributes
    ----------
    status
        The combined state of the node's conditions.
    until
        The time that the node waits for, if the state is WAIT_TIME.
    is_polled
        Whether its conditions must be polled.
    conditions
        The conditions that are not READY.
    outstanding
        1 if it waits for an announcement, otherwise 0.
    blocks
        1 if it is a blocker of its node, otherwise 0.
    """

    __slots__ = ("blocks", "conditions", "is_polled", "outstanding", "status", "until")

    def __init__(
        self,
        status: SchedulingStatusType,
        until: int | None = None,
        is_polled: bool = False,
        conditions: tuple[Condition, ...] = (),
        blocks: int = 0,
    ) -> None:
        self.status = status
        self.until = until
        self.is_polled = is_polled
        self.conditions = conditions
        self.outstanding = 1 if status is _WAIT_EVENT else 0
        self.blocks = blocks

    def while_blocked(self) -> Awaited:
        """Return what counts of this while the node has other blockers."""
        if self.blocks:
            return self
        return EVENT if self.outstanding else NOTHING


NOTHING = Awaited(_READY)
"""The node may run as soon as it has no blocker, or is evaluated then."""

EVENT = Awaited(_WAIT_EVENT)
"""The node waits for an announcement and has blockers besides."""

THROTTLED = Awaited(_WAIT_EVENT, blocks=1)
"""The node is too far ahead of the device. Its conditions are evaluated when the device has caught up."""

OVER = Awaited(SchedulingStatusType.NEVER, blocks=1)
"""The node computes no more, and its end has not begun (`ends`)."""

ENDED = Awaited(SchedulingStatusType.NEVER, blocks=1)
"""The node never runs again."""
