"""MetricsServer: figures for Prometheus, and whether a program is healthy and ready, on one port.

The figures are those of the tracker (`figures/run_figures`), in the form of `figures/prometheus`. Counters
and histograms count from the start of the run, because Prometheus makes windows of them (``rate(...[5m])``).
Shares, such as how busy an operator is, are of the last seconds: a share of months would not tell what happens now.

The server outlives runs, so that a program that has failed, or waits for its next run, still answers. It is that of
the pages (`headrace._web`), with its limits. Nothing can be changed through it. Of a program in several processes,
the driver serves the figures of all parts, and the processes of the parts serve nothing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace._web.live_server import LiveServer
from headrace.core.outcome import EndedBy, stuck_operators
from headrace.lazy import import_or_explain
from headrace.observe.figures.prometheus import StatisticsCollector
from headrace.observe.figures.run_figures import ShowsFigures

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.figures.statistics import Statistics

WINDOW = 15_000_000_000  # nanoseconds of shares: that between two scrapes of Prometheus, unless it is set
_BAD_ENDS = (EndedBy.FAILED, EndedBy.STARVED)


class MetricsServer:
    """Serves ``/metrics``, ``/health`` and ``/ready`` of the runs of fragments, from now until `close`.

    ``/health`` and ``/ready`` answer 200 or 503, with the reason as JSON, and need no token. ``/metrics`` needs the
    token, if there is one: ``Authorization: Bearer TOKEN``, or ``?token=TOKEN``.

    Parameters
    ----------
    *fragments
        What to serve; `add` adds more.
    host, port
        Where to listen; port 0 takes any that is free.
    token
        The token of ``/metrics``; whoever reaches the port may read it unless given.
    """

    def __init__(
        self, *fragments: Composition, host: str = "127.0.0.1", port: int = 0, token: str = ""
    ) -> None:
        self._served: dict[Composition, _ServedRuns] = {}
        self._lock = threading.Lock()
        library = import_or_explain("prometheus_client", "view", "to show figures to Prometheus")
        self._registry = library.CollectorRegistry()
        self._registry.register(
            StatisticsCollector(lambda: [each.served() for each in list(self._served.values())])
        )
        library.ProcessCollector(registry=self._registry)  # its memory, its CPU time, its open files
        self._text: Callable[[Any], bytes] = library.generate_latest
        self._server = None
        if not os.environ.get("HEADRACE_PART"):
            self._server = _Server(self, host=host, port=port, read_token=token)
        for fragment in fragments:
            self.add(fragment)

    @property
    def url(self) -> str:
        """The address, to which ``/metrics``, ``/health`` and ``/ready`` are added; empty if the driver serves."""
        return "" if self._server is None else self._server.address

    def __contains__(self, fragment: Composition) -> bool:
        return fragment in self._served

    def add(self, fragment: Composition) -> None:
        """Serve the runs of one more fragment; the second of a name has a number, ``Inspection_2``."""
        with self._lock:
            if fragment in self._served:
                return
            taken = {each.label for each in self._served.values()}
            label, number = fragment.name, 2
            while label in taken:
                label, number = f"{fragment.name}_{number}", number + 1
            watcher = self._served[fragment] = _ServedRuns(fragment, label)
        fragment._headrace.watchers.append(watcher)

    def remove_ended(self, name: str) -> None:
        """Serve the fragments of a name no more whose runs have ended: the next one takes their place."""
        for fragment, watcher in list(self._served.items()):
            if fragment.name == name and watcher.has_ended:
                self._forget(fragment, watcher)
                with self._lock:
                    self._served.pop(fragment, None)

    def close(self) -> None:
        """End the server, and watch later runs no more."""
        for fragment, watcher in self._served.items():
            self._forget(fragment, watcher)
        if self._server is not None:
            self._server.close()

    @staticmethod
    def _forget(fragment: Composition, watcher: _ServedRuns) -> None:
        if watcher in fragment._headrace.watchers:
            fragment._headrace.watchers.remove(watcher)

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Return whether every fragment is healthy, and the answer of ``/health``."""
        states = self._states()
        return not any(state["problems"] for state in states.values()), {"applications": states}

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Return whether the program does its work, and the answer of ``/ready``.

        It is ready if every fragment is healthy, at least one is running, and the others have not begun or ended.
        """
        is_healthy, answer = self.health()
        states = [state["state"] for state in answer["applications"].values()]
        resting = ("not started", "ended")
        is_running = "running" in states and all(state in ("running", *resting) for state in states)
        return is_healthy and is_running, answer

    def _states(self) -> dict[str, dict[str, Any]]:
        return {watcher.label: watcher.describe() for watcher in list(self._served.values())}


class _ServedRuns(ShowsFigures):
    """The runs of one fragment, under a name of its own: their figures, and what they are doing."""

    spans_parts = True

    window = WINDOW

    def __init__(self, fragment: Composition, label: str) -> None:
        self._fragment = fragment
        self.label = label

    # What is served.

    def served(self) -> Statistics:
        """Return the figures of the run, with the shares of its last seconds."""
        total = self.snapshot()
        known = self.observation.known_until if self.observation is not None else 0
        recent = self.figures.snapshot(WINDOW, known)
        return replace(
            total,
            application=self.label,
            operators=_with_shares(total.operators, recent.operators, "busy", "gpu_busy", "waiting"),
            queues=_with_shares(total.queues, recent.queues, "busy"),
            workers=_with_shares(total.workers, recent.workers, "busy"),
            slices=_with_shares(total.slices, recent.slices, "busy"),
        )

    def describe(self) -> dict[str, Any]:
        """Return what the fragment is doing, and what is wrong with it, as plain data."""
        inner = self._fragment._headrace
        parts = inner.processes_elsewhere() if inner.run_control.doing else {}
        return {
            "state": self._state(),
            "run": inner.run_id,
            "process": os.getpid(),
            **({"parts": parts} if parts else {}),
            "problems": self._problems(),
        }

    @property
    def has_ended(self) -> bool:
        """Whether its last run has ended."""
        return self._state() == "ended"

    def _state(self) -> str:
        control = self._fragment._headrace.run_control
        if not control.doing:
            return "ended" if self._fragment._headrace.run_id else "not started"
        if control.is_stopping or control.drain_wanted:
            return "stopping"
        if not (control.has_begun and control.has_started):
            return "starting"
        return "paused" if control.pause_wanted else "running"

    def _problems(self) -> list[str]:
        fragment = self._fragment
        if fragment._headrace.run_control.doing:
            return [*fragment._headrace.run_control.problems(), *stuck_operators(fragment)]
        outcome = fragment._headrace.outcome
        if outcome is None:
            return ["compose raised"] if fragment._headrace.run_id else []
        return [str(outcome)] if outcome.ended_by in _BAD_ENDS else []


def _with_shares(total: tuple[Any, ...], recent: tuple[Any, ...], *names: str) -> tuple[Any, ...]:
    shares = [{name: getattr(now, name) for name in names} for now in recent]
    return tuple(replace(each, **now) for each, now in zip(total, shares, strict=False))


class _Server(LiveServer):
    """The server: no page, three addresses."""

    def __init__(self, owner: MetricsServer, **options: Any) -> None:
        self._owner = owner
        self.open_paths = {"/health", "/ready", *(() if options["read_token"] else ("/metrics",))}
        super().__init__(
            "the metrics", "", {}, remedy="name another in HEADRACE_METRICS=host:port", clients=0, **options
        )

    def add_routes(self, router: Any) -> None:
        """Answer under three addresses."""
        router.add_get("/metrics", self._metrics)
        router.add_get("/health", self._health)
        router.add_get("/ready", self._ready)

    def metrics(self) -> bytes:
        """Return the figures of all runs, and those of the process."""
        return self._owner._text(self._owner._registry)

    async def _health(self, request: Any) -> Any:
        return self._answer(*self._owner.health())

    async def _ready(self, request: Any) -> Any:
        return self._answer(*self._owner.ready())

    def _answer(self, is_good: bool, answer: dict[str, Any]) -> Any:
        text = json.dumps({"status": "ok" if is_good else "unavailable", **answer}) + "\n"
        headers = {"Cache-Control": "no-store"}
        return self._web.Response(
            text=text, status=200 if is_good else 503, content_type="application/json", headers=headers
        )
