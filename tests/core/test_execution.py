"""Operators that run after others without data, and flows that are chosen after each compute."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Subgraph, op
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import EndedBy, GraphError, MetadataPolicy, Operator
from tests.harness import App, MakeScheduler, Step, run, sink, source, through

IN, OUT = Operator.INPUT_EXEC_PORT_NAME, Operator.OUTPUT_EXEC_PORT_NAME


def step(app: Any, log: list[Any], name: str, *args: Any, **kwargs: Any) -> Step:
    """Return an operator that notes its name, and the metadata that came."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        log.append((name, self.metadata["index"]) if "index" in self.metadata else name)

    return Step(app, *args, body=body, name=name, **kwargs)


# Execution flows.


def test_an_operator_runs_after_each_compute_of_the_one_before(scheduler: MakeScheduler) -> None:
    log: list[Any] = []

    def compose(app: App) -> None:
        step(app, log, "a", CountCondition(app, 3)).then(step(app, log, "b")).then(step(app, log, "c"))

    run(compose, scheduler)
    assert sorted(log) == [*"aaabbbccc"]
    for before, after in ("ab", "bc"):
        places = [[place for place, name in enumerate(log) if name == each] for each in (before, after)]
        assert all(first < second for first, second in zip(*places, strict=True))


def test_an_operator_waits_for_all_before_it(scheduler: MakeScheduler) -> None:
    log: list[Any] = []

    def compose(app: App) -> None:
        join = step(app, log, "join")
        for name, count in (("two", 2), ("three", 3)):
            step(app, log, name, CountCondition(app, count)).then(join)

    app = run(compose, scheduler)
    assert log.count("join") == 2
    assert app.outcome.operators["join"].undelivered == {IN: 1}


def test_the_start_operator_computes_once_and_is_one(scheduler: MakeScheduler) -> None:
    log: list[Any] = []

    def compose(app: App) -> None:
        app.start_op().then((step(app, log, "a"), step(app, log, "b")))
        assert app.start_op() is app.start_op()

    app = run(compose, scheduler)
    assert sorted(log) == ["a", "b"]
    assert app.outcome.operators["start"].computes == 1


def test_functions_and_subgraphs_can_come_after_others() -> None:
    log: list[str] = []

    @op
    def note() -> None:
        log.append("note")

    class Inner(Subgraph):
        def compose(self) -> None:
            first, last = Step(self, name="first"), Step(self, name="last")
            first.then(last)
            self.add_input("go", first[IN])
            self.add_output("done", last[OUT])

    def compose(app: App) -> None:
        inner = Inner(app, name="inner")
        app.start_op().then(inner["go"])
        inner["done"].then(note(app))

    app = run(compose)
    assert log == ["note"]
    assert app.outcome.operators["inner.last"].computes == 1


