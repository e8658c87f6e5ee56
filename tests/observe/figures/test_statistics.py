"""What an observation counts and times, on the host and in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import ConditionType
from headrace.observe import Computes, Flows, RunInfo, Watcher, watch
from headrace.observe.figures.distribution import Distribution
from headrace.observe.figures.recent_computes import RecentRows
from headrace.resources import RealtimeClock
from tests.harness.application import App, MakeScheduler, greedy, multi_thread
from tests.harness.operators import Step

MS = 1_000_000


class Collects(Watcher):
    """Collects everything that a run shows."""

    def __init__(self) -> None:
        self.computes: list[Computes] = []
        self.flows: list[Flows] = []
        self.ended = 0

    def begin(self, run: RunInfo) -> None:
        self.run = run

    def computed(self, computes: Computes) -> None:
        self.computes.append(computes)

    def flowed(self, flows: list[Flows]) -> None:
        self.flows += flows

    def end(self, outcome: Any) -> None:
        self.ended += 1


def takes(milliseconds: float) -> Any:
    """Return a body that passes on what it receives after some time of the run's clock."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in") if self.spec.inputs else self.ticks
        self.fragment.scheduler().clock.sleep_for(int(milliseconds * MS))
        if self.spec.outputs:
            op_output.emit(message, "out")

    return body


def chain(*milliseconds: float, count: int = 5, period: float = 10) -> Any:
    """Return a compose of a chain whose operators take so long: a, b, c and so on."""

    def compose(app: Any) -> None:
        steps = []
        for number, (name, duration) in enumerate(zip("abcdef", milliseconds, strict=False)):
            ports = {
                "inputs": ["in"] if number else [],
                "outputs": ["out"] if number + 1 < len(milliseconds) else [],
            }
            conditions = (
                [] if number else [CountCondition(app, count), PeriodicCondition(app, int(period * MS))]
            )
            steps.append(Step(app, *conditions, body=takes(duration), name=name, **ports))
        for before, after in pairwise(steps):
            app.add_flow(before, after)

    return compose


def tracked(compose: Any, scheduler: MakeScheduler = greedy) -> Any:
    app = App(compose, scheduler)
    tracker = app.track()
    app.run()
    return tracker.statistics


def test_a_message_that_comes_in_the_compute_that_receives_it_does_not_wait() -> None:
    received: list[Any] = []

    def sends_to_itself(self: Any, op_input: Any, op_output: Any) -> None:
        self.fragment.scheduler().clock.sleep_for(4 * MS)
        op_output.emit(self.ticks, "out")
        received.append(op_input.receive("in"))

    def compose(app: Any) -> None:
        loop = Step(
            app,
            CountCondition(app, 1),
            outputs=["out"],
            setup=lambda spec: spec.input("in").condition(ConditionType.NONE),
            body=sends_to_itself,
            name="loop",
        )
        app.add_flow(loop, loop)

    collects = Collects()
    app = App(compose)
    watch(app, collects)
    app.run()
    (computes,) = collects.computes
    (arrivals,) = computes.arrivals
    assert received == [1]
    assert (computes.started.tolist(), arrivals.received.tolist()) == ([0], [4 * MS])


def test_a_timestamp_is_that_of_the_clock_as_it_began_with_the_run() -> None:
    class Restarts(RealtimeClock):
        """A clock that showed another time before the run; it begins anew with each run."""

        def timestamp(self) -> int:
            return super().timestamp() + (0 if self.has_begun else 100_000 * MS)

        has_begun = False

        def initialize(self) -> None:
            super().initialize()
            self.has_begun = app is not None

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(1, "out", acq_timestamp=context.timestamp)

    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, 1), outputs=["out"], body=emit, name="source")
        app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="last"))

    app = None
    app = App(compose, clock=Restarts())
    tracker = app.track()
    app.run()
    assert tracker.statistics.path("source,last").latency.max < 50_000 * MS


@pytest.mark.parametrize("stamp", [1 << 60, -(1 << 60), -1_000_000_000_000])
def test_a_timestamp_of_another_clock_is_ignored(stamp: int) -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            PeriodicCondition(app, 3_600_000 * MS),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out", acq_timestamp=stamp),
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=takes(1), name="last"))

    statistics = tracked(compose)
    assert statistics.path("source,last").latency.p99 == 1 * MS


def test_a_signal_handler_may_ask_for_figures_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Distribution.add
    asked: list[Any] = []

    def interrupted(self: Distribution, *values: Any) -> None:
        add(self, *values)
        asked.append((tracker.statistics.paths, tracker.statistics.queues, goal.figure("p99")))

    monkeypatch.setattr(Distribution, "add", interrupted)
    app = App(chain(1, 2, 3))
    tracker, goal = app.track(), app.expect("a->c", p99="1s")
    app.run()
    assert asked
    assert tracker.statistics.operator("c").count == goal.count == 5


def test_a_watcher_that_raises_ends_the_watching_and_not_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Collects):
        def computed(self, computes: Computes) -> None:
            raise RuntimeError("broken on purpose")

        def end(self, outcome: Any) -> None:
            super().end(outcome)
            raise RuntimeError("broken to the end")

    app = App(chain(1, 1))
    broken, good = Broken(), Collects()
    watch(app, broken)
    watch(app, good)
    app.run()
    assert caplog.text.count("Broken raised, and watches no more") == 1
    assert caplog.text.count("Broken raised at the end of the run") == 1
    assert (broken.ended, good.ended) == (1, 1), "also one that failed has a server or a file to close"
    assert sum(len(each.started) for each in good.computes) == 10


