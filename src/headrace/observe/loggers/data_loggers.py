"""Data loggers: show the messages of ports to an object of the program.

A logger is called with a copy of each message (`snapshots`), in the order of the messages, on a thread of its own;
the pipeline goes on meanwhile. One that asks for no copies is called on the thread that computes, with the message
itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._runtime import Envelope
from headrace.core.errors import QueueFullError, choices
from headrace.core.values import whole_number
from headrace.observe.recordings.carriers import Port, PortWatcher, RecordedPort, describe, matches, ports_of
from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.snapshots import Snapshot
from headrace.tensor.conversion import is_array

if TYPE_CHECKING:
    from headrace.core.clock import Clock
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import OperatorInfo, RunInfo

_log = logging.getLogger("headrace.data")
_WHEN_FULL = ("wait", "drop", "raise")


class LoggedMessage(NamedTuple):
    """A message that an operator emits or receives, as a logger is shown it.

    Attributes
    ----------
    port
        The output that emits it, or the input that receives it.
    time
        When that happens, by `DataLogger.now`.
    acq_timestamp
        When the data was acquired, in nanoseconds; None if unknown.
    metadata
        What travels with it, or None.
    stream
        The stream that produces the data, or None.
    data
        The message: a copy with a :class:`TensorCopy` for each tensor, or itself.
    """

    port: RecordedPort
    time: int
    acq_timestamp: int | None
    metadata: dict[str, Any] | None
    stream: Any
    data: Any


class DataLogger:
    """The base of data loggers: override `log`.

    With `copies`, tensors come as :class:`TensorCopy`, in host memory. Arrays, tuples, lists and dicts are copies.
    Other objects are the ones of the message: an operator that changes one afterwards changes what is logged.

    Parameters
    ----------
    ports
        Patterns of the ports to log, such as ``"camera.out"``, ``"camera.*"`` or ``"camera"``; all unless given.
    copies
        Whether `log` is called with copies, on a thread of its own. Otherwise it is called on the thread that
        computes, with the message itself, whose device memory may be read in the order of its stream.
    contents
        Whether tensors are copied; otherwise they come as they are, and their contents must not be read.
    max_waiting
        The number of copies that may wait to be logged.
    when_full
        What happens to a message when so many wait: the operator waits for room (``"wait"``), or fails with a
        :class:`headrace.core.QueueFullError` (``"raise"``), or the message is dropped and counted (``"drop"``).
    end_timeout
        For how many seconds the end of a run waits for what is not logged yet; until everything is unless given.
    name
        Its name in the log, and that of its thread; that of its class unless given.

    Attributes
    ----------
    dropped
        The number of messages of the last run that were not logged; a warning reports them.
    run_clock
        The clock of the run; None before the first.
    """

    def __init__(
        self,
        ports: Iterable[str] | str | None = None,
        *,
        copies: bool = True,
        contents: bool = True,
        max_waiting: int = 1_000,
        when_full: str = "wait",
        end_timeout: float | None = None,
        name: str = "",
    ) -> None:
        self.name = name or type(self).__name__
        self.ports = [ports] if isinstance(ports, str) else None if ports is None else list(ports)
        self.copies, self.contents = copies, contents
        self.max_waiting = whole_number(max_waiting, f"{self.name!r}: max_waiting", 1)
        if when_full not in _WHEN_FULL:
            raise ValueError(
                f"{self.name!r}: when_full must be one of {choices(_WHEN_FULL)}, not {when_full!r}"
            )
        self.when_full, self.end_timeout = when_full, end_timeout
        self.dropped = 0
        self.run_clock: Clock | None = None
        self._queue: Delivery | None = None
        self._count_lock = threading.Lock()

    def log(self, message: LoggedMessage) -> object:
        """Log a message. A logger that raises logs no more in the run, which goes on."""
        raise NotImplementedError(f"{type(self).__name__} must override log")

    def wants(self, port: RecordedPort) -> bool:
        """Return whether the messages of a port are logged."""
        patterns = self.ports
        return patterns is None or any(matches(one, port.operator, port.port) for one in patterns)

    def now(self) -> int:
        """Return the time of a message that is emitted or received now, in nanoseconds by the clock of the run."""
        return 0 if self.run_clock is None else int(self.run_clock.timestamp())

    def initialize(self) -> None:
        """Prepare for a run."""

    def release(self) -> None:
        """End with the run."""

    # Called by `DataLogging`.

    def _begin(self, clock: Clock | None) -> None:
        """Begin with a run, before its first message."""
        self.run_clock, self.dropped = clock, 0
        self.initialize()
        if self.copies:
            self._queue = Delivery(
                lambda snapshot, message: self.log(
                    message._replace(data=snapshot.data, metadata=snapshot.metadata)
                ),
                self.name,
            )

    def _end(self) -> None:
        """Log what waits, report what was dropped, and end with the run."""
        queue, self._queue = self._queue, None
        try:
            if queue is not None:
                self.dropped += queue.close(self.end_timeout)
                if queue.error is not None:
                    _log.error("%r failed, and logged no more", self.name, exc_info=queue.error)
            if self.dropped:
                _log.warning(
                    "%r dropped %d messages: it is slower than the pipeline", self.name, self.dropped
                )
        finally:
            self.release()

    def _take(self, operator: OperatorInfo, message: LoggedMessage, item: Any) -> None:
        """Take a message on the thread that computes."""
        queue = self._queue
        if queue is None:
            self.log(message)
            return
        if self.when_full == "wait":
            queue.wait_until(lambda: len(queue) < self.max_waiting)
        if len(queue) >= self.max_waiting or queue.error is not None:
            with self._count_lock:
                self.dropped += 1
            if self.when_full == "raise":
                raise QueueFullError(
                    f"logger {self.name!r} has {self.max_waiting} messages to log, and another comes from "
                    f"{message.port.name!r}; raise max_waiting, or let it drop messages with when_full='drop'"
                )
            return
        snapshot = Snapshot(message.data, metadata=message.metadata)
        if self.contents or not _has_arrays(message.data):
            snapshot = queue.snapshots.take(operator, item, message.port.is_output)
        queue.put(snapshot, message._replace(data=None, metadata=None))


def _has_arrays(data: Any) -> bool:
    """Return whether a message is an array, or a dict, list or tuple with arrays in it."""
    if isinstance(data, dict | list | tuple):
        return any(map(is_array, data.values() if isinstance(data, dict) else data))
    return is_array(data)


class DataLogging(PortWatcher):
    """Shows the messages of a run to data loggers.

    A logger that raises is not called again in the run, and the error is logged; the run goes on. One whose queue
    is full may raise in the operator.
    """

    def __init__(self, loggers: Sequence[DataLogger]) -> None:
        super().__init__()
        self._loggers = list(loggers)
        self._begun: list[DataLogger] = []

    def begin(self, run: RunInfo) -> None:
        """Find the ports that each logger logs."""
        clock = run.operators[0].node.engine.clock if run.operators else None
        ports = {port: describe(port) for port in ports_of(run)}
        is_whole = all(operator.node.beyond is None for operator in run.operators)  # no part of a run
        try:
            for logger in self._loggers:
                logger._begin(clock)
                self._begun.append(logger)
                for pattern in logger.ports or () if is_whole else ():
                    if not any(matches(pattern, one.operator, one.port) for one in ports.values()):
                        _log.warning("%s=%s names no port of the application", logger.name, pattern)
            for port, described in ports.items():
                loggers = [logger for logger in self._loggers if logger.wants(described)]
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
                _log.exception("%r raised at the end of the run", logger.name)

    def _show(self, port: Port, item: Any, time: int) -> None:
        described, loggers = self._shown[port]
        data, acq_timestamp, metadata, stream = item, None, None, None
        if type(item) is Envelope:
            data, acq_timestamp, metadata = item.data, item.acq_timestamp, item.metadata
            stream = None if item.fences is None else item.fences.stream.handle
        for logger in tuple(loggers):
            message = LoggedMessage(described, logger.now(), acq_timestamp, metadata, stream, data)
            try:
                logger._take(port.operator, message, item)
            except QueueFullError:
                raise
            except Exception:
                _log.exception("%r raised for %s, and logs no more", logger.name, described.name)
                for _, others in self._shown.values():
                    if logger in others:
                        others.remove(logger)


def check_data_logger(fragment: Composition, logger: Any) -> None:
    """Raise if an object is not a data logger."""
    if not isinstance(logger, DataLogger):
        is_class = isinstance(logger, type) and issubclass(logger, DataLogger)
        hint = f"; create one first: {logger.__name__}()" if is_class else ""
        raise TypeError(f"add_data_logger takes a headrace.observe.DataLogger, not {logger!r}{hint}")
