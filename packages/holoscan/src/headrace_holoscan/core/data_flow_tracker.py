"""DataFlowTracker: how long messages take from the sources to the sinks, with the calls and the file of the SDK.

A message's time ends when the work of the last operator is complete on the device, not when its `compute` returns.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from headrace.observe import NvtxRanges, Report, Tracker, Watcher, watch
from headrace.vocabulary import choices, flag, numbered, value_of, whole_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.core import Outcome
    from headrace.observe import Flows, Path, RunInfo

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


class DataFlowTracker(Tracker):
    """Tracks the messages of a fragment's runs; made by `Fragment.track`.

    `statistics` counts all messages; `get_metric` and `print` leave out what the parameters say.

    Parameters
    ----------
    num_start_messages_to_skip, num_last_messages_to_discard
        The number of messages that do not count at the beginning and at the end of each path.
    latency_threshold
        Messages that took less than this many milliseconds do not count.
    is_limited_tracking
        Whether a path consists of its first and its last operator only.
    kernels
        As in `Tracker`.
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
        super().__init__(kernels=kernels)
        self._lock = threading.RLock()  # reentrant, as that of the figures
        self._skip = whole_number(num_start_messages_to_skip, "num_start_messages_to_skip", 0)
        self._discard = whole_number(num_last_messages_to_discard, "num_last_messages_to_discard", 0)
        self._threshold = float(latency_threshold)
        self._is_limited = is_limited_tracking
        self._probes: set[str] = set()
        self._flow_log: FlowLog | None = None
        self._counts: dict[str, _PathCounts] = {}

    # As a watcher.

    def begin(self, run: RunInfo) -> None:
        """Begin anew."""
        self._counts, self._epoch = {}, run.epoch
        for name in self._probes:
            try:
                run.operator(name).is_probe = True
            except KeyError:
                names = choices([operator.name for operator in run.operators], name)
                _log.error("there is no operator %r to probe; there are %s", name, names)

    def flowed(self, flows: list[Flows]) -> None:
        """Count messages that reached the end of their paths."""
        with self._lock:
            for each in flows:
                name = self._name(each.path)
                if name not in self._counts:
                    self._counts[name] = _PathCounts(self._skip, self._discard, self._threshold)
                latencies = (each.done - each.times[:, 0]) / 1e6
                self._counts[name].add(np.where(each.is_timed, latencies, np.nan))
                if self._flow_log is not None:
                    self._flow_log.add(each, self._epoch)

    def resolved(self, is_last: bool = False) -> None:
        """Write to the log file what is complete."""
        with self._lock:
            if self._flow_log is not None:
                self._flow_log.write(is_last)

    def end(self, outcome: Outcome | None) -> None:
        """End; the figures stay."""
        self.resolved(is_last=True)

    def _name(self, path: Path) -> str:
        operators = path.without_links.operators
        if self._is_limited and len(operators) > 2:
            operators = (operators[0], operators[-1])
        return ",".join(operator.name for operator in operators)

    # Figures.

    def get_num_paths(self) -> int:
        """Return the number of paths on which messages came."""
        return len(self.get_path_strings())

    def get_path_strings(self) -> list[str]:
        """Return the paths, each as the names of its operators joined by ``","``."""
        self.catch_up()
        with self._lock:
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
        if isinstance(pathstring, DataFlowMetric):
            pathstring, metric = None, pathstring
        is_of_sources = metric == DataFlowMetric.NUM_SRC_MESSAGES
        if pathstring is None and is_of_sources:
            return self._source_messages()
        if pathstring is None:
            _log.error("get_metric: %s needs a path", DataFlowMetric(metric).name)
            return {}
        if is_of_sources:
            _log.error(
                "get_metric: NUM_SRC_MESSAGES is counted for sources, not for paths; call it without a path"
            )
            return -1.0
        paths = self.get_path_strings()
        if pathstring not in paths:
            _log.error(
                "get_metric: there is no path %r; there are %s", pathstring, choices(paths, pathstring)
            )
            return -1.0
        with self._lock:
            return float(self._counts[pathstring].figures[DataFlowMetric(metric)])

    def _source_messages(self) -> dict[str, int]:
        outputs = [(name.rpartition("."), count) for name, count in self.statistics.sources.items()]
        return {f"{operator}->{port}": count for (operator, _, port), count in outputs}

    def print(self) -> None:
        """Print the figures of all paths."""
        self.catch_up()
        with self._lock:
            lines = ["Data Flow Tracking Results:", f"Total paths: {len(self._counts)}", ""]
            for number, (path, counts) in enumerate(self._counts.items(), 1):
                lines.append(f"Path {number}: {path}")
                shown = {title: counts.figures[metric] for title, metric in _TITLES.items()}
                lines += [
                    f"{title}: {f'{value:g}' if '(ms)' in title else value}" for title, value in shown.items()
                ]
                lines.append("")
        lines.append(
            "Number of source messages [format: source operator->transmitter name: number of messages]:"
        )
        lines += [f"{name}: {count}" for name, count in self._source_messages().items()]
        print("\n".join(lines))

    # Settings.

    def set_skip_starting_messages(self, num: int) -> None:
        """Set the number of messages that do not count at the beginning of each path."""
        self._skip = whole_number(num, "num", 0)

    def set_discard_last_messages(self, num: int) -> None:
        """Set the number of messages that do not count at the end of each path."""
        self._discard = whole_number(num, "num", 0)

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
        buffered = whole_number(num_buffered_messages, "num_buffered_messages", 0)
        self._flow_log = FlowLog(filename, buffered, self._is_limited)

    def end_logging(self) -> None:
        """Write what is left, and close the file."""
        self.catch_up()
        with self._lock:
            if self._flow_log is not None:
                self._flow_log.close()
                self._flow_log = None

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.end_logging()


