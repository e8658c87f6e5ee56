"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.observe.arrow_logger import ArrowLogger
    from headrace.observe.attachment import watch
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
    "watch": "attachment",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
