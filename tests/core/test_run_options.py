"""What the environment changes in a run, without a change to the program."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.core import EndedBy
from headrace.core.run_options import parse_duration, parse_scheduler
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.harness import App, MakeScheduler, Step, greedy, multi_thread, run, sink, source


def endless(app: App, taken: list[int] | None = None) -> None:
    def emit(self: Step, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out")

    app.add_flow(
        Step(app, outputs=["out"], body=emit, name="endless"), sink(app, [] if taken is None else taken)
    )


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The schedulers that executed a run."""
    found: list[Any] = []

    def recording(kind: Any) -> Any:
        execute = kind.execute

        def record(self: Any, engine: Any) -> None:
            found.append(self)
            execute(self, engine)

        return record

    for kind in (GreedyScheduler, MultiThreadScheduler):
        monkeypatch.setattr(kind, "execute", recording(kind))
    return found


def test_a_count_ends_each_source_and_every_message_arrives(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    monkeypatch.setenv("HEADRACE_COUNT", "7")
    taken: list[int] = []
    app = run(lambda app: endless(app, taken), scheduler)
    assert taken == [1, 2, 3, 4, 5, 6, 7]
    assert app.outcome.ended_by is EndedBy.FINISHED


def test_only_sources_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_COUNT", "3")

    def emit(self: Step, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out")

    taken: list[int] = []

    def compose(app: App) -> None:
        end = sink(app, taken)
        for name in ("left", "right"):
            app.add_flow(Step(app, outputs=["out"], body=emit, name=name), end, size=2)

    run(compose)
    assert sorted(taken) == [1, 1, 2, 2, 3, 3]


def test_a_duration_ends_the_run_by_its_clock(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    from headrace.conditions import PeriodicCondition

    monkeypatch.setenv("HEADRACE_DURATION", "20ms")
    app = run(lambda app: app.add_operator(Step(app, PeriodicCondition(app, "3ms"))), scheduler)
    assert app.outcome.ended_by is EndedBy.DURATION
    assert app.outcome.seconds == pytest.approx(0.020)
    # The application's own scheduler is as it was.
    assert app.scheduler().max_duration_ms == -1


@pytest.mark.parametrize(
    ("variables", "kind", "workers"),
    [
        ({"HEADRACE_SCHEDULER": "event:3"}, EventBasedScheduler, 3),
        ({"HEADRACE_SCHEDULER": "multithread:2"}, MultiThreadScheduler, 2),
    ],
)
def test_another_scheduler_runs_the_application(
    monkeypatch: pytest.MonkeyPatch,
    used: list[Any],
    variables: dict[str, str],
    kind: type,
    workers: int,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    threads: set[int] = set()

    def note(self: Step, op_input: Any, op_output: Any) -> None:
        threads.add(threading.get_ident())

    from headrace.conditions import CountCondition

    app = run(lambda app: app.add_operator(Step(app, CountCondition(app, 3), body=note)), greedy)
    (scheduler,) = used
    assert type(scheduler) is kind
    assert scheduler.worker_thread_number == workers
    assert threading.get_ident() not in threads
    assert isinstance(app.scheduler(), GreedyScheduler)
    assert scheduler.clock is app.scheduler().clock


def test_greedy_replaces_workers_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch, used: list[Any]) -> None:
    monkeypatch.setenv("HEADRACE_SCHEDULER", "greedy")
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])), multi_thread, max_duration_ms=1234)
    (scheduler,) = used
    assert type(scheduler) is GreedyScheduler
    assert scheduler.max_duration_ms == 1234


def test_without_any_workers_before_there_are_as_many_as_cores(
    monkeypatch: pytest.MonkeyPatch, used: list[Any]
) -> None:
    monkeypatch.setenv("HEADRACE_SCHEDULER", "event")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert used[0].worker_thread_number == 3


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("HEADRACE_SCHEDULER", "fast", "HEADRACE_SCHEDULER=fast: must be greedy, multithread, event, or"),
        ("HEADRACE_SCHEDULER", "greedy:2", "the greedy scheduler has no workers; write greedy, or event:4"),
        (
            "HEADRACE_SCHEDULER",
            "event:0",
            "'0' workers: must be a whole number from 1 to 1024; write event:4",
        ),
        ("HEADRACE_SCHEDULER", "event:100000000", "must be a whole number from 1 to 1024; write event:4"),
        ("HEADRACE_SCHEDULER", "event:" + "9" * 5000, "must be a whole number from 1 to 1024"),
        ("HEADRACE_SCHEDULER", "multithread:1025", "must be a whole number from 1 to 1024"),
        ("HEADRACE_COUNT", "9" * 5000, "must be a whole number of at least 1 and at most 18 digits"),
        ("HEADRACE_DURATION", "10", "HEADRACE_DURATION=10: must be a number with a unit, as in 500ms"),
        ("HEADRACE_DURATION", "-3s", "must be a number with a unit"),
        ("HEADRACE_DURATION", "30Hz", "must be a number with a unit"),
        ("HEADRACE_DURATION", "0s", "must be more than 0"),
        ("HEADRACE_COUNT", "ten", "HEADRACE_COUNT=ten: must be a whole number of at least 1"),
        ("HEADRACE_COUNT", "0", "at least 1"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv(name, value)
    app = App(endless)
    with pytest.raises(ValueError, match=text) as caught:
        app.run()
    assert str(caught.value).startswith(f"{name}={value}: ")


@pytest.mark.parametrize(("text", "milliseconds"), [("10s", 10_000), ("1.5 min", 90_000), ("100us", 0.1)])
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


def test_the_names_of_schedulers() -> None:
    assert parse_scheduler("Event:2") == ("event", 2)
    assert parse_scheduler("greedy") == ("greedy", None)


@pytest.mark.parametrize("text", ["1e400s", "1e99s", "9" * 400 + "s", "1000000h"])
def test_a_duration_longer_than_a_life_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be (a number with a unit|less than 100 years)"):
        parse_duration(text)
