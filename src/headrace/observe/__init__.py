"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.observe.attachment import watch
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
    from headrace.observe.figures.critical_path import Breakdown, Part
    from headrace.observe.figures.data_flow_tracker import DataFlowMetric, DataFlowTracker, Tracker
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.goals import Goal, Miss
    from headrace.observe.figures.prometheus import prometheus_collector
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
    "prometheus_collector",
    "replay",
    "summarize_trace",
    "watch",
]

# By module.
_NAMES = {
    "attachment": "watch",
    "dashboard.dashboard": "Dashboard",
    "events.records": (
        "Arrivals Computes Discards Emissions Flows GpuWork OperatorInfo OutputInfo Path QueueInfo "
        "RunInfo SegmentInfo StreamInfo WorkersInfo"
    ),
    "events.watchers": "Watcher",
    "figures.critical_path": "Breakdown Part",
    "figures.data_flow_tracker": "DataFlowMetric DataFlowTracker Tracker",
    "figures.distribution": "Summary",
    "figures.goals": "Goal Miss",
    "figures.prometheus": "prometheus_collector",
    "figures.statistics": (
        "OperatorStatistics PathStatistics QueueStatistics SegmentStatistics SliceStatistics "
        "Statistics WorkersStatistics"
    ),
    "loggers.arrow_logger": "ArrowLogger",
    "loggers.console_loggers": "AsyncConsoleLogger BasicConsoleLogger GXFConsoleLogger",
    "loggers.data_loggers": (
        "AsyncDataLoggerResource AsyncQueuePolicy DataLogger DataLoggerQueueType DataLoggerResource "
        "QueueFullError"
    ),
    "loggers.rerun_logger": "RerunLogger",
    "loggers.text_serializer": "SimpleTextSerializer",
    "recordings.carriers": ("Carrier MessageSource RecordedMessage RecordedPort RecordedRun RecordingError"),
    "recordings.payloads": "PayloadError decode encode",
    "recordings.port_recorder": "PortRecorder",
    "recordings.recording": "Recording",
    "recordings.replaying": "replay",
    "recordings.snapshots": "TensorCopy TensorMapCopy",
    "traces.nvtx_ranges": "NvtxRanges",
    "traces.otel_spans": "OtelSpans",
    "traces.trace_reader": "TraceError",
    "traces.trace_shares": "Shares",
    "traces.trace_summary": "PathSummary TraceSummary summarize_trace",
    "traces.trace_writer": "TraceWriter",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    _modules = {name: module for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __dir__ = lazy_names(globals(), _modules)
