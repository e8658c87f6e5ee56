"""/metrics, /health and /ready: what a program that runs for months tells about itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from headrace import Application, CountCondition, Operator, op
from headrace.observe import MetricsServer, environment
from tests.harness import PATIENCE, MakeScheduler

pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def asked(server: MetricsServer, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status of an answer, and what it says about each application."""
    status, text = get(f"{server.url}{path}")
    answer = json.loads(text)
    assert answer["status"] == ("ok" if status == 200 else "unavailable")
    return status, {name: (each["state"], each["problems"]) for name, each in answer["applications"].items()}


class Meeting(Operator):
    """Waits in each of its phases until the test has looked."""

    def setup(self, spec: Any) -> None:
        spec.param("app")

    def phase(self, name: str) -> None:
        look = getattr(self.app, "look", None)
        if look is not None:
            look(name)

    def start(self) -> None:
        self.phase("start")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.phase("compute")

    def stop(self) -> None:
        self.phase("stop")


class Service(Application):
    look: Any = None
    schedule: MakeScheduler | None = None

    def compose(self) -> None:
        if self.schedule is not None:
            self.scheduler(self.schedule(self))
        if self.look is not None:
            self.look("compose")
        self.add_operator(Meeting(self, CountCondition(self, 1), app=self, name="meeting"))


@pytest.fixture
def app() -> Service:
    return Service(name="service")


@pytest.fixture
def server(app: Service) -> Iterator[MetricsServer]:
    with MetricsServer(app) as server:
        yield server


def test_a_program_is_ready_while_it_runs_and_healthy_all_the_time(
    app: Service, server: MetricsServer, scheduler: MakeScheduler
) -> None:
    seen: dict[str, Any] = {}

    def look(phase: str) -> None:
        seen[phase] = [asked(server, path)[0] for path in ("/ready", "/health")] + [
            asked(server, "/health")[1]["service"][0]
        ]

    app.look, app.schedule = look, scheduler
    look("before")
    app.run()
    look("after")
    assert seen == {
        "before": [503, 200, "not started"],
        "compose": [503, 200, "starting"],
        "start": [503, 200, "starting"],
        "compute": [200, 200, "running"],
        "stop": [503, 200, "stopping"],
        "after": [503, 200, "ended"],
    }


@pytest.mark.parametrize("phase", ["compose", "start", "compute"])
def test_a_program_that_failed_is_not_healthy_until_its_next_run(
    app: Service, server: MetricsServer, phase: str
) -> None:
    def fail(now: str) -> None:
        if now == phase:
            raise ZeroDivisionError("on purpose")

    app.look = fail
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert asked(server, "/ready")[0] == 503
    status, states = asked(server, "/health")
    state, (problem,) = states["service"]
    assert (status, state) == (503, "ended")
    assert "compose raised" in problem or "ZeroDivisionError: on purpose" in problem
    app.look = None
    app.run()
    assert asked(server, "/health")[0] == 200


def test_the_process_and_the_run_are_named(app: Service, server: MetricsServer) -> None:
    app.run()
    with urlopen(server.url + "/health") as answer:
        (state,) = json.load(answer)["applications"].values()
    assert (state["process"], state["run"]) == (os.getpid(), app.run_id)
    assert "parts" not in state


def test_a_paused_program_is_not_ready(app: Service, server: MetricsServer) -> None:
    paused = Event()

    def look(phase: str) -> None:
        if phase == "compute":
            app.pause()
            assert asked(server, "/ready") == (503, {"service": ("paused", [])})
            app.resume()
            assert asked(server, "/ready")[0] == 200
            paused.set()

    app.look = look
    app.run()
    assert paused.is_set()


