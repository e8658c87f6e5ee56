"""AsynchronousCondition: wait for something outside the pipeline to announce itself."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from penstock.core.condition import Condition, ConditionType, SchedulingStatusType

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["AsynchronousCondition", "AsynchronousEventState"]


class AsynchronousEventState(enum.Enum):
    """Where the outside event stands."""

    READY = 0
    WAIT = 1
    EVENT_WAITING = 2
    EVENT_DONE = 3
    EVENT_NEVER = 4


_STATUS = {
    AsynchronousEventState.READY: SchedulingStatusType.READY,
    AsynchronousEventState.WAIT: SchedulingStatusType.WAIT,
    AsynchronousEventState.EVENT_WAITING: SchedulingStatusType.WAIT_EVENT,
    AsynchronousEventState.EVENT_DONE: SchedulingStatusType.READY,
    AsynchronousEventState.EVENT_NEVER: SchedulingStatusType.NEVER,
}


class AsynchronousCondition(Condition, kind=ConditionType.ASYNCHRONOUS):
    """Lets an operator run unless an outside event is awaited; `event_state` may be set from any thread.

    While the state is ``EVENT_WAITING`` the run goes on waiting, whatever else is or is not ready.
    """

    polled = False

    def __init__(self, fragment: Fragment | None = None, *, name: str = "async_condition") -> None:
        super().__init__(fragment, name=name)
        self._state = AsynchronousEventState.READY

    @property
    def event_state(self) -> AsynchronousEventState:
        """Where the outside event stands."""
        return self._state

    @event_state.setter
    def event_state(self, state: AsynchronousEventState) -> None:
        self._state = state
        self.notify_scheduler()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give the status that goes with the state."""
        return _STATUS[self._state], None
