"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.core.registry import registry
from headrace.lazy import lazy_names
from headrace.observe.environment import asked_for, replay_from_environment, watchers_from_environment

if TYPE_CHECKING:
    from headrace.core.fragment import Fragment
    from headrace.core.protocols import Observer
    from headrace.observe.arrow_logger import ArrowLogger
    from headrace.observe.breakdown import Breakdown, Part
    from headrace.observe.console_loggers import AsyncConsoleLogger, BasicConsoleLogger, GXFConsoleLogger
    from headrace.observe.dashboard import Dashboard
    from headrace.observe.data_flow_tracker import DataFlowMetric, DataFlowTracker, Tracker
    from headrace.observe.data_loggers import (
        AsyncDataLoggerResource,
        AsyncQueuePolicy,
        DataLogger,
        DataLoggerQueueType,
        DataLoggerResource,
        QueueFullError,
    )
    from headrace.observe.distribution import Summary
    from headrace.observe.goals import Goal, Miss
    from headrace.observe.nvtx_ranges import NvtxRanges
    from headrace.observe.otel_spans import OtelSpans
    from headrace.observe.payloads import PayloadError
    from headrace.observe.port_recorder import PortRecorder
    from headrace.observe.recordings import RecordedMessage, RecordedPort, Recording, RecordingError
    from headrace.observe.records import (
        Arrivals,
        Computes,
        Discards,
        Emissions,
        Flows,
        GpuWork,
        OperatorInfo,
        OutputInfo,
        Path,
        QueueInfo,
        RunInfo,
        SegmentInfo,
        StreamInfo,
        WorkersInfo,
    )
    from headrace.observe.replaying import replay
    from headrace.observe.rerun_logger import RerunLogger
    from headrace.observe.snapshots import TensorCopy, TensorMapCopy
    from headrace.observe.statistics import (
        OperatorStatistics,
        PathStatistics,
        QueueStatistics,
        SegmentStatistics,
        SliceStatistics,
        Statistics,
        WorkersStatistics,
    )
    from headrace.observe.text_serializer import SimpleTextSerializer
    from headrace.observe.trace_reader import TraceError
    from headrace.observe.trace_shares import Shares
    from headrace.observe.trace_summary import PathSummary, TraceSummary, summarize_trace
    from headrace.observe.trace_writer import TraceWriter
    from headrace.observe.watchers import Watcher

__all__ = [
    "Arrivals",
    "ArrowLogger",
    "AsyncConsoleLogger",
    "AsyncDataLoggerResource",
    "AsyncQueuePolicy",
    "BasicConsoleLogger",
    "Breakdown",
    "Computes",
    "Dashboard",
    "DataFlowMetric",
    "DataFlowTracker",
    "DataLogger",
    "DataLoggerQueueType",
    "DataLoggerResource",
    "Discards",
    "Emissions",
    "Flows",
    "GXFConsoleLogger",
    "Goal",
    "GpuWork",
    "Miss",
    "NvtxRanges",
    "OperatorInfo",
    "OperatorStatistics",
    "OtelSpans",
    "OutputInfo",
    "Part",
    "Path",
    "PathStatistics",
    "PathSummary",
    "PayloadError",
    "PortRecorder",
    "QueueFullError",
    "QueueInfo",
    "QueueStatistics",
    "RecordedMessage",
    "RecordedPort",
    "Recording",
    "RecordingError",
    "RerunLogger",
    "RunInfo",
    "SegmentInfo",
    "SegmentStatistics",
    "Shares",
    "SimpleTextSerializer",
    "SliceStatistics",
    "Statistics",
    "StreamInfo",
    "Summary",
    "TensorCopy",
    "TensorMapCopy",
    "TraceError",
    "TraceSummary",
    "TraceWriter",
    "Tracker",
    "Watcher",
    "WorkersInfo",
    "WorkersStatistics",
    "replay",
    "summarize_trace",
    "watch",
]

