"""What the environment asks to watch, so that no program need be changed.

=============================================  ==================================================================
``HEADRACE_TRACK=1``                           track every run, and print its tables at the end
``HEADRACE_TRACK=file.json`` or ``file.prom``  the same, into a file: JSON, or the text format of Prometheus
``HEADRACE_TRACK_KERNELS=1``                   time kernels by themselves, with CUPTI
``HEADRACE_LOG=camera.out,blur``               print the messages of ports
``HEADRACE_RECORD=file``                       record the messages of every connected output to a file
``HEADRACE_RECORD_PORTS=camera.out``           the ports to record, in place of every output
``HEADRACE_REPLAY=file``                       play a recording in place of the operators it was made of
``HEADRACE_REPLAY_PACE=fast``                  play it as fast as possible
``HEADRACE_REPLAY_PORTS=camera.out``           the ports to play, in place of every recorded output
``HEADRACE_REPLAY_STRICT=0``                   play a damaged recording up to the damage, with a warning
``HOLOSCAN_FLOW_TRACKING_LOG_FILE=file``       write the times of every message, in the format of the Holoscan SDK
``HOLOSCAN_ENABLE_GXF_JOB_STATISTICS=1``       as ``HEADRACE_TRACK=1``
``HOLOSCAN_GXF_JOB_STATISTICS_PATH=file``      where the statistics go, as JSON
``HEADRACE_DASHBOARD=1`` or ``host:port``      serve a live page of every run
``HEADRACE_DASHBOARD_TOKEN=token``             the token of its address; made anew for each program unless given
``HEADRACE_TRACE=out.json``                    write a trace, compressed if the name ends with ``.gz``
``HEADRACE_TRACE_METADATA=1``                  show the metadata of messages in the trace
``HEADRACE_NVTX=1``                            put an NVTX range around each compute
``HOLOSCAN_ENABLE_PROFILE=1``                  the same
``HEADRACE_OTEL=1``                            make spans of OpenTelemetry of the messages
=============================================  ==================================================================
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.booleans import flag

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.records import RunInfo
    from headrace.observe.events.watchers import Watcher
    from headrace.observe.recordings.replaying import Replay

VARIABLES = (
    "HEADRACE_TRACK",
    "HEADRACE_DASHBOARD",
    "HEADRACE_LOG",
    "HEADRACE_RECORD",
    "HOLOSCAN_FLOW_TRACKING_LOG_FILE",
    "HOLOSCAN_ENABLE_GXF_JOB_STATISTICS",
    "HEADRACE_TRACE",
    "HEADRACE_NVTX",
    "HOLOSCAN_ENABLE_PROFILE",
    "HEADRACE_OTEL",
)

# The numbers of a program's runs, by file: it may run several applications, even at the same time.
_runs: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))
_NVTX = ("HEADRACE_NVTX", "HOLOSCAN_ENABLE_PROFILE")


def asked_for() -> bool:
    """Return whether the environment asks for anything."""
    return any(os.environ.get(name) for name in VARIABLES)


def watchers_from_environment() -> list[Watcher]:
    """Return the watchers that the environment asks for."""
    found: list[Watcher | None] = []
    target = _statistics_target()
    if target is not None:
        found.append(_report_to(target))
    for variable, make in _WATCHERS.items():
        given = os.environ.get(variable)
        if given:
            found.append(make(given))
    if any(map(_flag, _NVTX)):
        from headrace.observe.traces.nvtx_ranges import NvtxRanges

        found.append(NvtxRanges())
    if _flag("HEADRACE_OTEL"):
        from headrace.observe.traces.otel_spans import OtelSpans

        found.append(OtelSpans())
    return [watcher for watcher in found if watcher is not None]


def replay_from_environment() -> Replay | None:
    """Return the replay that the environment asks for, if any."""
    path = os.environ.get("HEADRACE_REPLAY")
    if not path:
        return None
    from headrace.observe.recordings.ports import parse_patterns
    from headrace.observe.recordings.replaying import Replay

    ports = os.environ.get("HEADRACE_REPLAY_PORTS")
    pace = os.environ.get("HEADRACE_REPLAY_PACE") or "recorded"
    strict = not os.environ.get("HEADRACE_REPLAY_STRICT") or _flag("HEADRACE_REPLAY_STRICT")
    return Replay(path, pace, parse_patterns(ports) if ports else None, strict=strict)


def _print_ports(patterns: str) -> Watcher:
    from headrace.observe.loggers.console_loggers import PortPrinter
    from headrace.observe.loggers.data_loggers import DataLogging
    from headrace.observe.recordings.ports import parse_patterns

    return DataLogging([PortPrinter(parse_patterns(patterns))])


def _record_to(path: str) -> Watcher:
    from headrace.observe.recordings.port_recorder import PortRecorder, recording_of_run
    from headrace.observe.recordings.ports import parse_patterns

    ports = os.environ.get("HEADRACE_RECORD_PORTS")
    file = recording_of_run(Path(path), next(_runs[path]))
    return PortRecorder(file, parse_patterns(ports) if ports else None)


def _dashboard(given: str) -> Watcher | None:
    host, colon, port = given.rpartition(":")
    if not colon:
        if not _flag("HEADRACE_DASHBOARD"):
            return None
        host, port = "", "0"
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"HEADRACE_DASHBOARD={given!r} must be 1 or host:port, with a port from 0 to 65535")
    from headrace.observe.dashboard.dashboard import Dashboard

    return Dashboard(host=host.strip("[]") or "127.0.0.1", port=int(port), token=_dashboard_token())


@functools.cache
def _made_token() -> str:
    # One for all runs of a program: a page connects again when the next one begins.
    import secrets

    return secrets.token_urlsafe(18)


def _dashboard_token() -> str:
    return os.environ.get("HEADRACE_DASHBOARD_TOKEN") or _made_token()


def _statistics_target() -> str | None:
    """Return the file for statistics, "" for the terminal, or None if nothing is asked for."""
    given = os.environ.get("HEADRACE_TRACK", "")
    if given.endswith((".json", ".prom", ".txt")):
        return given
    if given:
        return "" if _flag("HEADRACE_TRACK") else None
    if _flag("HOLOSCAN_ENABLE_GXF_JOB_STATISTICS"):
        return os.environ.get("HOLOSCAN_GXF_JOB_STATISTICS_PATH", "")
    return None


def _flag(variable: str) -> bool:
    text = os.environ.get(variable, "")
    try:
        return bool(text.strip()) and flag(text)
    except ValueError as error:
        raise ValueError(f"{variable}={text}: {error}") from None


def _file_of_run(filename: str) -> Path:
    """Return the file of the next run: later ones have a number in their names."""
    from headrace.observe.traces.trace_writer import numbered

    return numbered(Path(filename), next(_runs[filename]))


def _report_to(target: str) -> Watcher:
    from headrace.observe.figures.statistics_watcher import StatisticsWatcher

    path = _file_of_run(target) if target else None

    class Report(StatisticsWatcher):
        """Reports the statistics of a run at its end."""

        wants_kernels = _flag("HEADRACE_TRACK_KERNELS")

        def begin(self, run: RunInfo) -> None:
            super().begin(run)
            if path is not None:
                # What cannot be written is an error now, not after the run.
                path.open("a").close()
                if path.suffix == ".prom":
                    self.snapshot().to_prometheus()

        def end(self, outcome: Outcome | None) -> None:
            super().end(outcome)
            statistics = self.snapshot()
            if path is None:
                print(statistics, file=sys.stderr)
            elif path.suffix == ".prom":
                path.write_text(statistics.to_prometheus(), encoding="utf-8")
            elif path.suffix == ".txt":
                path.write_text(f"{statistics}\n", encoding="utf-8")
            else:
                path.write_text(statistics.to_json() + "\n", encoding="utf-8")

    return Report()


def _log_to(filename: str) -> Watcher:
    from headrace.observe.figures.data_flow_tracker import DataFlowTracker

    class Log(DataFlowTracker):
        """Writes the log file of a run, and closes it at the end."""

        def end(self, outcome: Outcome | None) -> None:
            super().end(outcome)
            self.end_logging()

    log = Log()
    log.enable_logging(_file_of_run(filename))
    return log


def _trace_to(filename: str) -> Watcher:
    from headrace.observe.traces.trace_writer import TraceWriter

    return TraceWriter(_file_of_run(filename), metadata=_flag("HEADRACE_TRACE_METADATA"))


_WATCHERS: dict[str, Callable[[str], Watcher | None]] = {
    "HOLOSCAN_FLOW_TRACKING_LOG_FILE": _log_to,
    "HEADRACE_LOG": _print_ports,
    "HEADRACE_RECORD": _record_to,
    "HEADRACE_TRACE": _trace_to,
    "HEADRACE_DASHBOARD": _dashboard,
}
