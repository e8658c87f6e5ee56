"""The states of a condition and of an operator, and the conditions that a port can select by name."""

from __future__ import annotations

import enum


class SchedulingStatusType(enum.Enum):
    """The state of a condition, or of an operator as a whole."""

    NEVER = 0
    READY = 1
    WAIT = 2
    WAIT_TIME = 3
    WAIT_EVENT = 4


class OperatorStatus(enum.Enum):
    """What an operator does in a run: see :meth:`ExecutionContext.get_operator_status`."""

    NOT_STARTED = 0
    """Its `start` has not been called, or its `stop` has returned."""
    START_PENDING = 1
    """It is in its `start`."""
    STARTED = 2
    """It has started and not computed yet."""
    TICK_PENDING = 3
    """Never used: an operator that could run is IDLE until a worker takes it."""
    TICKING = 4
    """It is in its `compute`, or in its `end`."""
    IDLE = 5
    """It waits between two computes, or has ended."""
    STOP_PENDING = 6
    """It is in its `stop`."""

    def __int__(self) -> int:
        return self.value


class ConditionType(enum.Enum):
    """The conditions that a port can select by name: see :meth:`IOSpec.condition`."""

    NONE = 0
    MESSAGE_AVAILABLE = 1
    DOWNSTREAM_MESSAGE_AFFORDABLE = 2
    COUNT = 3
    BOOLEAN = 4
    PERIODIC = 5
    ASYNCHRONOUS = 6
    EXPIRING_MESSAGE_AVAILABLE = 7
    MULTI_MESSAGE_AVAILABLE = 8
    MULTI_MESSAGE_AVAILABLE_TIMEOUT = 9
    JOIN = 10
