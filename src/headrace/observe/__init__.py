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
    from headrace.observe.recordings.payloads import PayloadError
    from headrace.observe.recordings.port_recorder import PortRecorder
    from headrace.observe.recordings.recording import RecordedMessage, RecordedPort, Recording, RecordingError
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
    "Arrivals": "events.records",
    "ArrowLogger": "loggers.arrow_logger",
    "AsyncConsoleLogger": "loggers.console_loggers",
    "AsyncDataLoggerResource": "loggers.data_loggers",
    "AsyncQueuePolicy": "loggers.data_loggers",
    "BasicConsoleLogger": "loggers.console_loggers",
    "Breakdown": "figures.breakdown",
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
    "RecordedMessage": "recordings.recording",
    "RecordedPort": "recordings.recording",
    "Recording": "recordings.recording",
    "RecordingError": "recordings.recording",
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
    "replay": "recordings.replaying",
    "summarize_trace": "traces.trace_summary",
    "watch": "attachment",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
