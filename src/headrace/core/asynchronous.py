"""AsynchronousCondition: wait for an event outside the pipeline.

It is here, and not in the catalogue of conditions, because every operator can have one
(`Operator.async_condition`).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from headrace.core.condition import Condition
from headrace.core.condition_types import SchedulingStatusType

if TYPE_CHECKING:
    from headrace.core.composition import Composition


class AsynchronousEventState(enum.Enum):
    """The state of the outside event."""

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


class AsynchronousCondition(Condition):
    """Lets an operator run unless it waits for an outside event; `event_state` may be set from any thread.

    While the state is ``EVENT_WAITING`` the run does not end, even if nothing else is ready.
    """

    polled = False
    depends_on_ports = False

    def __init__(self, fragment: Composition | None = None, *, name: str = "async_condition") -> None:
        super().__init__(fragment, name=name)
        self._state = AsynchronousEventState.READY

    @property
    def event_state(self) -> AsynchronousEventState:
        """The state of the outside event."""
        return self._state

    @event_state.setter
    def event_state(self, state: AsynchronousEventState) -> None:
        given: object = state
        if not isinstance(given, AsynchronousEventState):
            names = ", ".join(AsynchronousEventState.__members__)
            raise TypeError(
                f"condition {self.name!r}: event_state must be an AsynchronousEventState ({names}), not {given!r}"
            )
        # Only a change is announced: another condition may set the state in every `check`, and each announcement
        # leads to another check.
        if self._state is not given:
            self._state = given
            self.notify_scheduler()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the status that corresponds to the state."""
        return _STATUS[self._state], None