def test_a_compute_that_failed_is_not_told_of_and_one_that_is_tried_again_is_told_of_once() -> None:
    log: list[str] = []

    def fail_at_first(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 1:
            raise ValueError("at first")

    def compose(app: App, on_error: Any) -> None:
        first = Step(app, CountCondition(app, 2), name="a").then(Step(app, body=fail_at_first, name="b"))
        first.on_error = on_error
        first.then(step(app, log, "c"))

    for on_error, told in (("skip", 1), ({"retry": 2}, 2)):
        log.clear()
        run(lambda app, on_error=on_error: compose(app, on_error))
        assert log == ["c"] * told, on_error


def test_an_operator_with_data_at_one_end_and_order_at_the_other_is_refused() -> None:
    def compose(app: App) -> None:
        portless = Step(app, name="portless")
        with pytest.raises(GraphError, match=r"'portless' has no output.*first.then\(second\)"):
            app.add_flow(portless, sink(app, []))
        with pytest.raises(GraphError, match=r"'portless' has no input"):
            app.add_flow(source(app, []), portless)
        with pytest.raises(GraphError, match=r"a.then\(b\) orders their computes"):
            app.add_flow(Step(app, name="a")[OUT], sink(app, [], name="b"))
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run(compose)


# Loops.


def loop(app: App, log: list[Any], *workers: Any) -> None:
    """Compose a loop over b and c that runs three times, and then d."""
    a, b, c, d = (step(app, log, name) for name in "abcd")
    app.start_op().then(a).then(b).then(c).then(a)
    a.then(d)

    def choose(operator: Any) -> None:
        operator.metadata.set("index", operator.ticks - 1)
        operator.add_dynamic_flow(b if operator.ticks <= 3 else d)

    app.set_dynamic_flows(a, choose)


LOOP = ["a", *((name, turn) for turn in range(3) for name in "bca"), ("d", 3)]


def test_a_loop_runs_as_often_as_its_head_chooses(scheduler: MakeScheduler) -> None:
    log: list[Any] = []
    app = run(lambda app: loop(app, log), scheduler)
    assert log == LOOP
    assert app.outcome.starved == ()
    assert app.graph.find("a").metadata_policy is MetadataPolicy.UPDATE


def test_a_duration_that_may_not_come_in_virtual_time_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace._runtime.scheduling.engine.STANDSTILL", 2)

    def turn(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks == 3_200:  # an end of its own, which nobody knows before
            self.fragment.stop_execution()

    def compose(app: App) -> None:
        head = Step(app, body=turn, name="head")
        app.start_op().then(head).then(head)

    with pytest.warns(RuntimeWarning, match=r"at 0 ns for 2,048 rounds.*'head'.*PeriodicCondition") as told:
        assert App(compose).run(duration="1s").ended_by == EndedBy.STOPPED
    assert len(told) == 1


def test_a_loop_that_takes_time_ends_with_the_duration(scheduler: MakeScheduler) -> None:
    log: list[Any] = []

    def compose(app: App) -> None:
        head = step(app, log, "head", PeriodicCondition(app, "10ms"))
        app.start_op().then(head)
        head.then(step(app, log, "other")).then(head)

    app = App(compose, scheduler)
    assert app.run(duration="95ms").ended_by == EndedBy.DURATION
    assert log.count("head") == 10


def test_each_message_runs_the_head_once_however_many_come_from_outside(scheduler: MakeScheduler) -> None:
    """Two sources feed a loop of two operators; with room for one message each, they would wait for each other."""

    def compose(app: App) -> None:
        a, b = Step(app, name="a"), Step(app, name="b")
        for name in ("x", "y"):
            Step(app, CountCondition(app, 4), name=name).then(a)
        a.then(b).then(a)
        app.set_dynamic_flows(
            b, lambda operator: operator.add_dynamic_flow(a) if operator.ticks % 3 else None
        )

    app = run(compose, scheduler)
    assert (app.graph.find("a").ticks, app.graph.find("b").ticks) == (24, 24)
    assert app.outcome.undelivered == {}


# Dynamic flows.


def routed(choose: Any, count: int = 4, **options: Any) -> tuple[list[int], list[int], App]:
    """Run a source of numbers whose messages go to the sinks that `choose` chooses."""
    left: list[int] = []
    right: list[int] = []

    def compose(app: App) -> None:
        app.numbers = source(app, range(1, count + 1), name="numbers")
        app.left, app.right = sink(app, left, name="left"), sink(app, right, name="right")
        app.add_flow(app.numbers, (app.left, app.right))
        app.set_dynamic_flows(app.numbers, lambda operator: choose(app, operator))

    app = App(compose, **options)
    app.count_messages = True
    app.run()
    return left, right, app


def test_messages_go_along_the_chosen_flows_only(scheduler: MakeScheduler) -> None:
    def choose(app: App, operator: Any) -> None:
        operator.add_dynamic_flow(app.left if operator.ticks % 2 else app.right)

    left, right, app = routed(choose, scheduler=scheduler)
    assert (left, right) == ([1, 3], [2, 4])
    assert app.outcome.operators["numbers"].sent == {"out": 4}
    assert app.outcome.operators["left"].received == {"in": 2}
    assert app.outcome.dropped == {}


FORMS: list[Any] = [
    lambda app, operator: operator.add_dynamic_flow(app.left["in"]),
    lambda app, operator: operator.add_dynamic_flow(app.left, "in"),
    lambda app, operator: operator.add_dynamic_flow("out", app.left),
    lambda app, operator: operator.add_dynamic_flow("out", app.left, "in"),
    lambda app, operator: operator.add_dynamic_flow(operator.next_flows[0]),
    lambda app, operator: operator.add_dynamic_flow(operator.next_flows[:1]),
    lambda app, operator: operator.add_dynamic_flow([app.left, app.left]),
]


@pytest.mark.parametrize("choose", FORMS)
def test_a_flow_can_be_chosen_in_many_forms(choose: Any) -> None:
    assert routed(choose, 2)[:2] == ([1, 2], [])


def test_what_an_end_emits_is_routed_too() -> None:
    taken: list[Any] = []

    class Ends(Step):
        def end(self, op_input: Any, op_output: Any, context: Any) -> Any:
            op_output.emit("last", "out")
            yield
            op_output.emit("very last", "out")

    def compose(app: App) -> None:
        ends = Ends(app, CountCondition(app, 1), outputs=["out"], name="ends")
        lost = sink(app, [], name="lost")
        app.add_flow(ends, (sink(app, taken), lost))
        ends.then(Step(app, name="after"))
        app.set_dynamic_flows(
            ends, lambda s: [s.add_dynamic_flow(app.graph.find(n)) for n in ("sink", "after")]
        )

    app = run(compose)
    assert taken == ["last", "very last"]
    assert app.graph.find("lost").ticks == 0
    assert app.graph.find("after").ticks == 1  # after the compute; an end is none


def test_an_error_of_the_choice_ends_the_run_and_leaves_nothing_behind() -> None:
    def choose(app: App, operator: Any) -> None:
        raise ValueError("no idea")

    with pytest.raises(ValueError, match="no idea"):
        routed(choose)

    def skipping(app: App, operator: Any) -> None:
        operator.add_dynamic_flow(app.left)
        if operator.ticks == 2:
            raise ValueError("no idea")

    left: list[int] = []

    def compose(app: App) -> None:
        app.numbers = source(app, [1, 2, 3], name="numbers", on_error="skip")
        app.left = sink(app, left, name="left")
        app.add_flow(app.numbers, app.left)
        app.set_dynamic_flows(app.numbers, lambda operator: skipping(app, operator))

    app = run(compose)
    assert left == [1, 3]
    assert app.outcome.operators["numbers"].dropped == {"out": 1}


def test_only_declared_flows_can_be_chosen() -> None:
    def outside(app: App) -> None:
        other = sink(app, [], name="other")
        app.add_flow(source(app, [], name="none"), other)
        numbers = source(app, [1], name="numbers")
        app.add_flow(numbers, sink(app, []))
        app.set_dynamic_flows(numbers, lambda operator: operator.add_dynamic_flow(other))

    with pytest.raises(GraphError, match=r"no flow to 'other'.*compose declares.*numbers.out -> sink.in"):
        run(outside)
    with pytest.raises(TypeError, match="takes an operator, a flow, or the names"):
        routed(lambda app, operator: operator.add_dynamic_flow(7))
    app = routed(lambda app, operator: None)[2]
    with pytest.raises(GraphError, match="is called after a compute"):
        app.numbers.add_dynamic_flow(app.left)
    with pytest.raises(GraphError, match="set_dynamic_flows"):
        app.left.add_dynamic_flow(app.numbers)


def test_replicas_and_segments_refuse_such_operators() -> None:
    def compose(app: App) -> None:
        app.start_op().then(Step(app, name="a", workers=2))

    with pytest.raises(GraphError, match="has dynamic flows or execution flows"):
        run(compose)


@pytest.mark.parametrize("is_in_choice", [False, True])
def test_a_flow_that_is_added_in_a_compute_is_chosen_from_the_next_one_on(is_in_choice: bool) -> None:
    left: list[int] = []
    late: list[int] = []

    def compose(app: App) -> None:
        def add(operator: Any) -> None:
            if operator.ticks == 2:
                app.add_flow(operator, sink(app, late, name="late"))

        def body(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(self.ticks, "out")
            if not is_in_choice:
                add(self)

        def choose(operator: Any) -> None:
            if is_in_choice:
                add(operator)
            operator.add_dynamic_flow(operator.next_flows)

        numbers = Step(app, CountCondition(app, 4), outputs=["out"], body=body, name="numbers")
        app.add_flow(numbers, sink(app, left, name="left"))
        app.set_dynamic_flows(numbers, choose)

    run(compose)
    assert (left, late) == ([1, 2, 3, 4], [3, 4])


def test_a_flow_to_replicas_is_chosen_by_the_operator_that_has_them(scheduler: MakeScheduler) -> None:
    taken: dict[str, list[int]] = {"left": [], "right": []}

    def compose(app: App) -> None:
        numbers = source(app, range(4))
        targets = [
            through(app, name="left"),
            Step(app, inputs=["in"], outputs=["out"], body=pass_on, name="right", workers=2),
        ]
        for target in targets:
            app.add_flow(numbers, target, sink(app, taken[target.name], name=f"{target.name} sink"))
        turns = iter(range(4))
        app.set_dynamic_flows(numbers, lambda operator: operator.add_dynamic_flow(targets[next(turns) % 2]))

    def pass_on(op: Step, i: Any, o: Any) -> None:
        o.emit(i.receive("in"), "out")

    run(compose, scheduler)
    assert taken == {"left": [0, 2], "right": [1, 3]}
