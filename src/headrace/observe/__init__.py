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
    from headrace.observe.dashboard.dashboard import Dashboard
    from headrace.observe.events.records import (
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
    from headrace.observe.events.watchers import Watcher
    from headrace.observe.figures.breakdown import Breakdown, Part
    from headrace.observe.figures.data_flow_tracker import DataFlowMetric, DataFlowTracker, Tracker
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.goals import Goal, Miss
    from headrace.observe.figures.statistics import (
        OperatorStatistics,
        PathStatistics,
        QueueStatistics,
        SegmentStatistics,
        SliceStatistics,
        Statistics,
        WorkersStatistics,
    )
    from headrace.observe.loggers.arrow_logger import ArrowLogger
    from headrace.observe.loggers.console_loggers import (
        AsyncConsoleLogger,
        BasicConsoleLogger,
        GXFConsoleLogger,
    )
    from headrace.observe.loggers.data_loggers import (
        AsyncDataLoggerResource,
        AsyncQueuePolicy,
        DataLogger,
        DataLoggerQueueType,
        DataLoggerResource,
        QueueFullError,
    )
    from headrace.observe.loggers.rerun_logger import RerunLogger
    from headrace.observe.loggers.text_serializer import SimpleTextSerializer
    from headrace.observe.recordings.carriers import (
        Carrier,
        MessageSource,
        RecordedMessage,
        RecordedPort,
        RecordedRun,
        RecordingError,
    )
    from headrace.observe.recordings.payloads import PayloadError, decode, encode
    from headrace.observe.recordings.port_recorder import PortRecorder
    from headrace.observe.recordings.recording import Recording
    from headrace.observe.recordings.replaying import replay
    from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
    from headrace.observe.traces.nvtx_ranges import NvtxRanges
    from headrace.observe.traces.otel_spans import OtelSpans
    from headrace.observe.traces.trace_reader import TraceError
    from headrace.observe.traces.trace_shares import Shares
    from headrace.observe.traces.trace_summary import PathSummary, TraceSummary, summarize_trace
    from headrace.observe.traces.trace_writer import TraceWriter

__all__ = [
    "Arrivals",
    "ArrowLogger",
    "AsyncConsoleLogger",
    "AsyncDataLoggerResource",
    "AsyncQueuePolicy",
    "BasicConsoleLogger",
    "Breakdown",
    "Carrier",
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
    "MessageSource",
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
    "RecordedRun",
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
    "decode",
    "encode",
    "replay",
    "summarize_trace",
    "watch",
]

_MODULES = {
    "Arrivals": "events.records",
    "ArrowLogger": "loggers.arrow_logger",
    "AsyncConsoleLogger": "loggers.console_loggers",
    "AsyncDataLoggerResource": "loggers.data_loggers",
    "AsyncQueuePolicy": "loggers.data_loggers",
    "BasicConsoleLogger": "loggers.console_loggers",
    "Breakdown": "figures.breakdown",
    "Carrier": "recordings.carriers",
    "Computes": "events.records",
    "Dashboard": "dashboard.dashboard",
    "DataFlowMetric": "figures.data_flow_tracker",
    "DataFlowTracker": "figures.data_flow_tracker",
    "DataLogger": "loggers.data_loggers",
    "DataLoggerQueueType": "loggers.data_loggers",
    "DataLoggerResource": "loggers.data_loggers",
    "Discards": "events.records",
    "Emissions": "events.records",
    "Flows": "events.records",
    "GXFConsoleLogger": "loggers.console_loggers",
    "Goal": "figures.goals",
    "GpuWork": "events.records",
    "MessageSource": "recordings.carriers",
    "Miss": "figures.goals",
    "NvtxRanges": "traces.nvtx_ranges",
    "OperatorInfo": "events.records",
    "OperatorStatistics": "figures.statistics",
    "OtelSpans": "traces.otel_spans",
    "OutputInfo": "events.records",
    "Part": "figures.breakdown",
    "Path": "events.records",
    "PathStatistics": "figures.statistics",
    "PathSummary": "traces.trace_summary",
    "PayloadError": "recordings.payloads",
    "PortRecorder": "recordings.port_recorder",
    "QueueFullError": "loggers.data_loggers",
    "QueueInfo": "events.records",
    "QueueStatistics": "figures.statistics",
    "RecordedMessage": "recordings.carriers",
    "RecordedPort": "recordings.carriers",
    "RecordedRun": "recordings.carriers",
    "Recording": "recordings.recording",
    "RecordingError": "recordings.carriers",
    "RerunLogger": "loggers.rerun_logger",
    "RunInfo": "events.records",
    "SegmentInfo": "events.records",
    "SegmentStatistics": "figures.statistics",
    "Shares": "traces.trace_shares",
    "SimpleTextSerializer": "loggers.text_serializer",
    "SliceStatistics": "figures.statistics",
    "Statistics": "figures.statistics",
    "StreamInfo": "events.records",
    "Summary": "figures.distribution",
    "TensorCopy": "recordings.snapshots",
    "TensorMapCopy": "recordings.snapshots",
    "TraceError": "traces.trace_reader",
    "TraceSummary": "traces.trace_summary",
    "TraceWriter": "traces.trace_writer",
    "Tracker": "figures.data_flow_tracker",
    "Watcher": "events.watchers",
    "WorkersInfo": "events.records",
    "WorkersStatistics": "figures.statistics",
    "decode": "recordings.payloads",
    "encode": "recordings.payloads",
    "replay": "recordings.replaying",
    "summarize_trace": "traces.trace_summary",
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
        from headrace.observe.loggers.data_loggers import DataLogging

        watchers.append(DataLogging(loggers))
    if not watchers:
        return None
    from headrace.observe.events.observation import Observation

    return Observation(fragment, watchers, left_out=left_out)


def _track(fragment: Fragment, **options: Any) -> DataFlowTracker:
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker

    tracker = DataFlowTracker(**options)
    tracker.attach(fragment)
    return tracker


def _tracker_of(fragment: Fragment) -> DataFlowTracker | None:
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker

    return next((watcher for watcher in fragment._watchers if isinstance(watcher, DataFlowTracker)), None)


def _expect(fragment: Fragment, path: str, on_miss: Any, bounds: dict[str, Any]) -> Goal:
    from headrace.observe.figures.goals import Goal, GoalsWatcher

    goal = Goal(path, bounds, on_miss)
    watcher = next((watcher for watcher in fragment._watchers if isinstance(watcher, GoalsWatcher)), None)
    if watcher is None:
        watcher = GoalsWatcher()
        fragment._watchers.insert(0, watcher)  # it judges the goals at the end, before others show them
    watcher.goals = [other for other in watcher.goals if other.path != path]
    watcher.goals.append(goal)
    return goal


def _check_data_logger(fragment: Fragment, logger: Any) -> None:
    from headrace.observe.loggers.data_loggers import check_data_logger

    check_data_logger(fragment, logger)


def _latency(fragment: Fragment) -> float | None:
    """Return the mean latency of the slowest path so far, if the run is tracked."""
    from headrace.observe.figures.statistics import StatisticsWatcher

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
