"""Data loggers: show the messages of every port to an object of the program.

A logger is called for every message that is emitted or received, with the id of the port: ``"camera.out"``, or
``"merge.in:1"`` for the second connection of an input for any number of them. Filters by regular expressions choose
the ports.

`DataLoggerResource` is called on the thread that computes, with the message itself. `AsyncDataLoggerResource` is
called on a thread of its own, with a copy of the message (`snapshots`), in the order of the messages; the pipeline
goes on meanwhile.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform

from headrace._runtime import Envelope
from headrace.core.construction import constructor
from headrace.core.errors import QueueFullError
from headrace.core.ports import IOSpec
from headrace.core.resource import Resource
from headrace.core.values import whole_number
from headrace.observe.recordings.carriers import Port, PortWatcher, describe, ports_of
from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.snapshots import Snapshot, TensorCopy, TensorMapCopy
from headrace.tensor import Tensor, TensorMap
from headrace.tensor.conversion import is_array

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import OperatorInfo, RunInfo
    from headrace.observe.recordings.carriers import RecordedPort

_INPUT, _OUTPUT = IOSpec.IOType.INPUT, IOSpec.IOType.OUTPUT
_log = logging.getLogger("headrace.data")
T = TypeVar("T")


class AsyncQueuePolicy(Enum):
    """What an asynchronous logger does with a message when its queue is full."""

    REJECT = 0
    """Drop it and count it."""
    RAISE = 1
    """Raise a :class:`headrace.core.QueueFullError` in the operator."""
    WAIT = 2
    """Let the operator wait until there is room."""


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def options(cls: type[T]) -> type[T]:
    """Make the fields of a resource the keywords of its constructor."""
    made = dataclass(kw_only=True, eq=False, repr=False)(cls)
    made.__init__ = constructor(made.__init__)  # type: ignore[method-assign]
    return made


class DataLogger:
    """The base of data loggers: override `log_data`, and the others if tensors are to be treated differently.

    Each method returns whether the message was logged.
    """

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

    # Called once per run.

    def initialize(self) -> None:
        """Prepare for a run."""

    def release(self) -> None:
        """End with the run."""

    # Called by `DataLogging`.

    def _begin(self, clock: Clock | None) -> None:
        """Begin with a run, before its first message; `clock` is the run's."""
        self.initialize()

    def _end(self) -> None:
        """End with the run, after its last message."""
        self.release()

    def _now(self) -> int:
        """Return the time of a message that is emitted or received now."""
        return 0

    def _take(self, entry: _Entry, item: Any) -> None:
        """Take a message on the thread that computes."""
        data = item.data if type(item) is Envelope else item
        self._log(entry, data)

    def _log(self, entry: _Entry, data: Any) -> None:
        if isinstance(data, (Tensor, TensorCopy)):
            log = self.log_tensor_data
        else:
            is_map = isinstance(data, (TensorMap, TensorMapCopy))
            log = self.log_tensormap_data if is_map else self.log_data
        timestamp = -1 if entry.acq_timestamp is None else entry.acq_timestamp
        log(data, entry.unique_id, timestamp, entry.metadata, entry.io_type, entry.stream)


class _Entry(NamedTuple):
    """A message without its data."""

    operator: OperatorInfo
    unique_id: str
    io_type: IOSpec.IOType
    time: int
    acq_timestamp: int | None
    metadata: dict[str, Any] | None
    stream: Any