_TITLES = {
    "Number of messages": DataFlowMetric.NUM_DST_MESSAGES,
    "Min Latency Message No": DataFlowMetric.MIN_MESSAGE_ID,
    "Min end-to-end Latency (ms)": DataFlowMetric.MIN_E2E_LATENCY,
    "Avg end-to-end Latency (ms)": DataFlowMetric.AVG_E2E_LATENCY,
    "Max Latency Message No": DataFlowMetric.MAX_MESSAGE_ID,
    "Max end-to-end Latency (ms)": DataFlowMetric.MAX_E2E_LATENCY,
}


class _PathCounts:
    """The latencies of one path that count, in milliseconds; not a number if the end was not timed."""

    def __init__(self, skip: int, discard: int, threshold: float) -> None:
        self._skip, self._discard, self._threshold = skip, discard, threshold
        # The latencies that would be discarded if no more came.
        self._last = np.zeros(0)
        self._timed = 0
        self._total = 0.0
        self.figures: dict[DataFlowMetric, float] = dict.fromkeys(_TITLES.values(), 0)
        self.figures[DataFlowMetric.MIN_MESSAGE_ID] = self.figures[DataFlowMetric.MAX_MESSAGE_ID] = -1

    def add(self, latencies: NDArray[np.float64]) -> None:
        skipped = min(self._skip, len(latencies))
        self._skip -= skipped
        latencies = np.concatenate((self._last, latencies[skipped:]))
        kept = max(len(latencies) - self._discard, 0)
        latencies, self._last = latencies[:kept], latencies[kept:]
        latencies = latencies[~(latencies < self._threshold)]
        figures, count = self.figures, self.figures[DataFlowMetric.NUM_DST_MESSAGES]
        if not np.isnan(latencies).all():
            for choose, value, number in (
                (np.nanargmin, DataFlowMetric.MIN_E2E_LATENCY, DataFlowMetric.MIN_MESSAGE_ID),
                (np.nanargmax, DataFlowMetric.MAX_E2E_LATENCY, DataFlowMetric.MAX_MESSAGE_ID),
            ):
                at = int(choose(latencies))
                if not self._timed or choose([figures[value], latencies[at]]):
                    figures[value], figures[number] = float(latencies[at]), count + at + 1
            self._timed += int((~np.isnan(latencies)).sum())
            self._total += float(np.nansum(latencies))
            figures[DataFlowMetric.AVG_E2E_LATENCY] = self._total / self._timed
        figures[DataFlowMetric.NUM_DST_MESSAGES] += len(latencies)


