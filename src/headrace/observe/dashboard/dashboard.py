"""Dashboard: a live page of a run in the browser.

The reader's thread adds what happened to the figures; a thread of the dashboard's own makes a message of them a
few times a second, if a client can take one. A client that has not shown the last two gets none, and what it was
not sent is part of the next: intervals of the time line and lines of the log are counted for each client.

The server is the viewer's (`headrace._web`), with its rules. A page sends requests like those from the
program: `Fragment.pause`, `step`, `stop_execution`, `Operator.set_live`.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from importlib import resources
from math import isfinite
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._web import Client, LiveServer, MalformedMessage, choice, number, string, whole
from headrace.core.durations import Duration, nanoseconds
from headrace.core.errors import ParameterError
from headrace.observe.dashboard.device_slices import DeviceSlices
from headrace.observe.dashboard.log_lines import LogLines
from headrace.observe.events.watchers import Watcher
from headrace.observe.figures.goals import GoalsWatcher
from headrace.observe.figures.prometheus import StatisticsCollector
from headrace.observe.figures.recent_figures import RecentFigures
from headrace.observe.figures.statistics_watcher import StatisticsWatcher

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator
    from headrace.core.outcome import Outcome
    from headrace.core.parameter import Parameter
    from headrace.observe.events.records import Computes, Flows, RunInfo
    from headrace.observe.figures.distribution import Summary

_WATCHED_PERIOD = 0.5  # seconds after which what has happened is known while somebody looks
_LARGEST = 1e300  # value of a parameter in a message
_MOST_STEPS = 10_000  # that a page may ask for at once
_NAME = 200  # characters of the name of an operator or a parameter in a message
_SIMPLE = {float: "float", int: "int", bool: "bool", str: "str"}
_log = logging.getLogger("headrace.observe")


class Dashboard(Watcher):
    """A live page of a fragment's runs: the graph with its figures, the device, a time line, parameters, the log.

    The page can also pause, step and stop a run, and change the parameters that operators declare as live. Whoever
    knows the address can do so, too: it holds a token, and the server listens on this machine only unless another
    host is given.

    Parameters
    ----------
    fragment
        What to watch; `headrace.observe.watch` does the same later.
    host, port
        Where to listen; port 0 takes any that is free, and keeps it for later runs.
    token
        The token of the address; made anew unless given.
    interval
        The least time between two updates of the page.
    clients
        The most pages at a time.
    announce
        Called with the address when a run begins; by default it is printed to the standard error stream.
    """

    wants_threads = True

    def __init__(
        self,
        fragment: Composition | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        interval: Duration = "250ms",
        clients: int = 8,
        announce: Callable[[str], object] | None = None,
    ) -> None:
        self._host, self._port, self._token, self._clients = host, port, token, clients
        self._seconds = nanoseconds(interval, "Dashboard: interval") / 1e9
        if self._seconds <= 0:
            raise ValueError(f"Dashboard: interval must be more than 0, not {interval!r}")
        self._announce = announce or _print_address
        # Not attached to a run themselves: they are shown what the dashboard is shown.
        self._statistics, self._figures = StatisticsWatcher(), RecentFigures()
        self._server: _DashboardServer | None = None
        self._ticker: threading.Thread | None = None
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self._run: RunInfo
        self._slices: DeviceSlices
        self._log_lines: LogLines
        self._parameters: list[tuple[Operator, Parameter]] = []
        if fragment is not None and self not in fragment._watchers:
            fragment._watchers.append(self)

    @property
    def url(self) -> str:
        """The address of the page while a run is watched, with its token; otherwise empty."""
        return "" if self._server is None else self._server.url

    # The watcher.

    def begin(self, run: RunInfo) -> None:
        """Serve the page of a run."""
        fragment = self._fragment
        self._run = run
        self._statistics.begin(run)
        self._figures.begin(run)
        self._slices = DeviceSlices(fragment, run)
        self._parameters = [
            (operator.node.operator, parameter)
            for operator in run.operators
            for parameter in operator.node.operator.live_parameters.values()
        ]
        self._log_lines = LogLines()
        self._is_over.clear()
        server = self._server = _DashboardServer(
            self, fragment.name, self._host, self._port, self._token, self._clients
        )
        self._port, self._token = server.port, server.token
        logging.getLogger().addHandler(self._log_lines)
        self._ticker = threading.Thread(target=self._work, name="headrace dashboard", daemon=True)
        self._ticker.start()
        try:
            self._announce(server.url)
        except BaseException:
            self.end(None)  # the run does not take place, and nothing else would end the server
            raise

    def computed(self, computes: Computes) -> None:
        """Add computes."""
        self._statistics.computed(computes)
        self._figures.computed(computes)

    def flowed(self, flows: list[Flows]) -> None:
        """Add messages that reached the end of their paths."""
        self._statistics.flowed(flows)
        self._figures.flowed(flows)

    def end(self, outcome: Outcome | None) -> None:
        """Show the last figures, and end the server."""
        self._is_over.set()
        self._wake.set()
        if self._ticker is not None:
            waits.join(self._ticker)
        if self._server is not None:
            self._server.close()
            self._server = None
        logging.getLogger().removeHandler(self._log_lines)

    # Messages to the page.

    @property
    def _fragment(self) -> Composition:
        assert self.observation is not None
        return self.observation.fragment

    def describe(self) -> str:
        """Return the graph of the run and its parameters, as JSON: what does not change."""
        run = self._run
        return json.dumps(
            {
                "type": "graph",
                "application": run.application,
                "operators": [
                    {
                        "name": operator.name,
                        "kind": type(operator.node.operator).__name__,
                        "on": f"{operator.slice}, {operator.sm_count} SMs" if operator.slice else "",
                    }
                    for operator in run.operators
                ],
                "segments": [
                    {"name": segment.name, "operators": [operator.index for operator in segment.operators]}
                    for segment in run.segments
                ],
                "queues": [{"name": queue.name, "limit": queue.limit} for queue in run.queues],
                "flows": [
                    {
                        "from": output.operator.index,
                        "output": output.port,
                        "to": queue.operator.index,
                        "input": queue.port,
                        "queue": queue.index,
                        "limit": queue.limit,
                        "closes": output.operator in queue.closing,
                    }
                    for queue in run.queues
                    for output in queue.outputs
                ],
                "parameters": [_describe(operator, parameter) for operator, parameter in self._parameters],
            }
        )

    def figures(self) -> str:
        """Return the figures of this moment, as JSON."""
        run = self._run
        assert self.observation is not None
        now = self.observation.now()
        self._figures.forget(now)
        seen, workers = self._figures.newest, self._figures.workers(now)
        recent = self._figures.snapshot(now)
        operators = [
            {
                "count": each.count,
                "rate": round(each.rate, 2),
                "busy": round(each.busy, 3),
                "host": _percentiles(each.host),
                "gpu": _percentiles(each.gpu),
                "gpu_is_bound": each.gpu.is_bound,
                "gpu_busy": round(each.gpu_busy, 3),
                "is_saturated": each.is_saturated,
                "held": operator.frames_kept,
                **dict(zip(("slice", "slice_index"), self._slices.of(operator), strict=True)),
            }
            for each, operator in zip(recent.operators, run.operators, strict=True)
        ]
        is_over = self._is_over.is_set()
        return json.dumps(
            {
                "type": "figures",
                "now": (now - run.started) // 1000,
                "seen": (seen - run.started) // 1000,
                "state": "ended"
                if is_over
                else "paused"
                if self._fragment._run_control.pause_wanted
                else "running",
                "operators": operators,
                "queues": [
                    {
                        "depth": each.depth,
                        "dropped": each.dropped,
                        "wait": _percentiles(each.wait),
                        "busy": round(each.busy, 3),
                    }
                    for each in recent.queues
                ],
                "paths": [
                    {
                        "names": each.operators,
                        "count": each.count,
                        "rate": round(each.rate, 2),
                        "latency": _percentiles(each.latency),
                    }
                    for each in recent.paths
                ],
                "workers": [round(busy, 3) for busy in workers],
                "saturated": recent.saturated,
                "gpus": self._slices.devices({each.key: round(each.busy, 3) for each in recent.slices}),
                "segments": [asdict(segment) for segment in recent.segments],
                "goals": self._goals(),
                "parameters": [_shown(_value_of(*each)) for each in self._parameters],
            }
        )

    def metrics(self) -> bytes:
        """Return the figures of the whole run for Prometheus."""
        return StatisticsCollector(self._statistics.snapshot).text()

    def complete(self, figures: str, client: Client) -> str:
        """Return figures with the intervals and the lines of the log that a client has not seen."""
        client.seen["piece"], line = self._figures.pieces_after(client.seen.get("piece", 0))
        client.seen["log"], log = self._log_lines.after(client.seen.get("log", 0))
        return (
            f'{figures[:-1]}, "line": {json.dumps(line, separators=(",", ":"))}, "log": {json.dumps(log)}}}'
        )

    def _goals(self) -> list[dict[str, Any]]:
        assert self.observation is not None
        found = [watcher for watcher in self.observation.watchers if isinstance(watcher, GoalsWatcher)]
        return [
            {
                "path": " → ".join(goal.names),
                "is_met": goal.is_met,
                "count": goal.count,
                "misses": goal.misses,
                "lost": goal.lost,
                "outstanding": goal.outstanding,
                "figures": [
                    {"name": name, "value": round(goal.figure(name) / 1e3, 1), "bound": bound / 1e3}
                    for name, bound in goal.bounds.items()
                ],
                "last": str(goal.recent[-1]) if goal.recent else "",
            }
            for watcher in found
            for goal in watcher.goals
        ]

    def _work(self) -> None:
        """Send figures, on a thread of its own."""
        server = self._server
        assert server is not None
        while True:
            waits.wait(self._wake, self._seconds)
            if self._is_over.is_set():
                return
            self._wake.clear()
            self.longest_period = _WATCHED_PERIOD if server.has_clients else Watcher.longest_period
            try:
                if server.wants_item():
                    figures = self.figures()
                    server.send_each(lambda client, figures=figures: self.complete(figures, client))  # type: ignore[misc]
            except Exception:
                _log.exception("the dashboard shows nothing more")
                return
            # A request wakes this thread at once; but not more often than this.
            waits.wait(self._is_over, min(self._seconds, 0.05))

    # Requests of the page, on the server's thread.

    def handle(self, client: Client, fields: dict[str, Any]) -> None:
        """Do what a page asks for; raise MalformedMessage for anything that it may not ask."""
        control = self._fragment._run_control
        kind = fields.get("type")
        if kind == "command":
            choice(
                fields,
                "do",
                {"pause": control.pause, "resume": control.resume, "stop": control.stop},
            )()
        elif kind == "step":
            control.step(whole(fields, "count", 1, _MOST_STEPS))
        elif kind == "set":
            identity = whole(fields, "id", 0, 1 << 53)
            error = self._set(string(fields, "operator", _NAME), string(fields, "parameter", _NAME), fields)
            client.say(json.dumps({"type": "answer", "id": identity, "error": error}))
        else:
            raise MalformedMessage(f"there is no request of the type {kind!r:.40}")
        self._wake.set()

    def _set(self, name: str, parameter_name: str, fields: dict[str, Any]) -> str:
        """Change a parameter, and return what is wrong with the value, if anything."""
        value = fields.get("value")
        if not isinstance(value, (bool, str)):
            number(fields, "value", _LARGEST)
        for operator, parameter in self._parameters:
            if operator.name == name and parameter.name == parameter_name:
                if _kind_of(parameter) == "other":
                    return "This parameter can be changed by the program only."
                try:
                    operator.set_live(parameter_name, value)
                except ParameterError as error:
                    return str(error)
                except Exception as error:  # of the program's own check
                    _log.exception("the check of parameter %r of %r raised", parameter_name, name)
                    return f"{type(error).__name__}: {error}"
                return ""
        return "There is no such parameter in this run."


class _DashboardServer(LiveServer):
    """The server of a dashboard."""

    def __init__(
        self, dashboard: Dashboard, title: str, host: str, port: int, token: str, clients: int
    ) -> None:
        self._dashboard = dashboard
        super().__init__(
            "the dashboard",
            resources.files("headrace.observe.dashboard").joinpath("dashboard.html").read_text("utf-8"),
            {"title": title},
            host=host,
            port=port,
            token=token,
            clients=clients,
            remedy="name another in HEADRACE_DASHBOARD=host:port, or 1 for any port that is free",
        )

    def on_connect(self, client: Client) -> None:
        """Send the graph, and the first figures."""
        client.say(self._dashboard.describe())
        client.send(self._dashboard.complete(self._dashboard.figures(), client), True)

    def on_message(self, client: Client, fields: dict[str, Any]) -> None:
        """Do what a page asks for."""
        self._dashboard.handle(client, fields)

    def metrics(self) -> bytes:
        """Return the figures of the run for Prometheus."""
        return self._dashboard.metrics()

    def last_item(self, client: Client) -> str:
        """Return the last figures."""
        return self._dashboard.complete(self._dashboard.figures(), client)


def _percentiles(durations: Summary) -> list[float] | None:
    """Return the median and the 99th percentile, in microseconds; None without any."""
    return [round(durations.p50 / 1e3, 1), round(durations.p99 / 1e3, 1)] if durations.count else None


def _print_address(url: str) -> None:
    print(f"dashboard: {url}", file=sys.stderr, flush=True)


def _kind_of(parameter: Parameter) -> str:
    return _SIMPLE.get(parameter.expected or type(parameter.default), "other")


def _value_of(operator: Operator, parameter: Parameter) -> Any:
    assert operator._live is not None
    return operator._live.get(parameter.name)


def _shown(value: Any) -> Any:
    """Return a value as JSON can have it."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else f"{value!r:.200}"


def _describe(operator: Operator, parameter: Parameter) -> dict[str, Any]:
    def bound(value: Any) -> Any:
        return value if isinstance(value, (int, float)) and isfinite(value) else None

    return {
        "operator": operator.name,
        "name": parameter.name,
        "kind": _kind_of(parameter),
        "headline": parameter.headline or parameter.description,
        "minimum": bound(parameter.minimum),
        "maximum": bound(parameter.maximum),
        "choices": [_shown(value) for value in parameter.choices],
    }