def test_a_stuck_operator_is_not_healthy(
    app: Service, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def look(phase: str) -> None:
        if phase == "compute":
            app.graph.find("meeting").spec.time_limit = 500_000_000  # type: ignore[attr-defined,unused-ignore]
            stuck = SimpleNamespace(computing={"meeting": 2.0})
            monkeypatch.setattr("headrace.core.outcome.progress_of", lambda fragment: stuck)
            seen.append((asked(server, "/health"), asked(server, "/ready")[0]))
            stuck.computing["meeting"] = 0.5
            seen.append(asked(server, "/health")[0])

    app.look = look
    app.run()
    problem = "operator 'meeting' has computed for 2.0 s; its deadline is 0.5 s"
    assert seen == [((503, {"service": ("running", [problem])}), 503), 200]


def test_figures_of_all_runs_and_of_the_process_are_served(app: Service, server: MetricsServer) -> None:
    other = Service(name="other")
    server.add(other)
    for each in (app, other):
        each.run()
    status, text = get(f"{server.url}/metrics")
    assert status == 200
    for name in ("service", "other"):
        labels = f'{{application="{name}",operator="meeting"}}'
        assert f"headrace_computes_total{labels} 1.0" in text
        assert f"headrace_skipped_errors_total{labels} 0.0" in text
        assert f"headrace_restarts_total{labels} 0.0" in text
    assert text.count("# TYPE headrace_compute_seconds histogram") == 1
    assert "process_resident_memory_bytes" in text or "process_" not in text  # there is no /proc on a Mac
    assert asked(server, "/ready")[0] == 503


def test_two_applications_of_one_name_are_both_seen(app: Service, server: MetricsServer) -> None:
    second = Service(name="service")
    second.look = lambda phase: 1 / 0
    server.add(second)
    server.add(second)
    app.run()
    with pytest.raises(ZeroDivisionError):
        second.run()
    status, states = asked(server, "/health")
    assert status == 503
    assert {name: len(problems) for name, (_, problems) in states.items()} == {"service": 0, "service_2": 1}
    second.look = None
    second.run()
    _, text = get(f"{server.url}/metrics")
    for name in ("service", "service_2"):
        assert f'headrace_computes_total{{application="{name}",operator="meeting"}} 1.0' in text


def test_shares_are_those_of_the_last_seconds(server: MetricsServer) -> None:
    from headrace.observe.service import WINDOW
    from tests.harness import App
    from tests.observe.figures.test_statistics import chain

    app = App(chain(1, 2, count=3))
    server.add(app)
    app.run()
    (served,) = [watcher for watcher in app._headrace.watchers if hasattr(watcher, "figures")]
    assert served.served().operator("b").busy > 0
    assert served.window == WINDOW


def test_a_token_is_for_the_figures_alone(app: Service) -> None:
    with MetricsServer(app, token="secret") as server:
        figures = f"{server.url}/metrics"
        assert get(figures)[0] == 403
        assert get(f"{figures}?token=wrong")[0] == 403
        assert get(f"{figures}?token=secret")[0] == 200
        assert get(figures, Authorization="Bearer secret")[0] == 200
        assert get(figures, Authorization="Basic secret")[0] == 403
        assert get(f"{server.url}/health")[0] == 200
        assert get(f"{server.url}/?token=secret")[0] == 404  # there is no page
        assert get(figures, Authorization="Bearer secret", Host="evil.example")[0] == 421


def test_a_closed_server_watches_no_more(app: Service) -> None:
    server = MetricsServer(app)
    server.close()
    assert app._headrace.watchers == []
    with pytest.raises(OSError):
        get(f"{server.url}/health")


def test_a_port_that_is_taken_is_named(server: MetricsServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(
        RuntimeError, match=f"the metrics cannot listen on 127.0.0.1:{port}.*HEADRACE_METRICS"
    ):
        MetricsServer(port=port)


def test_the_environment_asks_for_one_server_for_all_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment, "_metrics", None)
    monkeypatch.setenv("HEADRACE_METRICS", "127.0.0.1:0")
    seen: list[int] = []

    class Asking(Application):
        def compose(self) -> None:
            @op
            def ask() -> None:
                assert environment._metrics is not None
                seen.append(asked(environment._metrics, "/ready")[0])

            self.add_operator(ask(self, CountCondition(self, 1)))

    for name in ("first", "second"):
        Asking(name=name).run()
    server = environment._metrics
    assert server is not None
    try:
        assert seen == [200, 200]
        assert set(asked(server, "/health")[1]) == {"first", "second"}
        Asking(name="first").run()  # takes the place of the one that has ended
        assert set(asked(server, "/health")[1]) == {"first", "second"}
        assert capsys.readouterr().err.splitlines() == [f"metrics: {server.url}/metrics"]
    finally:
        server.close()
    monkeypatch.setenv("HEADRACE_METRICS", "here")
    with pytest.raises(ValueError, match="HEADRACE_METRICS=here"):
        Asking().run()
