"""RunPage: what the page of one run is told, and what it may ask for.

The reader's thread adds what happened to the figures. The server's thread makes a message of them a few times a
second, if a client can take one. A client that has not shown the last two gets none, and what it was not sent is
part of the next: intervals of the time line and lines of the log are counted for each client.

The server is the viewer's (`headrace._web`), with its rules. A page sends requests like those from the
program: `Fragment.pause`, `step`, `stop_execution`. Live parameters are set by HTTP, by the page and by others
alike: ``GET /parameters`` lists them, and ``PUT /parameters/OPERATOR/PARAMETER`` sets one to a JSON value.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict
from importlib import resources
from math import isfinite
from typing import TYPE_CHECKING, Any

from headrace._web.live_server import Client, LiveServer
from headrace._web.messages import Fields, MalformedMessage, choice, read_value, whole
from headrace.brief import brief
from headrace.core.errors import GraphError, ParameterError
from headrace.observe.dashboard.device_slices import DeviceSlices
from headrace.observe.dashboard.log_lines import LogLines
from headrace.observe.dashboard.time_line import TimeLine
from headrace.observe.figures.goals import GoalsWatcher
from headrace.observe.figures.prometheus import StatisticsCollector
from headrace.observe.figures.statistics import FAULTS, OperatorStatistics

if TYPE_CHECKING:
    from headrace.core.operator import Operator
    from headrace.core.parameters import Parameter
    from headrace.observe.events.observation import Observation
    from headrace.observe.events.records import RunInfo
    from headrace.observe.figures.distribution import Summary
    from headrace.observe.figures.goals import Goal
    from headrace.observe.figures.run_figures import RunFigures
    from headrace.observe.figures.statistics import Statistics

WINDOW = 5_000_000_000  # nanoseconds of rates, percentiles and shares; those of the run would hide what happens now
_MOST_STEPS = 10_000  # that a page may ask for at once
_PROMPT = 0.05  # seconds after a request in which the page is told what came of it
# Of an operator: what is told of it as it is, and what went wrong, if anything did.
_SHOWN = ("count", "rate", "busy", "gpu_busy", "is_saturated", "waiting", "waits", "interpreter")
_FAULTS = (*FAULTS, "late_ticks", "skipped_ticks")
_SIMPLE = {float: "float", int: "int", bool: "bool", str: "str"}
_log = logging.getLogger("headrace.observe")


class RunPage(LiveServer):
    """The page of a run; `options` are those of its server."""

    def __init__(self, observation: Observation, run: RunInfo, figures: RunFigures, **options: Any) -> None:
        self._observation, self.run, self._figures = observation, run, figures
        self._control = observation.fragment._headrace.run_control
        self.time_line = TimeLine(run.started)
        self._slices = DeviceSlices(observation.fragment, run)
        self._parameters = self._find_parameters()
        self._log_lines = LogLines()
        self._is_over = False
        self._update: asyncio.TimerHandle | None = None
        super().__init__(
            "the dashboard",
            resources.files("headrace.observe.dashboard").joinpath("dashboard.html").read_text("utf-8"),
            {"title": observation.fragment.name},
            remedy="name another in HEADRACE_DASHBOARD=host:port, or 1 for any port that is free",
            **options,
        )
        logging.getLogger().addHandler(self._log_lines)

    def _find_parameters(self) -> dict[tuple[str, str], tuple[Operator, Parameter]]:
        return {
            (operator.name, name): (operator.node.operator, parameter)
            for operator in self.run.operators
            for name, parameter in operator.node.operator._headrace.live_parameters.items()
        }

    def change_graph(self) -> None:
        """Show the graph as it is now."""
        self._slices = DeviceSlices(self._observation.fragment, self.run)
        self._parameters = self._find_parameters()
        self._call(self._show_graph)

    def _show_graph(self) -> None:
        for client in self.clients:
            self.on_connect(client)

    def close(self) -> None:
        """Show the last figures, and end the server."""
        self._is_over = True
        super().close()
        logging.getLogger().removeHandler(self._log_lines)

    # What the page is told.

    def graph(self) -> Fields:
        """Return the graph of the run and its parameters."""
        run = self.run
        return {
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
            "subgraphs": list(self._observation.fragment.graph.subgraphs),
            "segments": [
                {"name": segment.name, "operators": [operator.index for operator in segment.operators]}
                for segment in run.segments
            ],
            "queues": [_attributes(queue, "name", "size") for queue in run.queues],
            "flows": [
                {
                    "from": output.operator.index,
                    "output": output.port,
                    "to": queue.operator.index,
                    "input": queue.port,
                    "queue": queue.index,
                    "size": queue.size,
                    "closes": output.operator in queue.closing,
                }
                for queue in run.queues
                for output in queue.outputs
            ],
            "parameters": [_described(*each) for each in self._parameters.values()],
        }

    def figures(self) -> Fields:
        """Return the figures of this moment."""
        run, now, known = self.run, self._observation.now(), self._observation.known_until
        state = "ended" if self._is_over else "paused" if self._control.pause_wanted else "running"
        self.time_line.forget(now)
        recent = self._figures.snapshot(WINDOW, known)
        return {
            "type": "figures",
            "now": (now - run.started) // 1000,
            "age": max(now - known, 0) // 1000,
            "seen": (self._figures.newest - run.started) // 1000,
            "state": state,
            "operators": [
                {
                    **_attributes(each, *_SHOWN),
                    "host": _percentiles(each.host),
                    "gpu": _percentiles(each.gpu),
                    "gpu_is_bound": each.gpu.is_bound,
                    "held": operator.frames_kept,
                    "faults": {name: count for name, count in _attributes(each, *_FAULTS).items() if count},
                    "latest": round(each.latest / 1e3, 1),
                    **dict(zip(("slice", "slice_index"), self._slices.of(operator), strict=True)),
                }
                for each, operator in zip(_in_order(recent, run), run.operators, strict=True)
            ],
            "queues": [
                {
                    **_attributes(each, "depth", "dropped", "busy"),
                    "reasons": queue.drop_reasons,
                    "wait": _percentiles(each.wait),
                }
                for each, queue in zip(recent.queues, run.queues, strict=True)
            ],
            "paths": [
                {
                    **_attributes(each, "count", "rate"),
                    "names": each.operators,
                    "latency": _percentiles(each.latency),
                }
                for each in recent.paths
            ],
            "workers": [round(busy, 3) for busy in self._figures.threads(WINDOW, known).values()],
            "saturated": list(recent.saturated),
            "gpus": self._slices.devices({each.key: round(each.busy, 3) for each in recent.slices}),
            "segments": [asdict(segment) for segment in recent.segments],
            "goals": [
                _judged(goal)
                for watcher in self._observation.watchers
                if isinstance(watcher, GoalsWatcher)
                for goal in watcher.goals
            ],
            "parameters": [self._value_of(*each) for each in self._parameters.values()],
        }

    def metrics(self) -> bytes:
        """Return the figures of the whole run for Prometheus."""
        return StatisticsCollector(lambda: [self._figures.snapshot()]).text()

    def last_item(self, client: Client) -> str:
        """Return the last figures."""
        return self._complete(self.figures(), client)

    def on_connect(self, client: Client) -> None:
        """Send the graph, and the first figures."""
        client.say(**self.graph())
        client.send(self._complete(self.figures(), client), True)

    def on_tick(self) -> None:
        """Send figures to the clients that can take them."""
        self._update = None
        if self.wants_item():
            figures = self.figures()
            for client in self.clients:
                if client.is_free:
                    client.send(self._complete(figures, client), False)

    def _complete(self, figures: Fields, client: Client) -> str:
        """Return figures with the intervals and the lines of the log that a client has not seen, as JSON."""
        seen = client.seen
        seen["piece"], line = self.time_line.pieces_after(seen.get("piece", 0))
        seen["log"], log = self._log_lines.after(seen.get("log", 0))
        # Whoever knows the address of a page may change the run there.
        pages = self.run.pages if client.may_change else {}
        return json.dumps({**figures, "line": line, "log": log, "pages": pages}, separators=(",", ":"))

    # What the page may ask for.

    def on_message(self, client: Client, fields: Fields) -> None:
        """Do what a page asks for; raise MalformedMessage for anything that it may not ask."""
        control, kind = self._control, fields.get("type")
        if kind == "command":
            commands = {"pause": control.pause, "resume": control.resume, "stop": control.stop}
            choice(fields, "do", commands)()
        elif kind == "step":
            count = whole(fields, "count", 1, _MOST_STEPS)
            try:
                control.step(count)
            except GraphError as refused:  # of a run in several processes
                _log.warning("%s", refused)
        else:
            raise MalformedMessage(f"there is no request of the type {kind!r:.40}")
        self._tell_soon()

    def _tell_soon(self) -> None:
        if self._update is None:
            self._update = self._loop.call_later(_PROMPT, self.on_tick)

    # Live parameters by HTTP.

    def add_routes(self, router: Any) -> None:
        """Answer for the live parameters, too."""
        super().add_routes(router)
        router.add_get("/parameters", self._list_parameters)
        router.add_put("/parameters/{operator}/{parameter}", self._put_parameter)

    async def _list_parameters(self, request: Any) -> Any:
        parameters = [
            {**_described(*each), "value": self._value_of(*each)} for each in self._parameters.values()
        ]
        return self._web.json_response({"parameters": parameters})

    async def _put_parameter(self, request: Any) -> Any:
        if not self.may_change(request):
            raise self._web.HTTPForbidden(text="This token may only read.\n")
        try:
            value = read_value(await request.text())
        except ValueError as error:
            return self._web.json_response({"error": str(error)}, status=400)
        key = request.match_info["operator"], request.match_info["parameter"]
        found = self._parameters.get(key)
        if found is None:
            return self._web.json_response({"error": "There is no such parameter in this run."}, status=404)
        # On another thread: of a part in another process, this returns when that has taken the value.
        refused = await asyncio.to_thread(self.set_parameter, *found, value)
        self._tell_soon()
        answer = {"error": refused} if refused else {"value": self._value_of(*found)}
        return self._web.json_response(answer, status=400 if refused else 200)

    def set_parameter(self, operator: Operator, parameter: Parameter, value: Any) -> str:
        """Change a parameter, and return what is wrong with the value, if anything."""
        if _kind_of(parameter) == "other":
            return "This parameter can be changed by the program only."
        try:
            operator.set_live(parameter.name, value)
        except ParameterError as error:
            return str(error)
        except Exception as error:  # of the program's own check
            _log.exception("the check of parameter %r of %r raised", parameter.name, operator.name)
            return f"{type(error).__name__}: {error}"
        return ""

    @staticmethod
    def _value_of(operator: Operator, parameter: Parameter) -> Any:
        return _shown(operator._headrace.live_state.get(parameter.name))  # type: ignore[union-attr]


def _in_order(statistics: Statistics, run: RunInfo) -> list[OperatorStatistics]:
    """Return the statistics of all operators of a run; those of a link are shown as if it were one."""
    operators = iter(statistics.operators)
    links = (OperatorStatistics(each.name, each.count, each.rate, each.time) for each in statistics.links)
    return [next(links if operator.is_link else operators) for operator in run.operators]


def _attributes(described: Any, *names: str) -> Fields:
    return {name: _rounded(getattr(described, name)) for name in names}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return round(value, 3) if isinstance(value, float) else value


def _judged(goal: Goal) -> Fields:
    return {
        "path": " → ".join(goal.names),
        **goal.counts,
        "figures": [
            {"name": name, "value": round(goal.figure(name) / 1e3, 1), "bound": bound / 1e3}
            for name, bound in goal.bounds.items()
        ],
        "last": str(goal.recent[-1]) if goal.recent else "",
    }


def _percentiles(durations: Summary) -> list[float] | None:
    """Return the median and the 99th percentile, in microseconds; None without any."""
    return [round(durations.p50 / 1e3, 1), round(durations.p99 / 1e3, 1)] if durations.count else None


def _kind_of(parameter: Parameter) -> str:
    return _SIMPLE.get(parameter.expected or type(parameter.default), "other")


def _shown(value: Any) -> Any:
    """Return a value as JSON can have it."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str)) else brief(value)


def _described(operator: Operator, parameter: Parameter) -> Fields:
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
