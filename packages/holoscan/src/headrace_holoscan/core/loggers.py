"""The bases of data loggers, as the SDK has them: filters, a clock and a queue around headrace's one hook."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from enum import Enum
from typing import Any

from headrace import observe
from headrace.core import Clock, IOSpec, Resource
from headrace.observe import LoggedMessage, RecordedPort, TensorCopy, TensorMapCopy
from headrace.tensor import Tensor, TensorMap

_INPUT, _OUTPUT = IOSpec.IOType.INPUT, IOSpec.IOType.OUTPUT


class AsyncQueuePolicy(Enum):
    """What an asynchronous logger does with a message when its queue is full."""

    REJECT = 0
    """Drop it and count it."""
    RAISE = 1
    """Raise a :class:`headrace.core.QueueFullError` in the operator."""
    WAIT = 2
    """Let the operator wait until there is room."""


_WHEN_FULL = {AsyncQueuePolicy.REJECT: "drop", AsyncQueuePolicy.RAISE: "raise", AsyncQueuePolicy.WAIT: "wait"}


class DataLoggerQueueType(Enum):
    """In which order an asynchronous logger is called; here always in that of the messages."""

    LOCK_FREE = 0
    ORDERED = 1


class DataLogger(observe.DataLogger):
    """The base of data loggers: override `log_data`, and the others if tensors are to be treated differently.

    Each method returns whether the message was logged. It is called on the thread that computes.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"copies": False, **options})

    def log_data(
        self,
        data: Any,
        unique_id: str,
        acquisition_timestamp: int = -1,
        metadata: dict[str, Any] | None = None,
        io_type: IOSpec.IOType = _OUTPUT,
        stream: Any = None,
    ) -> bool:
        """Log a message.

        Parameters
        ----------
        data
            What was emitted or received.
        unique_id
            The port: ``"operator.port"``, with ``":index"`` at an input for any number of connections.
        acquisition_timestamp
            When the data was acquired, in nanoseconds; -1 if unknown.
        metadata
            The metadata of the message, or None.
        io_type
            Whether it was emitted (``OUTPUT``) or received (``INPUT``).
        stream
            The stream that produces the data, or None. Device memory may be read in its order.
        """
        raise NotImplementedError(f"{type(self).__name__} must override log_data")

    def log_tensor_data(self, data: Any, *details: Any, **named: Any) -> bool:
        """Log a tensor; it is passed to `log_data`, which has the same parameters, unless this is overridden."""
        return self.log_data(data, *details, **named)

    def log_tensormap_data(self, data: Any, *details: Any, **named: Any) -> bool:
        """Log a TensorMap; it is passed to `log_data`, which has the same parameters, unless this is overridden."""
        return self.log_data(data, *details, **named)

    def should_log_output(self, unique_id: str) -> bool:
        """Return whether the messages that an output emits are logged."""
        return True

    def should_log_input(self, unique_id: str) -> bool:
        """Return whether the messages that an input receives are logged."""
        return True

    def wants(self, port: RecordedPort) -> bool:
        """Return whether the messages of a port are logged."""
        return (self.should_log_output if port.is_output else self.should_log_input)(port.name)

    def log(self, message: LoggedMessage) -> bool:
        """Call the method for a message."""
        data, acquired = message.data, message.acq_timestamp
        log = self.log_data
        if isinstance(data, (Tensor, TensorCopy)):
            log = self.log_tensor_data
        elif isinstance(data, (TensorMap, TensorMapCopy)):
            log = self.log_tensormap_data
        return log(
            data,
            message.port.name,
            -1 if acquired is None else acquired,
            message.metadata,
            _OUTPUT if message.port.is_output else _INPUT,
            message.stream,
        )