def test_an_operator_that_raises_is_counted_and_the_run_is_observed_to_its_end() -> None:
    def fail(self: Any, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        if self.ticks == 3:
            raise ZeroDivisionError

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 5),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=fail, name="last"))

    app = App(compose)
    collects = Collects()
    watch(app, collects)
    tracker = app.track()
    with pytest.raises(ZeroDivisionError):
        app.run()
    assert collects.ended == 1
    assert tracker.statistics.operator("last").count == 3


def test_data_is_shown_once_however_many_receive_it() -> None:
    class Shows(Collects):
        wants_data = True

        def begin(self, run: RunInfo) -> None:
            self.shown: list[tuple[str, str]] = []

        def emitted(self, output: Any, item: Any, time: int) -> None:
            self.shown.append(("emitted", output.name))

        def received(self, queue: Any, item: Any, time: int) -> None:
            self.shown.append(("received", queue.name))

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 1),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out"),
            name="source",
        )
        for name in ("left", "right"):
            app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name=name))

    app = App(compose)
    shows = Shows()
    watch(app, shows)
    app.run()
    assert sorted(shows.shown) == [
        ("emitted", "source.out"),
        ("received", "left.in"),
        ("received", "right.in"),
    ]


def test_threads_are_noted_for_those_who_ask() -> None:
    class Threads(Collects):
        wants_threads = True

    app = App(chain(1, 1, 1), multi_thread)
    collects = Threads()
    watch(app, collects)
    app.run()
    threads = np.concatenate([each.threads for each in collects.computes])
    assert (threads != 0).all()


def test_a_run_that_nobody_watches_has_plain_queues_and_computes() -> None:
    kinds: set[str] = set()

    def compose(app: Any) -> None:
        def look(self: Any, op_input: Any, op_output: Any) -> None:
            kinds.add(type(self._headrace.node.inputs[0]).__name__)
            kinds.add(self._headrace.node.engine.observer is None)
            op_input.receive("in")

        source = Step(
            app, CountCondition(app, 2), outputs=["out"], body=lambda self, i, o: o.emit(1, "out"), name="s"
        )
        app.add_flow(source, Step(app, inputs=["in"], body=look, name="last"))

    App(compose).run()
    assert kinds == {"Queue", True}


def test_what_is_remembered_does_not_grow_with_the_run() -> None:
    app = App(chain(0, 0, count=2000, period=0.001))
    collects = Collects()
    watch(app, collects)
    app.run()
    reader = collects.observation._reader
    assert sum(len(each.started) for each in collects.computes) == 4000
    assert [log.length for log in reader._logs] == [0, 0]
    assert sum(len(way.computes) for ways in reader._tables._ways.values() for way in ways.values()) <= 2


# Distributions.


@pytest.mark.parametrize("count", [1, 100, 4096, 4097, 100_000])
def test_percentiles_are_exact_for_few_values_and_near_for_many(count: int) -> None:
    values = np.random.default_rng(count).lognormal(14, 2, count).astype(np.int64)
    distribution = Distribution()
    for part in np.array_split(values, 7):
        distribution.add(part, part)
    for percent in (1, 50, 95, 99, 99.9, 100):
        expected = np.percentile(values, percent, method="inverted_cdf")
        tolerance = 0 if count <= 4096 else 0.005
        assert distribution.percentile(percent) == pytest.approx(expected, rel=tolerance), percent
    summary = distribution.summary()
    assert (summary.count, summary.min, summary.max) == (count, values.min(), values.max())
    assert summary.mean == pytest.approx(values.mean())


def test_negative_and_huge_values_have_their_places() -> None:
    distribution = Distribution()
    values = np.array([-5, 0, 1, 255, 256, 1 << 62] * 1000)
    distribution.add(values, values)
    assert (distribution.min, distribution.max) == (0, 1 << 62)
    assert distribution.percentile(1) == 0
    assert distribution.percentile(100) == pytest.approx(1 << 62, rel=0.005)
    assert Distribution().summary().count == 0


def test_recent_computes_are_found_by_their_numbers_and_old_ones_are_not() -> None:
    random = np.random.default_rng(7)
    rows, total = RecentRows(2), 0
    while total < 100_000:
        count = int(random.integers(1, 5000))
        numbers = np.arange(total, total + count)
        rows.extend(np.stack((numbers, -numbers)))
        total += count
        asked = random.integers(-100, total + 100, 1000)
        found, is_known = rows.find(asked)
        assert is_known[(asked >= max(total - 16_384, 0)) & (asked < total)].all()
        assert not is_known[(asked < 0) | (asked >= total)].any()
        assert (found[:, is_known] == np.stack((asked, -asked))[:, is_known]).all()
    assert not rows.find(np.array([0, total // 2]))[1].any()


# Text.


def test_the_table_has_every_operator_queue_and_path() -> None:
    text = str(tracked(chain(1, 2, 3)))
    assert "a → b → c" in text
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("a ", "b ", "c "))] == [*"abc", *"abc", "a"]
    assert next(line for line in lines if line.startswith("b  ")).split()[3:] == ["22%", *["2.000"] * 4]
    assert any(line.startswith("c.in") for line in lines)


def test_a_name_that_does_not_exist_is_an_error_that_lists_the_others() -> None:
    statistics = tracked(chain(1, 2))
    with pytest.raises(KeyError, match="there is no operator 'x'; there are 'a', 'b'"):
        statistics.operator("x")
    with pytest.raises(KeyError, match="there is no path 'x'; there are 'a,b'"):
        statistics.path("x")
