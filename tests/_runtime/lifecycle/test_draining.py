"""Draining: the sources end first, and what is under way is computed."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from headrace import Application, CountCondition, Operator, PeriodicCondition
from headrace.operators import FeedOp, ResultsOp
from tests.harness import PATIENCE, SCHEDULERS, MakeScheduler, greedy, wait_until


class Numbers(Operator):
    """Emits numbers for ever."""

    def setup(self, spec: Any) -> None:
        spec.output("out", size=4)

    def start(self) -> None:
        self.sent = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        for _ in range(4):
            op_output.emit(self.sent, "out")
            self.sent += 1


class Work(Operator):
    """Passes on what it receives; it may do something at a number."""

    def __init__(self, fragment: Any, *args: Any, at: dict[int, Any] | None = None, **kwargs: Any) -> None:
        self.at = at or {}
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.received: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number = op_input.receive("in")
        self.received.append(number)
        self.at.get(len(self.received), lambda: None)()
        op_output.emit(number, "out")


class Service(Application):
    """A source for ever, and two operators behind long queues."""

    def __init__(self, scheduler: MakeScheduler = greedy, at: dict[int, Any] | None = None) -> None:
        super().__init__([])
        self._make, self._at = scheduler, at

    def compose(self) -> None:
        self.scheduler(self._make(self))
        self.numbers, self.first = Numbers(self, name="numbers"), Work(self, name="first", at=self._at)
        self.last = Work(self, name="last")
        self.add_flow(self.numbers, self.first, size=8)
        self.add_flow(self.first, self.last, size=8)

    @property
    def arrived(self) -> list[int]:
        return self.last.received


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_what_is_under_way_is_computed(scheduler: MakeScheduler) -> None:
    app = Service(scheduler, at={10: lambda: app.drain()})
    outcome = app.run()
    assert outcome.ended_by == "finished"
    assert app.arrived == list(range(app.numbers.sent)) != []


def test_a_paused_run_goes_on_to_its_end() -> None:
    app = Service(at={10: lambda: app.pause()})
    future = app.run_async()
    assert app.wait_until_started(PATIENCE)
    assert app.wait_until_paused(PATIENCE)
    app.drain()
    assert future.result(PATIENCE).ended_by == "finished"
    assert app.arrived == list(range(app.numbers.sent))


def test_feeds_end_after_their_frames_and_results_stay() -> None:
    class Echo(Application):
        def compose(self) -> None:
            self.add_flow(FeedOp(self, name="asked"), ResultsOp(self, name="found"))

    app = Echo()
    with app.running():
        for number in range(3):
            app.feed("asked").put(number)
        app.drain()
        assert app.feed("asked").is_closed
        assert list(app.results("found")) == [0, 1, 2]


def test_a_run_that_has_not_begun_is_stopped() -> None:
    class Early(Service):
        def compose(self) -> None:
            self.drain()
            super().compose()

    app = Early()
    assert app.run().ended_by == "stopped"


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_sigterm_drains_a_run_with_a_stop_timeout(scheduler: MakeScheduler) -> None:
    app = Service(scheduler, at={10: lambda: signal.raise_signal(signal.SIGTERM)})
    app.stop_timeout = "60s"
    with pytest.raises(SystemExit) as raised:
        app.run()
    assert raised.value.code == 143
    assert app.outcome.ended_by == "interrupted"
    assert app.arrived == list(range(app.numbers.sent)) != []


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(second: signal.Signals) -> None:
    def interrupt() -> None:
        control = app._headrace.run_control
        signal.raise_signal(signal.SIGTERM)
        wait_until(lambda: control.drain_wanted, "the first signal")
        signal.raise_signal(second)
        wait_until(lambda: control.stop_wanted, "the second signal")

    app = Service(at={10: interrupt})
    app.stop_timeout = "60s"
    with pytest.raises(SystemExit):
        app.run()
    assert len(app.arrived) < app.numbers.sent
    assert app.outcome.undelivered


def test_ctrl_c_stops_at_once() -> None:
    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)
        wait_until(lambda: app._headrace.run_control.stop_wanted, "the signal")

    app = Service(at={10: interrupt})
    app.stop_timeout = "60s"
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert len(app.arrived) < app.numbers.sent


def test_what_does_not_end_is_stopped_after_half_of_the_time() -> None:
    class Loop(Application):
        """A message goes round for ever."""

        def compose(self) -> None:
            numbers = Numbers(self, CountCondition(self, 1), name="numbers")
            every = PeriodicCondition(self, "1ms")  # it waits between its rounds
            work = Work(self, every, name="work", at={5: self.terminate})
            for sender in (work, numbers):
                self.add_flow(sender, work, size=8)

        def terminate(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    app = Loop()
    app.stop_timeout = "400ms"
    with pytest.raises(SystemExit) as raised:
        app.run()
    assert raised.value.code == 143, "it stopped in time"


def test_a_periodic_source_is_not_waited_for() -> None:
    class Slow(Service):
        def compose(self) -> None:
            super().compose()
            self.numbers.add_arg(PeriodicCondition(self, "1h"))

    app = Slow(at={4: lambda: app.drain()})
    assert app.run().ended_by == "finished"
    assert app.arrived == [0, 1, 2, 3]