_MODULES = {
    "Arrivals": "records",
    "ArrowLogger": "arrow_logger",
    "AsyncConsoleLogger": "console_loggers",
    "AsyncDataLoggerResource": "data_loggers",
    "AsyncQueuePolicy": "data_loggers",
    "BasicConsoleLogger": "console_loggers",
    "Breakdown": "breakdown",
    "Computes": "records",
    "Dashboard": "dashboard",
    "DataFlowMetric": "data_flow_tracker",
    "DataFlowTracker": "data_flow_tracker",
    "DataLogger": "data_loggers",
    "DataLoggerQueueType": "data_loggers",
    "DataLoggerResource": "data_loggers",
    "Discards": "records",
    "Emissions": "records",
    "Flows": "records",
    "GXFConsoleLogger": "console_loggers",
    "Goal": "goals",
    "GpuWork": "records",
    "Miss": "goals",
    "NvtxRanges": "nvtx_ranges",
    "OperatorInfo": "records",
    "OperatorStatistics": "statistics",
    "OtelSpans": "otel_spans",
    "OutputInfo": "records",
    "Part": "breakdown",
    "Path": "records",
    "PathStatistics": "statistics",
    "PathSummary": "trace_summary",
    "PayloadError": "payloads",
    "PortRecorder": "port_recorder",
    "QueueFullError": "data_loggers",
    "QueueInfo": "records",
    "QueueStatistics": "statistics",
    "RecordedMessage": "recordings",
    "RecordedPort": "recordings",
    "Recording": "recordings",
    "RecordingError": "recordings",
    "RerunLogger": "rerun_logger",
    "RunInfo": "records",
    "SegmentInfo": "records",
    "SegmentStatistics": "statistics",
    "Shares": "trace_shares",
    "SimpleTextSerializer": "text_serializer",
    "SliceStatistics": "statistics",
    "Statistics": "statistics",
    "StreamInfo": "records",
    "Summary": "distribution",
    "TensorCopy": "snapshots",
    "TensorMapCopy": "snapshots",
    "TraceError": "trace_reader",
    "TraceSummary": "trace_summary",
    "TraceWriter": "trace_writer",
    "Tracker": "data_flow_tracker",
    "Watcher": "watchers",
    "WorkersInfo": "records",
    "WorkersStatistics": "statistics",
    "replay": "replaying",
    "summarize_trace": "trace_summary",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)


def watch(fragment: Fragment, watcher: Watcher) -> None:
    """Show every later run of a fragment to a watcher."""
    if watcher not in fragment._watchers:
        fragment._watchers.append(watcher)


def _observe(fragment: Fragment) -> Observer | None:
    replay = fragment._replay or replay_from_environment()
    left_out = replay.prepare(fragment) if replay is not None else set()
    loggers = fragment.data_loggers
    if not fragment._watchers and not loggers and not asked_for():
        return None
    watchers = [*fragment._watchers, *watchers_from_environment()]
    if loggers:
        from headrace.observe.data_loggers import DataLogging

        watchers.append(DataLogging(loggers))
    if not watchers:
        return None
    from headrace.observe.observation import Observation

    return Observation(fragment, watchers, left_out=left_out)


def _track(fragment: Fragment, **options: Any) -> DataFlowTracker:
    from headrace.observe.data_flow_tracker import DataFlowTracker

    tracker = DataFlowTracker(**options)
    tracker.attach(fragment)
    return tracker


def _tracker_of(fragment: Fragment) -> DataFlowTracker | None:
    from headrace.observe.data_flow_tracker import DataFlowTracker

    return next((watcher for watcher in fragment._watchers if isinstance(watcher, DataFlowTracker)), None)


def _expect(fragment: Fragment, path: str, on_miss: Any, bounds: dict[str, Any]) -> Goal:
    from headrace.observe.goals import Goal, GoalsWatcher

    goal = Goal(path, bounds, on_miss)
    watcher = next((watcher for watcher in fragment._watchers if isinstance(watcher, GoalsWatcher)), None)
    if watcher is None:
        watcher = GoalsWatcher()
        fragment._watchers.insert(0, watcher)  # it judges the goals at the end, before others show them
    watcher.goals = [other for other in watcher.goals if other.path != path]
    watcher.goals.append(goal)
    return goal


def _check_data_logger(fragment: Fragment, logger: Any) -> None:
    from headrace.observe.data_loggers import check_data_logger

    check_data_logger(fragment, logger)


def _latency(fragment: Fragment) -> float | None:
    """Return the mean latency of the slowest path so far, if the run is tracked."""
    from headrace.observe.statistics import StatisticsWatcher

    watchers = getattr(getattr(fragment._engine, "observer", None), "watchers", ())
    tracked = next((watcher for watcher in watchers if isinstance(watcher, StatisticsWatcher)), None)
    if tracked is None:
        return None
    return max((path.latency.mean / 1e9 for path in tracked.snapshot().paths), default=None)


registry.observe = _observe
registry.latency = _latency
registry.check_data_logger = _check_data_logger
registry.track = _track
registry.tracker_of = _tracker_of
registry.expect = _expect
