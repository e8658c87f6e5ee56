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
``HEADRACE_DASHBOARD=1`` or ``host:port``      serve a live page of every run
``HEADRACE_DASHBOARD_TOKEN=token``             the token of its address; made anew for each program unless given
``HEADRACE_DASHBOARD_READ_TOKEN=token``        another one, with which the page shows everything and changes nothing
``HEADRACE_METRICS=1`` or ``host:port``        serve figures for Prometheus, health and readiness, until the end
``HEADRACE_METRICS_TOKEN=token``               the token of the figures; none unless given
``HEADRACE_TRACE=out.json``                    write a trace, compressed if the name ends with ``.gz``
``HEADRACE_TRACE_METADATA=1``                  show the metadata of messages in the trace
``HEADRACE_NVTX=1``                            put an NVTX range around each compute
``HEADRACE_OTEL=1``                            make spans of OpenTelemetry of the messages
=============================================  ==================================================================
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.core.values import is_set

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.events.watchers import Watcher
    from headrace.observe.recordings.replaying import Replay
    from headrace.observe.service import MetricsServer

# The numbers of a program's runs, by file: it may run several applications, even at the same time.
_runs: defaultdict[str, Iterator[int]] = defaultdict(lambda: itertools.count(1))


def asked_for() -> bool:
    """Return whether the environment asks for anything."""
    return any(os.environ.get(name) for name in _WATCHERS)


def watchers_from_environment(names: Collection[str] | None = None) -> list[Watcher]:
    """Return the watchers that the environment asks for, by some variables or by all."""
    makers = dict.fromkeys(
        make for name, make in _WATCHERS.items() if os.environ.get(name) and (names is None or name in names)
    )
    found = [make() for make in makers]
    return [watcher for watcher in found if watcher is not None]


def replay_from_environment() -> Replay | None:
    """Return the replay that the environment asks for, if any."""
    path = os.environ.get("HEADRACE_REPLAY")
    if not path:
        return None
    from headrace.observe.recordings.replaying import Replay

    pace = os.environ.get("HEADRACE_REPLAY_PACE") or "recorded"
    strict = not os.environ.get("HEADRACE_REPLAY_STRICT") or is_set("HEADRACE_REPLAY_STRICT")
    return Replay(path, pace, _ports("HEADRACE_REPLAY_PORTS"), strict=strict)


def _ports(variable: str) -> list[str] | None:
    from headrace.observe.recordings.carriers import parse_patterns

    text = os.environ.get(variable)
    return parse_patterns(text) if text else None


def _print_ports() -> Watcher:
    from headrace.observe.loggers.console import ConsoleLogger
    from headrace.observe.loggers.data_loggers import DataLogging

    return DataLogging([ConsoleLogger(_ports("HEADRACE_LOG") or [], name="HEADRACE_LOG")])


def _recorder() -> Watcher:
    from headrace.observe.recordings.port_recorder import PortRecorder

    return PortRecorder(_file_of_run(os.environ["HEADRACE_RECORD"]), _ports("HEADRACE_RECORD_PORTS"))


def _dashboard() -> Watcher | None:
    address = _address("HEADRACE_DASHBOARD")
    if address is None:
        return None
    host, port = address
    from headrace.observe.dashboard.dashboard import Dashboard

    token = os.environ.get("HEADRACE_DASHBOARD_TOKEN") or _made_token()
    read_token = os.environ.get("HEADRACE_DASHBOARD_READ_TOKEN", "")
    return Dashboard(host=host, port=port, token=token, read_token=read_token)


def serve_metrics(fragment: Composition) -> None:
    """Serve the figures of a fragment if the environment asks for it, on the one port of the program."""
    global _metrics
    if not os.environ.get("HEADRACE_METRICS"):
        return
    address = _address("HEADRACE_METRICS")
    if address is None:
        return
    from headrace.observe.service import MetricsServer

    host, port = address
    with _metrics_lock:
        if _metrics is None:
            _metrics = MetricsServer(host=host, port=port, token=os.environ.get("HEADRACE_METRICS_TOKEN", ""))
            print(f"metrics: {_metrics.url}/metrics", file=sys.stderr, flush=True)
        if fragment not in _metrics:
            _metrics.remove_ended(fragment.name)
            _metrics.add(fragment)


_metrics: MetricsServer | None = None
_metrics_lock = threading.Lock()


def _address(variable: str) -> tuple[str, int] | None:
    """Return the host and port that a variable names; None if it switches the server off."""
    given = os.environ[variable]
    host, colon, port = given.rpartition(":")
    if not colon:
        if not is_set(variable):
            return None
        host, port = "", "0"
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{variable}={given!r} must be 1 or host:port, with a port from 0 to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


@functools.cache
def _made_token() -> str:
    # One for all runs of a program: a page connects again when the next one begins.
    import secrets

    return secrets.token_urlsafe(18)


def _file_of_run(filename: str) -> Path:
    """Return the file of the next run: later ones have a number in their names."""
    from headrace.core.run_files import numbered

    return numbered(Path(filename), next(_runs[filename]))


def _report() -> Watcher | None:
    target = os.environ["HEADRACE_TRACK"]
    is_file = target.endswith((".json", ".prom", ".txt"))
    if not is_file and not is_set("HEADRACE_TRACK"):
        return None
    from headrace.observe.figures.tracker import Report

    return Report(_file_of_run(target) if is_file else None, kernels=is_set("HEADRACE_TRACK_KERNELS"))


def _trace() -> Watcher:
    from headrace.observe.traces.trace_writer import TraceWriter

    return TraceWriter(_file_of_run(os.environ["HEADRACE_TRACE"]), metadata=is_set("HEADRACE_TRACE_METADATA"))


def _nvtx_ranges() -> Watcher | None:
    from headrace.observe.traces.nvtx_ranges import NvtxRanges

    return NvtxRanges() if is_set("HEADRACE_NVTX") else None


def _spans() -> Watcher | None:
    from headrace.observe.traces.otel_spans import OtelSpans

    return OtelSpans() if is_set("HEADRACE_OTEL") else None


_WATCHERS: dict[str, Callable[[], Watcher | None]] = {
    "HEADRACE_TRACK": _report,
    "HEADRACE_LOG": _print_ports,
    "HEADRACE_RECORD": _recorder,
    "HEADRACE_TRACE": _trace,
    "HEADRACE_DASHBOARD": _dashboard,
    "HEADRACE_NVTX": _nvtx_ranges,
    "HEADRACE_OTEL": _spans,
}
