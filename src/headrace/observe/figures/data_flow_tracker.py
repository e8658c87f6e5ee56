"""DataFlowTracker: how long messages take from the sources to the sinks, with the calls of the Holoscan SDK.

A message's time ends when the work of the last operator is complete on the device, not when its `compute` returns.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from headrace.core.errors import choices
from headrace.observe.figures.flow_log import FlowLog
from headrace.observe.figures.statistics import Statistics
from headrace.observe.figures.statistics_watcher import StatisticsWatcher

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import Flows, Path, RunInfo

_log = logging.getLogger("headrace.observe")


class DataFlowMetric(IntEnum):
    """A figure that `DataFlowTracker.get_metric` returns; latencies are in milliseconds."""

    MAX_MESSAGE_ID = 0
    """The number of the message with the largest latency, from 1."""
    MIN_MESSAGE_ID = 1
    """The number of the message with the smallest latency, from 1."""
    MAX_E2E_LATENCY = 2
    AVG_E2E_LATENCY = 3
    MIN_E2E_LATENCY = 4
    NUM_SRC_MESSAGES = 5
    """The number of messages that each output of each source emitted."""
    NUM_DST_MESSAGES = 6
    """The number of messages that reached the end of the path and count."""


class DataFlowTracker(StatisticsWatcher):
    """Tracks the messages of a fragment's runs; made by `Fragment.track`.

    In a ``with`` block, it tracks the runs that begin in the block. Its figures are then those of the last of them,
    whatever runs later.

    Every message that arrives at a sink counts, once for each way on which it came. `statistics` counts them all;
    `get_metric` and `print` leave out what the parameters say.

    Parameters
    ----------
    num_start_messages_to_skip, num_last_messages_to_discard
        The number of messages that do not count at the beginning and at the end of each path.
    latency_threshold
        Messages that took less than this many milliseconds do not count.
    is_limited_tracking
        Whether a path consists of its first and its last operator only.
    kernels
        Whether the kernels and copies of each compute are timed by themselves (`OperatorStatistics.kernels`), if
        the package ``cupti-python`` is installed. This slows down every launch.
    """

    def __init__(
        self,
        num_start_messages_to_skip: int = 10,
        num_last_messages_to_discard: int = 10,
        latency_threshold: float = 0,
        is_limited_tracking: bool = False,
        *,
        kernels: bool = False,
    ) -> None:
        super().__init__()
        self.wants_kernels = kernels
        self._skip = _whole(num_start_messages_to_skip, "num_start_messages_to_skip")
        self._discard = _whole(num_last_messages_to_discard, "num_last_messages_to_discard")
        self._threshold = float(latency_threshold)
        self._is_limited = is_limited_tracking
        self._probes: set[str] = set()
        self._flow_log: FlowLog | None = None
        self._counts: dict[str, _PathCounts] = {}
        self._counting = threading.RLock()  # reentrant, as that of the statistics
        self._fragment: weakref.ref[Composition] | None = None

    def attach(self, fragment: Composition) -> None:
        """Track every later run of a fragment, in place of the tracker that it has."""
        self._fragment = weakref.ref(fragment)
        others = [other for other in fragment._watchers if not isinstance(other, DataFlowTracker)]
        fragment._watchers = [*others, self]

    def detach(self) -> None:
        """Track no later run; one that has begun is tracked to its end."""
        fragment = None if self._fragment is None else self._fragment()
        if fragment is not None:
            fragment._watchers = [other for other in fragment._watchers if other is not self]

    # As a watcher.

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        super().begin(run)
        with self._counting:
            self._counts = {}
        for name in self._probes:
            try:
                run.operator(name).is_probe = True
            except KeyError:
                names = choices([operator.name for operator in run.operators], name)
                _log.error("there is no operator %r to probe; there are %s", name, names)
        if self._flow_log is not None:
            self._flow_log.begin(run)

    def flowed(self, flows: list[Flows]) -> None:
        """Count messages that reached the end of their paths."""
        super().flowed(flows)
        with self._counting:
            for each in flows:
                name = self._name(each.path)
                if name not in self._counts:
                    self._counts[name] = _PathCounts(self._skip, self._discard, self._threshold)
                counts = self._counts[name]
                latencies = (each.done - each.times[:, 0]) / 1e6
                counts.add(np.where(each.is_timed, latencies, np.nan))
        log = self._flow_log  # another thread may end the logging
        if log is not None:
            log.add(flows, self._is_limited)

    def resolved(self) -> None:
        """Write to the log file what is complete."""
        log = self._flow_log  # another thread may end the logging
        if log is not None:
            log.write()

    def end(self, outcome: Outcome | None) -> None:
        """End; the figures stay."""
        super().end(outcome)
        log = self._flow_log  # another thread may end the logging
        if log is not None:
            log.flush()

    def _name(self, path: Path) -> str:
        operators = path.operators
        if self._is_limited and len(operators) > 2:
            operators = (operators[0], operators[-1])
        return ",".join(operator.name for operator in operators)

    # Figures.

    @property
    def statistics(self) -> Statistics:
        """All figures so far: of operators, queues and paths."""
        return self.snapshot()

    def get_num_paths(self) -> int:
        """Return the number of paths on which messages came."""
        return len(self.get_path_strings())

    def get_path_strings(self) -> list[str]:
        """Return the paths, each as the names of its operators joined by ``","``."""
        self.catch_up()
        with self._counting:
            return list(self._counts)

    @overload
    def get_metric(self, *, metric: DataFlowMetric = ...) -> dict[str, int]: ...
    @overload
    def get_metric(self, pathstring: str, metric: DataFlowMetric) -> float: ...
    @overload
    def get_metric(self, pathstring: DataFlowMetric) -> dict[str, int]: ...
    def get_metric(
        self, pathstring: Any = None, metric: DataFlowMetric = DataFlowMetric.NUM_SRC_MESSAGES
    ) -> float | dict[str, int]:
        """Return a figure of a path; without a path, the number of messages of each source.

        A path or a figure that does not exist is logged, and the result is -1, or an empty dict.
        """
        self.catch_up()
        if isinstance(pathstring, DataFlowMetric):
            pathstring, metric = None, pathstring
        if pathstring is None:
            if metric != DataFlowMetric.NUM_SRC_MESSAGES:
                _log.error("get_metric: %s needs a path", DataFlowMetric(metric).name)
                return {}
            return self._source_messages()
        if metric == DataFlowMetric.NUM_SRC_MESSAGES:
            _log.error(
                "get_metric: NUM_SRC_MESSAGES is counted for sources, not for paths; call it without a path"
            )
            return -1.0
        with self._counting:
            counts = self._counts.get(pathstring)
            if counts is None:
                _log.error(
                    "get_metric: there is no path %r; there are %s",
                    pathstring,
                    choices(list(self._counts), pathstring),
                )
                return -1.0
            return counts.metric(DataFlowMetric(metric))

    def _source_messages(self) -> dict[str, int]:
        run = self._run
        if run is None:
            return {}
        return {
            f"{operator.name}->{output.port}": output.count
            for operator in run.operators
            if operator.is_source
            for output in operator.outputs
        }

    def print(self) -> None:
        """Print the figures of all paths."""
        self.catch_up()
        with self._counting:
            lines = ["Data Flow Tracking Results:", f"Total paths: {len(self._counts)}", ""]
            for number, (path, counts) in enumerate(self._counts.items(), 1):
                lines += [f"Path {number}: {path}", *counts.lines(), ""]
        lines.append(
            "Number of source messages [format: source operator->transmitter name: number of messages]:"
        )
        lines += [f"{name}: {count}" for name, count in self._source_messages().items()]
        print("\n".join(lines))

    # Settings.

    def set_skip_starting_messages(self, num: int) -> None:
        """Set the number of messages that do not count at the beginning of each path."""
        self._skip = _whole(num, "num")

    def set_discard_last_messages(self, num: int) -> None:
        """Set the number of messages that do not count at the end of each path."""
        self._discard = _whole(num, "num")

    def set_skip_latencies(self, threshold: float) -> None:
        """Leave out messages that took less than this many milliseconds."""
        self._threshold = float(threshold)

    def add_probe_operator(self, name: str) -> None:
        """Let paths also end at an operator that is not a sink."""
        self._probes.add(name)

    def enable_logging(
        self, filename: str | os.PathLike[str] = "logger.log", num_buffered_messages: int = 100
    ) -> None:
        """Write the times of every message to a file, in the format of the Holoscan SDK."""
        self.end_logging()
        self._flow_log = FlowLog(filename, _whole(num_buffered_messages, "num_buffered_messages"))
        if self._run is not None:
            self._flow_log.begin(self._run)

    def end_logging(self) -> None:
        """Write what is left, and close the file."""
        if self._flow_log is not None:
            self.catch_up()
            self._flow_log.close()
            self._flow_log = None

    def __enter__(self) -> DataFlowTracker:
        fragment = None if self._fragment is None else self._fragment()
        if fragment is not None:
            self.attach(fragment)  # a second block tracks again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
        self.end_logging()


class _PathCounts:
    """The latencies of one path that count, in milliseconds."""

    __slots__ = (
        "_discard",
        "_last",
        "_skip",
        "_threshold",
        "count",
        "max",
        "max_id",
        "min",
        "min_id",
        "timed",
        "total",
    )

    def __init__(self, skip: int, discard: int, threshold: float) -> None:
        self._skip, self._discard, self._threshold = skip, discard, threshold
        # The latencies that would be discarded if no more came.
        self._last: deque[float] = deque()
        self.count = 0
        # The number of messages whose end was timed.
        self.timed = 0
        self.total = 0.0
        self.min = self.max = 0.0
        self.min_id = self.max_id = -1

    def add(self, latencies: Any) -> None:
        skipped = min(self._skip, len(latencies))
        self._skip -= skipped
        latencies = np.concatenate((np.array(self._last, float), latencies[skipped:]))
        kept = max(len(latencies) - self._discard, 0)
        self._last = deque(latencies[kept:].tolist())
        latencies = latencies[:kept]
        latencies = latencies[~(latencies < self._threshold)]
        is_timed = ~np.isnan(latencies)
        if is_timed.any():
            least, most = int(np.nanargmin(latencies)), int(np.nanargmax(latencies))
            if not self.timed or latencies[least] < self.min:
                self.min, self.min_id = float(latencies[least]), self.count + least + 1
            if not self.timed or latencies[most] > self.max:
                self.max, self.max_id = float(latencies[most]), self.count + most + 1
            self.timed += int(is_timed.sum())
            self.total += float(np.nansum(latencies))
        self.count += len(latencies)

    @property
    def mean(self) -> float:
        return self.total / self.timed if self.timed else 0.0

    def metric(self, metric: DataFlowMetric) -> float:
        return {
            DataFlowMetric.MAX_MESSAGE_ID: self.max_id,
            DataFlowMetric.MIN_MESSAGE_ID: self.min_id,
            DataFlowMetric.MAX_E2E_LATENCY: self.max,
            DataFlowMetric.AVG_E2E_LATENCY: self.mean,
            DataFlowMetric.MIN_E2E_LATENCY: self.min,
            DataFlowMetric.NUM_DST_MESSAGES: self.count,
        }[metric]

    def lines(self) -> list[str]:
        return [
            f"Number of messages: {self.count}",
            f"Min Latency Message No: {self.min_id}",
            f"Min end-to-end Latency (ms): {self.min:g}",
            f"Avg end-to-end Latency (ms): {self.mean:g}",
            f"Max Latency Message No: {self.max_id}",
            f"Max end-to-end Latency (ms): {self.max:g}",
        ]


class Tracker(DataFlowTracker):
    """Tracks an application in a ``with`` block, and writes the log file if there is one.

    Parameters
    ----------
    app
        The application.
    filename
        The log file; none is written unless given.
    num_buffered_messages
        The number of messages that are written at once.
    options
        As in `DataFlowTracker`.
    """

    def __init__(
        self,
        app: Composition,
        *,
        filename: str | os.PathLike[str] | None = None,
        num_buffered_messages: int = 100,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._fragment = weakref.ref(app)
        self._filename, self._buffered = filename, num_buffered_messages

    def __enter__(self) -> DataFlowTracker:
        super().__enter__()
        if self._filename is not None:
            self.enable_logging(self._filename, self._buffered)
        return self


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} must be an int of 0 or more, not {value!r}")
    return value
