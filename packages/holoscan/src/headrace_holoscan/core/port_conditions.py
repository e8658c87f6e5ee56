"""Conditions of ports that differ from headrace's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.conditions import MultiMessageAvailableCondition, MultiMessageAvailableTimeoutCondition
from headrace.core import ConditionType, GraphError, SchedulingStatusType
from headrace_holoscan.lenience import tell

if TYPE_CHECKING:
    from headrace.vocabulary import Node


class _AnyNumber:
    def join(self, node: Node) -> None:
        """Look up the inputs, which may hold fewer messages than it waits for."""
        try:
            super().join(node)  # type: ignore[misc]
        except GraphError as error:
            tell(f"operator {node.name!r} waits for more messages than its inputs hold", str(error))


class Messages(_AnyNumber, MultiMessageAvailableCondition):
    """Waits for messages at several inputs, even for more than they hold."""


class MessagesOrTimeout(_AnyNumber, MultiMessageAvailableTimeoutCondition):
    """The same, or for a message that arrives when the time is up: the time alone makes no operator run.

    So it keeps no run alive in which nothing else happens, but for as long as the scheduler waits for more.
    """

    _patience = 0

    def join(self, node: Node) -> None:
        """Look up the inputs, and how long the scheduler waits when nothing happens."""
        super().join(node)
        whole: Any = node.operator.fragment._headrace.whole
        self._patience = whole.scheduler().stop_on_deadlock_timeout * 1_000_000

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if enough messages wait or the time is up."""
        status, due = super().check(timestamp)
        if status is SchedulingStatusType.WAIT_TIME and not (
            self._have_all_ended() and due is not None and due < timestamp + self._patience
        ):
            return SchedulingStatusType.WAIT, None
        return status, due


CONDITION_TYPES = {
    ConditionType.MULTI_MESSAGE_AVAILABLE: Messages,
    ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT: MessagesOrTimeout,
}
