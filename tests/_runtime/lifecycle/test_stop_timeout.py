"""A run that does not stop is given up after its stop_timeout; nothing is released under what still runs."""

from __future__ import annotations

import itertools
import signal
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from headrace import CountCondition, Operator
from headrace._runtime.lifecycle import tear_down
from headrace.core import ParameterError, StuckError
from headrace.core.control import RunControl
from headrace.resources import ManualClock
from headrace.schedulers import EventBasedScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source, wait_until
from tests.harness.application import SEVERAL
from tests.harness.processes import signal_python


@pytest.fixture(autouse=True)
def is_over(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Any time to stop is over from the moment that a test sets this, and not before."""
    over, hours = threading.Event(), itertools.count(1)
    monkeypatch.setattr(tear_down, "monotonic", lambda: 3600.0 * next(hours) if over.is_set() else 0.0)
    return over


class Stuck(Operator):
    """Stops the run, lets its time be over, and computes until the test lets it go."""

    def start(self) -> None:
        self.may_end = threading.Event()
        self.log: list[str] = []

    def stop(self) -> None:
        self.log.append("stop")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.stop_and_wait()
        self.log.append("computed")

    def stop_and_wait(self) -> None:
        self.fragment.stop_execution()
        self.fragment.is_over.set()  # type: ignore[attr-defined]
        assert self.may_end.wait(PATIENCE)


class Joined(Stuck):
    """Does so after another operator has joined the run."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.fragment.add_operator(Step(self.fragment, CountCondition(self.fragment, 1), name="late"))
        super().compute(op_input, op_output, context)


def stuck_app(
    scheduler: MakeScheduler, is_over: threading.Event, others: Any = None, kind: type[Stuck] = Stuck
) -> Any:
    def compose(app: Any) -> None:
        app.stuck = kind(app, CountCondition(app, 1), name="stuck")
        app.add_operator(app.stuck)
        if others is not None:
            others(app)

    app: Any = App(compose, scheduler)
    app.stop_timeout = "1ms"
    app.is_over = is_over
    return app


def let_go(app: Any) -> None:
    """Let the compute end, and wait for the end of the run."""
    app.stuck.may_end.set()
    wait_until(lambda: not app._headrace.controls, "the end of the run")


@pytest.mark.parametrize("kind", [Stuck, Joined])
def test_a_run_whose_compute_does_not_return_is_given_up(
    scheduler: MakeScheduler, is_over: threading.Event, kind: type[Stuck]
) -> None:
    app = stuck_app(scheduler, is_over, kind=kind)
    with pytest.raises(StuckError) as caught:
        app.run()
    text = str(caught.value)
    assert text.startswith(
        f"'App' has not stopped within 0.001 s: it still waits for compute of 'stuck' ({kind.__name__})."
    )
    assert "stack of operator 'stuck':" in text
    assert "in stop_and_wait" in text
    outcome = app.outcome
    assert outcome.ended_by == "failed"
    assert outcome.errors[0].kind == "StuckError"
    assert app.stuck.log == []
    with pytest.raises(RuntimeError, match="is running already"):
        app.run()
    let_go(app)
    assert app.stuck.log == ["computed", "stop"]  # in the background, when it was safe
    assert app.outcome is outcome
    app.stop_timeout = None
    assert app.progress().is_running is False


@pytest.mark.parametrize("workers", SEVERAL)
def test_no_operator_is_stopped_and_no_message_released_under_a_stuck_compute(
    workers: int, is_over: threading.Event
) -> None:
    taken: list[int] = []
    stopped: list[str] = []

    class Other(Step):
        def stop(self) -> None:
            stopped.append(self.name)

    def others(app: Any) -> None:
        end = Other(app, inputs=["in"], body=lambda s, i, o: taken.append(i.receive("in")), name="end")
        app.add_flow(source(app, range(50)), end)

    def scheduler(app: Any, **settings: Any) -> Any:
        return EventBasedScheduler(app, clock=ManualClock(app), worker_thread_number=workers)

    app = stuck_app(scheduler, is_over, others)
    with pytest.raises(StuckError, match="it still waits for compute of 'stuck'"):
        app.run()
    assert stopped == []
    let_go(app)
    assert stopped == ["end"]


def test_the_error_that_ended_the_run_is_raised_with_a_note_about_what_is_stuck(
    is_over: threading.Event,
) -> None:
    began = threading.Event()

    def others(app: Any) -> None:
        def body(self: Step, i: Any, o: Any) -> None:
            assert began.wait(PATIENCE)
            raise ZeroDivisionError("first")

        app.add_operator(Step(app, body=body, name="failing"))

    def scheduler(app: Any, **settings: Any) -> Any:
        return EventBasedScheduler(app, clock=ManualClock(app), worker_thread_number=2)

    class Silent(Stuck):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            is_over.set()
            began.set()
            assert self.may_end.wait(PATIENCE)

    def compose(app: Any) -> None:
        app.stuck = Silent(app, CountCondition(app, 1), name="stuck")
        app.add_operator(app.stuck)
        others(app)

    app: Any = App(compose, scheduler)
    app.stop_timeout = "1ms"
    with pytest.raises(ZeroDivisionError, match="first") as caught:
        app.run()
    assert any(
        note.startswith("and the run did not stop: StuckError: 'App'") for note in caught.value.__notes__
    )
    assert [type(error) for error in caught.value.other_errors] == [StuckError]  # type: ignore[attr-defined]
    let_go(app)


def test_an_error_that_the_run_is_about_to_report_is_listed_once(is_over: threading.Event) -> None:
    """The run is given up while it goes through its errors, and has some of them twice."""
    both, may_end = threading.Barrier(2), threading.Event()

    class Slow(Exception):
        def __str__(self) -> str:
            if threading.current_thread().name == "App run":
                is_over.set()
                assert may_end.wait(PATIENCE)
            return f"error of {self.args[0]}"

    def body(op: Step, i: Any, o: Any) -> None:
        both.wait(PATIENCE)
        raise Slow(op.name)

    def compose(app: Any) -> None:
        for name in ("one", "other"):
            app.add_operator(Step(app, CountCondition(app, 1), body=body, name=name))

    app: Any = App(
        compose, lambda app: EventBasedScheduler(app, clock=ManualClock(app), worker_thread_number=2)
    )
    app.stop_timeout = "1ms"
    with pytest.raises(Slow) as caught:
        app.run()
    others = caught.value.other_errors  # type: ignore[attr-defined]
    assert [type(error) for error in others] == [Slow, StuckError]
    assert sorted(record.message for record in app.outcome.errors[:2]) == ["error of one", "error of other"]
    assert len(app.outcome.errors) == 3
    may_end.set()
    wait_until(lambda: not app._headrace.controls, "the end of the run")


def test_the_run_and_whoever_gives_it_up_may_take_the_same_error_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Contested(deque[BaseException]):
        """The other thread takes the last error after this one has seen it."""

        def __bool__(self) -> bool:
            return True

    begin = RunControl.begin

    def begin_contested(control: RunControl, engine: Any) -> None:
        control.errors = Contested([LookupError("from outside")])
        begin(control, engine)

    monkeypatch.setattr(RunControl, "begin", begin_contested)
    with pytest.raises(LookupError, match="from outside") as caught:
        run(lambda app: app.add_operator(Step(app, CountCondition(app, 1), name="one")))
    assert not hasattr(caught.value, "other_errors")


def test_a_stop_that_does_not_return_is_given_up_too(is_over: threading.Event) -> None:
    may_end = threading.Event()

    class Hanging(Step):
        def stop(self) -> None:
            is_over.set()
            assert may_end.wait(PATIENCE)

    app = App(lambda app: app.add_operator(Hanging(app, CountCondition(app, 1), name="hanging")))
    app.stop_timeout = 0.001
    with pytest.raises(StuckError, match=r"it still waits for stop\(\) of operator 'hanging'") as caught:
        app.run()
    assert "in stop\n" in str(caught.value)
    may_end.set()
    wait_until(lambda: not app._headrace.controls, "the end of the run")


def test_a_run_that_stops_in_time_is_as_without_a_limit(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        app.add_flow(source(app, range(5)), sink(app, taken))

    monkeypatch.setenv("HEADRACE_STOP_TIMEOUT", "1h")
    outcome = run(compose, scheduler).outcome
    assert (taken, outcome.ended_by) == (list(range(5)), "finished")

    def fail(app: Any) -> None:
        raise LookupError("no camera")

    with pytest.raises(LookupError, match="no camera"):
        run(fail, scheduler)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (10, "needs a unit, as in '10s'"),
        ("soon", "must be"),
        ("0s", "must be positive"),
        (-1.5, "must be positive"),
    ],
)
def test_a_timeout_that_makes_no_sense_is_refused(wrong: Any, why: str) -> None:
    app = App(lambda app: app.add_operator(Step(app, name="a")))
    app.stop_timeout = wrong
    with pytest.raises(ParameterError, match=f"stop_timeout of 'App' {why}"):
        app.run()
    assert not app._headrace.controls


PROGRAM = """
import sys, time
from headrace import Application, EventBasedScheduler, GreedyScheduler, op

@op
def stuck():
    loop_for_ever()

def loop_for_ever():
    print("computing", flush=True)
    while True:
        try:
            time.sleep(3600)
        except BaseException:
            pass  # a loop that nothing ends

class Service(Application):
    stop_timeout = "50ms"
    def compose(self):
        self.scheduler(GreedyScheduler(self) if sys.argv[1] == "greedy" else EventBasedScheduler(self))
        self.add_operator(stuck(self))

try:
    Service().run()
finally:
    print("cleaned up", flush=True)
"""


@pytest.mark.parametrize("kind", ["greedy", "event"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 1), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_the_process_although_a_compute_is_stuck(
    kind: str, number: signal.Signals, status: int, tmp_path: Path
) -> None:
    program = tmp_path / "service.py"
    program.write_text(PROGRAM)
    done = signal_python(number, program, kind)
    assert done.returncode == status
    assert "it still waits for compute of 'stuck' (FunctionOperator)" in done.stderr
    assert "in loop_for_ever" in done.stderr
    assert "cleaned up" in done.stdout