class DataLoggerResource(DataLogger, Resource):
    """A data logger with filters and a clock, called on the thread that computes.

    Parameters
    ----------
    fragment
        The fragment that it belongs to.
    log_inputs, log_outputs
        Whether received and emitted messages are logged.
    log_metadata
        Whether metadata is passed to the methods.
    log_tensor_data_content
        Whether the contents of tensors are logged, and not only their description.
    use_scheduler_clock, clock
        The clock of `get_timestamp`: `clock` if it is given, else the clock of the run, or the time since the epoch
        if `use_scheduler_clock` is False.
    allowlist_patterns, denylist_patterns
        Regular expressions, which are searched for in the id of a port. A port that a denied one matches is not
        logged; if there are allowed ones, one of them must match.
    """

    def __init__(
        self,
        fragment: Any = None,
        *,
        log_inputs: bool = True,
        log_outputs: bool = True,
        log_metadata: bool = True,
        log_tensor_data_content: bool = True,
        use_scheduler_clock: bool = True,
        clock: Clock | None = None,
        allowlist_patterns: Sequence[str] = (),
        denylist_patterns: Sequence[str] = (),
        name: str = "",
        **queue: Any,
    ) -> None:
        Resource.__init__(self, fragment, name=name)
        DataLogger.__init__(self, contents=log_tensor_data_content, name=name, **queue)
        self.log_inputs, self.log_outputs, self.log_metadata = log_inputs, log_outputs, log_metadata
        self.log_tensor_data_content = log_tensor_data_content
        self.use_scheduler_clock, self.clock = use_scheduler_clock, clock
        self._allowed = _patterns(allowlist_patterns, f"{name!r}: allowlist_patterns")
        self._denied = _patterns(denylist_patterns, f"{name!r}: denylist_patterns")
        self._current = threading.local()

    def should_log_output(self, unique_id: str) -> bool:
        """Return whether the messages that an output emits are logged."""
        return self.log_outputs and self._is_allowed(unique_id)

    def should_log_input(self, unique_id: str) -> bool:
        """Return whether the messages that an input receives are logged."""
        return self.log_inputs and self._is_allowed(unique_id)

    def get_timestamp(self) -> int:
        """Return the time in nanoseconds; in a method that logs, when the message was emitted or received."""
        found: int | None = getattr(self._current, "timestamp", None)
        return self.now() if found is None else found

    def now(self) -> int:
        """Return the time of a message that is emitted or received now."""
        clock = self.clock or (self.run_clock if self.use_scheduler_clock else None)
        return time.time_ns() if clock is None else int(clock.timestamp())

    def log(self, message: LoggedMessage) -> bool:
        """Call the method for a message."""
        self._current.timestamp = message.time
        try:
            return super().log(message if self.log_metadata else message._replace(metadata=None))
        finally:
            self._current.timestamp = None

    def _is_allowed(self, unique_id: str) -> bool:
        if any(pattern.search(unique_id) for pattern in self._denied):
            return False
        return not self._allowed or any(pattern.search(unique_id) for pattern in self._allowed)


class AsyncDataLoggerResource(DataLoggerResource):
    """A data logger on a thread of its own, with copies; all messages are in one queue, in their order.

    Parameters
    ----------
    max_queue_size
        The number of messages that may wait to be logged.
    queue_policy
        What happens to a message when so many wait.
    shutdown_wait_period_ms
        For how long the end of a run waits for what is not logged yet; -1: until everything is.
    worker_sleep_time, large_data_worker_sleep_time, enable_large_data_queue, large_data_max_queue_size, \
large_data_queue_policy, queue_type
        Accepted, without effect.
    **options
        The parameters of :class:`DataLoggerResource`.
    """

    def __init__(
        self,
        fragment: Any = None,
        *,
        max_queue_size: int = 50_000,
        queue_policy: AsyncQueuePolicy | str = AsyncQueuePolicy.REJECT,
        shutdown_wait_period_ms: int = -1,
        worker_sleep_time: int = 0,
        large_data_worker_sleep_time: int = 0,
        enable_large_data_queue: bool = True,
        large_data_max_queue_size: int = 0,
        large_data_queue_policy: Any = None,
        queue_type: Any = None,
        **options: Any,
    ) -> None:
        policy = AsyncQueuePolicy[queue_policy.upper()] if isinstance(queue_policy, str) else queue_policy
        super().__init__(
            fragment,
            copies=True,
            max_waiting=max_queue_size,
            when_full=_WHEN_FULL[policy],
            end_timeout=None if shutdown_wait_period_ms < 0 else shutdown_wait_period_ms / 1000,
            **options,
        )


def _patterns(given: Sequence[str], what: str) -> list[re.Pattern[str]]:
    found = []
    for pattern in [given] if isinstance(given, str) else given:
        try:
            found.append(re.compile(pattern))
        except re.error as error:
            raise ValueError(f"{what}: {pattern!r} is not a regular expression ({error})") from error
    return found
