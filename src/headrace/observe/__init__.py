"""What happened in a run: flow tracking, GPU times, goals, traces, data loggers, and the live page.

A run that nobody watches pays nothing for any of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:  # "as": for type checkers these are names of the package
    from headrace.observe.attachment import watch as watch
    from headrace.observe.dashboard.dashboard import Dashboard as Dashboard
    from headrace.observe.events.records import Arrivals as Arrivals
    from headrace.observe.events.records import Computes as Computes
    from headrace.observe.events.records import Discards as Discards
    from headrace.observe.events.records import Emissions as Emissions
    from headrace.observe.events.records import Flows as Flows
    from headrace.observe.events.records import GpuWork as GpuWork
    from headrace.observe.events.records import OperatorInfo as OperatorInfo
    from headrace.observe.events.records import OutputInfo as OutputInfo
    from headrace.observe.events.records import Path as Path
    from headrace.observe.events.records import QueueInfo as QueueInfo
    from headrace.observe.events.records import RunInfo as RunInfo
    from headrace.observe.events.records import SegmentInfo as SegmentInfo
    from headrace.observe.events.records import StreamInfo as StreamInfo
    from headrace.observe.events.records import WorkersInfo as WorkersInfo
    from headrace.observe.events.watchers import Watcher as Watcher
    from headrace.observe.figures.critical_path import Breakdown as Breakdown
    from headrace.observe.figures.critical_path import Part as Part
    from headrace.observe.figures.data_flow_tracker import DataFlowMetric as DataFlowMetric
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker as DataFlowTracker
    from headrace.observe.figures.data_flow_tracker import Tracker as Tracker
    from headrace.observe.figures.distribution import Summary as Summary
    from headrace.observe.figures.goals import Goal as Goal
    from headrace.observe.figures.goals import Miss as Miss
    from headrace.observe.figures.prometheus import prometheus_collector as prometheus_collector
    from headrace.observe.figures.statistics import OperatorStatistics as OperatorStatistics
    from headrace.observe.figures.statistics import PathStatistics as PathStatistics
    from headrace.observe.figures.statistics import QueueStatistics as QueueStatistics
    from headrace.observe.figures.statistics import SegmentStatistics as SegmentStatistics
    from headrace.observe.figures.statistics import SliceStatistics as SliceStatistics
    from headrace.observe.figures.statistics import Statistics as Statistics
    from headrace.observe.figures.statistics import WorkersStatistics as WorkersStatistics
    from headrace.observe.loggers.arrow_logger import ArrowLogger as ArrowLogger
    from headrace.observe.loggers.console_loggers import AsyncConsoleLogger as AsyncConsoleLogger
    from headrace.observe.loggers.console_loggers import BasicConsoleLogger as BasicConsoleLogger
    from headrace.observe.loggers.console_loggers import GXFConsoleLogger as GXFConsoleLogger
    from headrace.observe.loggers.data_loggers import AsyncDataLoggerResource as AsyncDataLoggerResource
    from headrace.observe.loggers.data_loggers import AsyncQueuePolicy as AsyncQueuePolicy
    from headrace.observe.loggers.data_loggers import DataLogger as DataLogger
    from headrace.observe.loggers.data_loggers import DataLoggerQueueType as DataLoggerQueueType
    from headrace.observe.loggers.data_loggers import DataLoggerResource as DataLoggerResource
    from headrace.observe.loggers.data_loggers import QueueFullError as QueueFullError
    from headrace.observe.loggers.rerun_logger import RerunLogger as RerunLogger
    from headrace.observe.loggers.text_serializer import SimpleTextSerializer as SimpleTextSerializer
    from headrace.observe.recordings.carriers import Carrier as Carrier
    from headrace.observe.recordings.carriers import MessageSource as MessageSource
    from headrace.observe.recordings.carriers import RecordedMessage as RecordedMessage
    from headrace.observe.recordings.carriers import RecordedPort as RecordedPort
    from headrace.observe.recordings.carriers import RecordedRun as RecordedRun
    from headrace.observe.recordings.carriers import RecordingError as RecordingError
    from headrace.observe.recordings.payloads import PayloadError as PayloadError
    from headrace.observe.recordings.payloads import decode as decode
    from headrace.observe.recordings.payloads import encode as encode
    from headrace.observe.recordings.port_recorder import PortRecorder as PortRecorder
    from headrace.observe.recordings.recording import Recording as Recording
    from headrace.observe.recordings.replaying import replay as replay
    from headrace.observe.recordings.snapshots import TensorCopy as TensorCopy
    from headrace.observe.recordings.snapshots import TensorMapCopy as TensorMapCopy
    from headrace.observe.traces.nvtx_ranges import NvtxRanges as NvtxRanges
    from headrace.observe.traces.otel_spans import OtelSpans as OtelSpans
    from headrace.observe.traces.trace_reader import TraceError as TraceError
    from headrace.observe.traces.trace_shares import Shares as Shares
    from headrace.observe.traces.trace_summary import PathSummary as PathSummary
    from headrace.observe.traces.trace_summary import TraceSummary as TraceSummary
    from headrace.observe.traces.trace_summary import summarize_trace as summarize_trace
    from headrace.observe.traces.trace_writer import TraceWriter as TraceWriter

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

_modules = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_modules)

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _modules)