@options
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

    fragment: Composition | None = field(default=None, kw_only=False)
    log_inputs: bool = True
    log_outputs: bool = True
    log_metadata: bool = True
    log_tensor_data_content: bool = True
    use_scheduler_clock: bool = True
    clock: Clock | None = None
    allowlist_patterns: Sequence[str] = ()
    denylist_patterns: Sequence[str] = ()
    name: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.fragment, name=self.name)
        self._allowed = _patterns(self.allowlist_patterns, f"{self.name!r}: allowlist_patterns")
        self._denied = _patterns(self.denylist_patterns, f"{self.name!r}: denylist_patterns")
        self._current = threading.local()
        self._scheduler_clock: Clock | None = None

    def should_log_output(self, unique_id: str) -> bool:
        """Return whether the messages that an output emits are logged."""
        return self.log_outputs and self._is_allowed(unique_id)

    def should_log_input(self, unique_id: str) -> bool:
        """Return whether the messages that an input receives are logged."""
        return self.log_inputs and self._is_allowed(unique_id)

    def get_timestamp(self) -> int:
        """Return the time in nanoseconds; in a method that logs, when the message was emitted or received."""
        found: int | None = getattr(self._current, "timestamp", None)
        return self._now() if found is None else found

    def _begin(self, clock: Clock | None) -> None:
        self._scheduler_clock = clock
        super()._begin(clock)

    def _now(self) -> int:
        clock = self.clock or (self._scheduler_clock if self.use_scheduler_clock else None)
        return time.time_ns() if clock is None else int(clock.timestamp())

    def _is_allowed(self, unique_id: str) -> bool:
        if any(pattern.search(unique_id) for pattern in self._denied):
            return False
        return not self._allowed or any(pattern.search(unique_id) for pattern in self._allowed)

    def _log(self, entry: _Entry, data: Any) -> None:
        self._current.timestamp = entry.time
        try:
            super()._log(entry if self.log_metadata else entry._replace(metadata=None), data)
        finally:
            self._current.timestamp = None


@options
class AsyncDataLoggerResource(DataLoggerResource):
    """A data logger that is called on threads of its own, with copies of the messages.

    Tensors come as :class:`TensorCopy`, in host memory; with ``log_tensor_data_content=False`` they come as they
    are, and their contents must not be read. Arrays, tuples, lists and dicts are copies. Other objects are the ones
    of the message: an operator that changes one after emitting it changes what is logged.

    Parameters
    ----------
    max_queue_size
        The number of messages that may wait to be logged.
    queue_policy
        What happens to a message when so many wait. Dropped messages are counted in `dropped`, and reported at the
        end of the run.
    shutdown_wait_period_ms
        For how long the end of a run waits for what is not logged yet; -1: until everything is.
    **options
        The parameters of :class:`DataLoggerResource`.

    Attributes
    ----------
    dropped
        The number of messages of the last run that were not logged.
    """

    max_queue_size: int = 1_000
    queue_policy: AsyncQueuePolicy = AsyncQueuePolicy.REJECT
    shutdown_wait_period_ms: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.max_queue_size, f"{self.name!r}: max_queue_size", 1)
        self.dropped = 0
        self._count_lock = threading.Lock()

    def _begin(self, clock: Clock | None) -> None:
        """Start the thread, before the first message."""
        super()._begin(clock)
        self.dropped = 0
        self._queue = Delivery(lambda snapshot, entry: self._log(entry, snapshot.data), self.name)

    def _end(self) -> None:
        """Log what waits, report what was dropped, and end."""
        period = self.shutdown_wait_period_ms
        try:
            self.dropped += self._queue.close(None if period < 0 else period / 1000)
            if self._queue.error is not None:
                _log.error("%r failed, and logged no more", self.name, exc_info=self._queue.error)
            if self.dropped:
                _log.warning(
                    "%r dropped %d messages: it is slower than the pipeline", self.name, self.dropped
                )
        finally:
            super()._end()

    def _take(self, entry: _Entry, item: Any) -> None:
        queue = self._queue
        if self.queue_policy is AsyncQueuePolicy.WAIT:
            queue.wait_until(lambda: len(queue) < self.max_queue_size)
        if len(queue) >= self.max_queue_size or queue.error is not None:
            with self._count_lock:
                self.dropped += 1
            if self.queue_policy is AsyncQueuePolicy.RAISE:
                raise QueueFullError(
                    f"logger {self.name!r} has {self.max_queue_size} messages to log, and another comes from "
                    f"{entry.unique_id!r}; raise max_queue_size, or let it drop messages with "
                    "AsyncQueuePolicy.REJECT"
                )
            return
        data = item.data if type(item) is Envelope else item
        snapshot = Snapshot(data, metadata=entry.metadata)
        if self.log_tensor_data_content or not has_arrays(data):
            snapshot = queue.snapshots.take(entry.operator, item, entry.io_type is _OUTPUT)
        queue.put(snapshot, entry._replace(metadata=snapshot.metadata))


