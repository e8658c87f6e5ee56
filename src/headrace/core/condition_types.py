"""The states of a condition, and the conditions that a port can select by name."""

from __future__ import annotations

import enum


class SchedulingStatusType(enum.Enum):
    """The state of a condition, or of an operator as a whole."""

    NEVER = 0
    READY = 1
    WAIT = 2
    WAIT_TIME = 3
    WAIT_EVENT = 4


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