class FlowLog:
    """Writes the times of every message to a file that the analysis tools of the Holoscan SDK read.

    Each group begins with its number, one group for each compute of a sink. Each line of it is a way on which the
    compute's messages came: for each operator its name, when it received and when it emitted, in microseconds since
    the epoch. The last operator emits when its work is complete on the device. What comes after the end of the file
    is not written. It is not locked, so its user serializes the calls.

    Parameters
    ----------
    filename
        The file; it is created anew.
    buffered
        The number of groups that are written at once.
    is_limited
        Whether a line has the first and the last operator only.
    """

    def __init__(self, filename: str | os.PathLike[str], buffered: int, is_limited: bool = False) -> None:
        self._file = open(filename, "w", encoding="utf-8")  # noqa: SIM115 (open until `close`)
        self._buffered = max(buffered, 1)
        self._is_limited = is_limited
        self._count = 0
        self._waiting: list[str] = []
        # The lines of each compute of a sink, by the time of its end.
        self._groups: defaultdict[tuple[int, int, int], list[str]] = defaultdict(list)

    def add(self, flows: Flows, epoch: int) -> None:
        """Add messages that reached the end of their path; `epoch` is the time since the epoch at time 0."""
        operators = flows.path.operators
        places = [0, len(operators) - 1] if self._is_limited and len(operators) > 2 else range(len(operators))
        times = (flows.times + epoch) // 1000
        for compute, done, row in zip(
            flows.compute.tolist(), flows.done.tolist(), times.tolist(), strict=True
        ):
            entries = [f"({operators[at].name},{row[2 * at]},{row[2 * at + 1]})" for at in places]
            self._groups[done, operators[-1].index, compute].append(" -> ".join(entries) + " \n")

    def write(self, is_last: bool = False) -> None:
        """Write the groups, if there are many or they are the last ones; they are complete after a round."""
        for key in sorted(self._groups):
            self._count += 1
            self._waiting.append(f"{self._count}:\n{''.join(self._groups[key])}\n")
        self._groups.clear()
        if (is_last or len(self._waiting) >= self._buffered) and not self._file.closed:
            self._file.writelines(self._waiting)
            self._file.flush()
            self._waiting.clear()

    def close(self) -> None:
        """Write everything, and close the file."""
        self.write(is_last=True)
        self._file.close()


class FlowLogFile(Watcher):
    """Writes the log file of each run that ``HOLOSCAN_FLOW_TRACKING_LOG_FILE`` asks for."""

    spans_parts = True

    def begin(self, run: RunInfo) -> None:
        """Begin a file."""
        self._epoch = run.epoch
        self._log = FlowLog(_file_of_run(os.environ[LOG_FILE]), 100)

    def flowed(self, flows: list[Flows]) -> None:
        """Note messages that reached the end of their paths."""
        for each in flows:
            self._log.add(each, self._epoch)

    def resolved(self) -> None:
        """Write what is complete."""
        self._log.write()

    def end(self, outcome: Outcome | None) -> None:
        """Write the rest."""
        self._log.close()


class JobStatistics(Report):
    """Reports the statistics of each run that ``HOLOSCAN_ENABLE_GXF_JOB_STATISTICS`` asks for."""

    def begin(self, run: RunInfo) -> None:
        """Begin a file, if there is to be one."""
        path = os.environ.get(STATISTICS_PATH)
        self.path = _file_of_run(path) if path else None
        super().begin(run)


class Profile(NvtxRanges):
    """Marks the computes of each run that ``HOLOSCAN_ENABLE_PROFILE`` asks for."""


LOG_FILE = "HOLOSCAN_FLOW_TRACKING_LOG_FILE"
STATISTICS = "HOLOSCAN_ENABLE_GXF_JOB_STATISTICS"
STATISTICS_PATH = "HOLOSCAN_GXF_JOB_STATISTICS_PATH"
PROFILE = "HOLOSCAN_ENABLE_PROFILE"
# The numbers of a program's runs, by file: it may run several applications, even at the same time.
_runs: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))


def follow_environment(fragment: Any) -> None:
    """Let the next run be watched as the variables of the SDK ask for; those of headrace win over them."""
    wanted = {
        FlowLogFile: bool(os.environ.get(LOG_FILE)),
        JobStatistics: _is_set(STATISTICS) and not os.environ.get("HEADRACE_TRACK"),
        Profile: _is_set(PROFILE) and not os.environ.get("HEADRACE_NVTX"),
    }
    watchers = fragment._headrace.watchers
    watchers[:] = [each for each in watchers if not isinstance(each, tuple(wanted))]
    for kind, is_wanted in wanted.items():
        if is_wanted:
            watch(fragment, kind())


def _is_set(variable: str) -> bool:
    return bool(value_of(os.environ, flag, variable))


def _file_of_run(filename: str) -> FilePath:
    """Return the file of the next run: later ones have a number in their names."""
    return numbered(FilePath(filename), next(_runs[filename]))