def has_arrays(data: Any) -> bool:
    """Return whether a message is an array, or a dict, list or tuple with arrays in it."""
    if isinstance(data, dict | list | tuple):
        return any(map(is_array, data.values() if isinstance(data, dict) else data))
    return is_array(data)


class DataLogging(PortWatcher):
    """Shows the messages of a run to data loggers.

    A logger that raises is not called again in the run, and the error is logged; the run goes on. An asynchronous
    logger whose queue is full may raise in the operator.
    """

    def __init__(self, loggers: Sequence[DataLogger]) -> None:
        super().__init__()
        self._loggers = list(loggers)
        self._begun: list[DataLogger] = []

    def begin(self, run: RunInfo) -> None:
        """Find the ports that each logger logs."""
        clock = run.operators[0].node.engine.clock if run.operators else None
        try:
            for logger in self._loggers:
                logger._begin(clock)
                self._begun.append(logger)
            for port in ports_of(run):
                described = describe(port)
                loggers = [logger for logger in self._loggers if _logs(logger, described)]
                if loggers:
                    self._shown[port] = described, loggers
        except BaseException:
            self.end(None)
            raise

    def end(self, outcome: Outcome | None) -> None:
        """Let the loggers end."""
        begun, self._begun = self._begun, []
        for logger in begun:
            try:
                logger._end()
            except Exception:
                _log.exception("%s raised at the end of the run", _name_of(logger))

    def _show(self, port: Port, item: Any, time: int) -> None:
        described, loggers = self._shown[port]
        acq_timestamp = metadata = stream = None
        if type(item) is Envelope:
            acq_timestamp, metadata = item.acq_timestamp, item.metadata
            stream = None if item.fences is None else item.fences.stream.handle
        for logger in tuple(loggers):
            entry = _Entry(
                port.operator,
                described.name,
                _OUTPUT if described.is_output else _INPUT,
                logger._now(),
                acq_timestamp,
                metadata,
                stream,
            )
            try:
                logger._take(entry, item)
            except QueueFullError:
                raise
            except Exception:
                _log.exception("%s raised for %s, and logs no more", _name_of(logger), described.name)
                for _, others in self._shown.values():
                    if logger in others:
                        others.remove(logger)


def _logs(logger: DataLogger, port: RecordedPort) -> bool:
    return (logger.should_log_output if port.is_output else logger.should_log_input)(port.name)


def check_data_logger(fragment: Composition, logger: Any) -> None:
    """Raise if an object is not a data logger."""
    if not isinstance(logger, DataLogger):
        is_class = isinstance(logger, type) and issubclass(logger, DataLogger)
        hint = f"; create one first: {logger.__name__}(self)" if is_class else ""
        raise TypeError(f"add_data_logger takes a headrace.observe.DataLogger, not {logger!r}{hint}")


def _name_of(logger: DataLogger) -> str:
    return repr(getattr(logger, "name", type(logger).__name__))


def _patterns(given: Sequence[str], what: str) -> list[re.Pattern[str]]:
    found = []
    for pattern in [given] if isinstance(given, str) else given:
        try:
            found.append(re.compile(pattern))
        except re.error as error:
            raise ValueError(f"{what}: {pattern!r} is not a regular expression ({error})") from error
    return found
