"""Live parameters: changed from any thread, checked at once, and seen by whole computes alone."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from headrace import CountCondition
from headrace.core import Operator, OperatorSpec, ParameterError
from tests.harness import (
    PATIENCE,
    App,
    MakeScheduler,
    Step,
    greedy,
    multi_thread,
    run,
    sink,
    source,
    switching_often,
)


class Gain(Operator):
    """Multiplies what it receives; notes the gain at the beginning and at the end of each compute."""

    gain: float
    mode: str

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("gain", 1.0, live=True, minimum=0.0, maximum=8.0)
        spec.param("mode", "soft", live=True, choices=["soft", "hard"])
        spec.param("odd", 1, live=True, check=lambda value: value % 2 == 1)
        spec.param("fixed", 3)

    def start(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.in_compute: Any = lambda: None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        before = self.gain
        value = op_input.receive("in")
        self.in_compute()
        self.seen.append((before, self.gain))
        op_output.emit(value * self.gain, "out")


def compose(app: Any, taken: list[float], count: int = 3, **parameters: Any) -> None:
    app.gain = Gain(app, name="gain", **parameters)
    app.add_flow(source(app, [1.0] * count), app.gain, sink(app, taken))


def test_a_change_in_a_compute_takes_effect_with_the_next(scheduler: MakeScheduler) -> None:
    taken: list[float] = []

    def change(app: Any) -> None:
        compose(app, taken)
        start = app.gain.start

        def started() -> None:
            start()
            app.gain.in_compute = lambda: app.gain.set_live("gain", 2.0 * app.gain.gain)

        app.gain.start = started

    app = run(change, scheduler)
    assert taken == [1.0, 2.0, 4.0]
    assert app.gain.seen == [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)], "never in the middle of a compute"
    assert app.gain.gain == 8.0, "the last change is there after the run"


def test_changes_from_other_threads_are_seen_by_whole_computes() -> None:
    taken: list[float] = []
    app = App(lambda app: compose(app, taken, count=400), multi_thread)
    future = None
    is_over = threading.Event()

    def change(step: float) -> None:
        value = 0.0
        while not is_over.is_set():
            value = (value + step) % 8
            operator = getattr(app, "gain", None)
            if operator is not None:
                operator.set_live("gain", value)

    threads = [threading.Thread(target=change, args=(step,)) for step in (0.25, 0.5)]
    with switching_often():
        for thread in threads:
            thread.start()
        future = app.run_async()
        future.result(timeout=PATIENCE)
        is_over.set()
        for thread in threads:
            thread.join()
    assert all(before == after for before, after in app.gain.seen)
    assert taken == [before for before, _ in app.gain.seen]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("gain", "2", "parameter 'gain' of operator 'gain' must be a float, not a str"),
        ("gain", True, "must be a float, not a bool"),
        ("gain", -0.5, "must be at least 0.0, not -0.5"),
        ("gain", 8.5, "must be at most 8.0, not 8.5"),
        ("gain", math.nan, "must be at least 0.0, not nan"),
        ("mode", "loud", "must be one of 'soft', 'hard', not 'loud'"),
        ("odd", 4, "must not be 4"),
        ("odd", 1.5, "must be an int"),
        ("fixed", 4, "parameter 'fixed' of operator 'gain' is not live.*live=True"),
        ("gian", 1.0, "has no live parameter 'gian'.*did you mean 'gain'"),
    ],
)
def test_a_wrong_value_is_an_error_where_it_is_set_and_changes_nothing(
    name: str, value: Any, text: str
) -> None:
    errors: list[Exception] = []
    taken: list[float] = []

    def change(app: Any) -> None:
        compose(app, taken)

        def wrong() -> None:
            with pytest.raises(ParameterError, match=text) as raised:
                app.gain.set_live(name, value)
            errors.append(raised.value)

        start = app.gain.start
        app.gain.start = lambda: (start(), setattr(app.gain, "in_compute", wrong))

    app = run(change)
    assert taken == [1.0, 1.0, 1.0]
    assert len(errors) == 3
    assert (app.gain.gain, app.gain.mode, app.gain.odd, app.gain.fixed) == (1.0, "soft", 1, 3)


def test_what_a_check_raises_is_in_the_error() -> None:
    class Picky(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            def refuse(value: Any) -> None:
                raise ValueError("it is too late")

            spec.param("it", "now", live=True, check=refuse)

    with pytest.raises(ParameterError, match="must not be 'then': it is too late"):
        Picky(App(lambda app: None), name="picky").set_live("it", "then")


def test_a_change_before_a_run_or_between_runs_stays(scheduler: MakeScheduler) -> None:
    taken: list[float] = []
    app = App(lambda app: compose(app, taken), scheduler)
    app.compose_graph()
    app.gain.set_live("gain", 2.0)
    assert app.gain.gain == 2.0, "at once, as nothing runs"
    app.run()
    app.graph.find("gain").set_live("gain", 3.0)
    app.run()
    app.run()
    assert taken == [2.0] * 3 + [3.0] * 6


def test_a_change_in_a_run_is_over_with_the_run(scheduler: MakeScheduler) -> None:
    taken: list[float] = []
    changed: list[float] = []

    def change(app: Any) -> None:
        compose(app, taken)

        def once() -> None:
            if not changed:
                changed.append(1)
                app.gain.set_live("gain", 2.0)

        start = app.gain.start
        app.gain.start = lambda: (start(), setattr(app.gain, "in_compute", once))

    app = App(change, scheduler)
    app.run()
    app.run()
    assert taken == [1.0, 2.0, 2.0, 1.0, 1.0, 1.0]


@pytest.mark.usefixtures("no_device_yet")
def test_an_operator_without_live_parameters_runs_as_it_is() -> None:
    found: list[Any] = []

    class Plain(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(self._headrace.node.compute)

    app = run(lambda app: app.add_operator(Plain(app, CountCondition(app, 2), name="it")))
    assert found[1] == app.graph.find("it").compute
    assert app.graph.find("it").live_parameters == {}
    with pytest.raises(ParameterError, match="has no live parameter 'gain'; it has none"):
        app.graph.find("it").set_live("gain", 1)


class Linked(Step):
    """Has live parameters with setters of the test; `seen` are their values at the beginning of each compute."""

    def setup(self, spec: OperatorSpec) -> None:
        self.setters: dict[str, Any] = {}
        self.values: dict[str, int] = {}
        self.seen: list[tuple[int, int]] = []
        spec.param("left", 0, live=True)
        spec.param("right", 0, live=True)

    def _set(self, name: str, value: int) -> None:
        self.values[name] = value
        self.setters.get(name, lambda value: None)(value)

    left = property(lambda self: self.values["left"], lambda self, value: self._set("left", value))
    right = property(lambda self: self.values["right"], lambda self, value: self._set("right", value))

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.seen.append((self.left, self.right))
        super().compute(op_input, op_output, context)


def run_linked(body: Any, scheduler: MakeScheduler, setters: Any = None, runs: int = 1) -> Linked:
    def compose(app: Any) -> None:
        app.linked = Linked(app, CountCondition(app, 3), body=body, name="linked")
        app.linked.setters = {} if setters is None else setters(app.linked)
        app.add_operator(app.linked)

    app: Any = App(compose, scheduler)
    for _ in range(runs):
        app.run()
    return app.linked  # type: ignore[no-any-return]


def test_values_that_setters_set_before_a_run_are_recalled_one_by_one() -> None:
    def compose(app: Any) -> None:
        app.linked = Linked(app, CountCondition(app, 1), name="linked")
        app.linked.setters = {"left": lambda value: app.linked.set_live("right", 10 * value)}
        app.add_operator(app.linked)

    app: Any = App(compose)
    app.compose_graph()
    app.linked.set_live("left", 2)
    assert (app.linked.left, app.linked.right) == (2, 20)
    app.linked.set_live("right", 5)  # not what the setter of the other has set
    for _ in range(2):
        app.run()
        assert app.linked.seen == [(2, 5)]


def test_setters_that_set_each_other_do_not_keep_a_compute_from_beginning() -> None:
    linked = run_linked(
        lambda op, i, o: op.set_live("left", 1) if op.ticks == 1 else None,
        greedy,
        lambda op: {
            "left": lambda value: op.set_live("right", value + 1),
            "right": lambda value: op.set_live("left", value + 1),
        },
    )
    assert len(linked.seen) == 3
    assert linked.seen[2] > linked.seen[1] > linked.seen[0]
    assert linked._headrace.live_state is not None
    kept = (linked._headrace.live_state.get("left"), linked._headrace.live_state.get("right"))
    assert kept == (linked.left, linked.right)  # nothing waits any more


def test_a_setter_may_wait_for_a_thread_that_sets_a_value() -> None:
    def setters(op: Linked) -> Any:
        def wait(value: int) -> None:
            thread = threading.Thread(target=op.set_live, args=("right", 10 * value))
            thread.start()
            thread.join()

        return {"left": wait}

    linked = run_linked(lambda op, i, o: op.set_live("left", op.ticks), greedy, setters)
    assert linked.seen == [(0, 0), (1, 10), (2, 20)]


def test_a_setter_that_fails_loses_its_own_value_alone() -> None:
    def setters(op: Linked) -> Any:
        def fail(value: int) -> None:
            raise ArithmeticError

        return {"left": fail}

    changed: list[Linked] = []

    def body(op: Any, op_input: Any, op_output: Any) -> None:
        changed.append(op)
        op.set_live("left", 5)
        op.set_live("right", 7)

    with pytest.raises(ArithmeticError) as caught:
        run_linked(body, greedy, setters)
    assert changed[0].seen == [(0, 0)]
    assert changed[0].right == 7
    assert not hasattr(caught.value, "other_errors")  # the end of the run does not set `left` again


@pytest.mark.parametrize("which", ["the operator of the last run", "the new operator"])
def test_a_change_by_another_thread_while_the_application_is_composed_is_kept(which: str) -> None:
    taken: list[float] = []

    def change(app: Any) -> None:
        earlier = getattr(app, "gain", None)
        compose(app, taken)
        if earlier is not None:
            operator = earlier if which == "the operator of the last run" else app.gain
            thread = threading.Thread(target=operator.set_live, args=("gain", 4.0))
            thread.start()
            thread.join()

    app = App(change)
    app.run()
    app.run()
    assert taken == [1.0] * 3 + [4.0] * 3
