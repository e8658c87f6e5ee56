from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, CountCondition, IOSpec
from headrace.core import GraphError
from tests.harness import App, Step, run, sink, source


def pair(app: Any) -> tuple[Step, Step]:
    a = Step(
        app,
        CountCondition(app, 1),
        outputs=["x", "y"],
        body=lambda op, i, o: (o.emit(1, "x"), o.emit(2, "y")),
        name="a",
    )
    return a, second(app)


def second(app: Any) -> Step:
    return Step(
        app,
        inputs=["p", "q"],
        body=lambda op, i, o: app.taken.append((i.receive("p"), i.receive("q"))),
        name="b",
    )


@pytest.mark.parametrize(
    "port_map",
    [{("x", "p"), ("y", "q")}, {"x": "p", "y": "q"}, {"x": {"p"}, "y": ["q"]}, [("x", "p"), ("y", "q")]],
)
def test_a_port_map_is_a_set_of_pairs_a_dict_or_a_list(port_map: Any) -> None:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.taken = taken
        app.add_flow(*pair(app), port_map)

    run(compose)
    assert taken == [(1, 2)]


def test_two_outputs_of_one_operator_into_one_queue_wait_for_room_for_both() -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        a = Step(
            app,
            CountCondition(app, 2),
            outputs=["x", "y"],
            body=lambda op, i, o: (o.emit(op.ticks, "x"), o.emit(-op.ticks, "y")),
            name="a",
        )
        b = Step(app, inputs=[("in", {"size": 2})], body=lambda op, i, o: taken.append(i.receive()), name="b")
        app.add_flow(a, b, {"x": "in", "y": "in"})

    run(compose)
    assert taken == [(1, -1), (2, -2)]


def test_an_operator_does_not_run_for_half_the_room_it_needs() -> None:
    def compose(app: App) -> None:
        a = Step(app, outputs=["x", "y"], body=lambda op, i, o: (o.emit(1, "x"), o.emit(2, "y")), name="a")
        app.add_flow(a, Step(app, inputs=[("in", {"size": 3})], name="b"), {"x": "in", "y": "in"})

    app = run(compose)
    assert app.undelivered() == {"b.in": 2}


def build(compose: Any) -> None:
    App(compose).compose_graph()


def test_an_unknown_output_lists_the_outputs() -> None:
    with pytest.raises(GraphError, match=r"operator 'a' has no output 'z'; it has 'x', 'y'"):
        build(lambda app: app.add_flow(*pair(app), {("z", "p")}))


def test_default_ports_need_one_of_each() -> None:
    with pytest.raises(GraphError, match=r"operator 'a' has several outputs \('x', 'y'\)"):
        build(lambda app: app.add_flow(*pair(app)))
    with pytest.raises(GraphError, match=r"operator 'b' has several inputs \('p', 'q'\)"):
        build(lambda app: app.add_flow(source(app, [1]), pair(app)[1]))
    with pytest.raises(GraphError, match=r"operator 'sink' has no output"):
        build(lambda app: app.add_flow(sink(app, []), sink(app, [], name="other")))


@pytest.mark.parametrize("wrong", [{"x"}, {("x", "p", "q")}, [1], {"x": [1]}])
def test_an_impossible_port_map_shows_a_possible_one(wrong: Any) -> None:
    with pytest.raises(GraphError, match=r"a port map is a set of \(output, input\) pairs"):
        build(lambda app: app.add_flow(*pair(app), wrong))


def test_two_operators_with_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match=r"two operators are named 'x'"):
        build(lambda app: app.add_flow(source(app, [1], name="x"), sink(app, [], name="x")))


def test_an_operator_of_another_application_is_refused() -> None:
    other = Application([], name="other")
    with pytest.raises(GraphError, match="belongs to 'other'"):
        build(lambda app: app.add_operator(source(other, [1])))


def test_an_unconnected_input_is_refused_with_the_outputs_it_could_take() -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1]), second(app), {("out", "p")})

    with pytest.raises(GraphError, match=r"input 'q' of operator 'b' is not connected.*outputs: source.out"):
        build(compose)


def test_what_an_unconnected_output_is_given_is_counted() -> None:
    app = run(lambda app: app.add_operator(source(app, range(3))))
    assert app.dropped() == {"source.out": 3}


def test_a_queue_shorter_than_what_its_condition_waits_for_is_refused() -> None:
    from headrace import ConditionType

    def compose(app: App) -> None:
        def setup(spec: Any) -> None:
            spec.input("in", size=2).condition(ConditionType.MESSAGE_AVAILABLE, min_size=3)

        app.add_flow(source(app, range(3)), Step(app, setup=setup, name="b"))

    with pytest.raises(GraphError, match=r"input 'in' of operator 'b' waits for 3 messages"):
        build(compose)


def test_an_output_that_emits_more_at_once_than_the_queue_behind_holds_is_refused() -> None:
    def compose(app: App) -> None:
        burst = Step(app, CountCondition(app, 1), outputs=[("out", {"size": 3})], name="burst")
        app.add_flow(burst, sink(app, []))

    with pytest.raises(GraphError, match=r"emits up to 3 messages at once.*declare that input with size=3"):
        run(compose)


def test_port_sizes_and_policies_are_checked() -> None:
    with pytest.raises(GraphError, match="size must be a positive int"):
        build(lambda app: Step(app, inputs=[("in", {"size": "many"})]))
    with pytest.raises(GraphError, match=r"output 'out': size must be a positive int"):
        build(lambda app: Step(app, outputs=[("out", {"size": IOSpec.ANY_SIZE})]))
    with pytest.raises(GraphError, match=r"policy must be an IOSpec.QueuePolicy"):
        build(lambda app: Step(app, inputs=[("in", {"policy": "pop"})]))
    with pytest.raises(GraphError, match="declares the input 'in' twice"):
        build(lambda app: Step(app, inputs=["in", "in"]))


class Capturable(Step):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        pass


CALLS: dict[str, Any] = {
    "add_operator('b')": lambda app, a, b: app.add_operator(b),
    "add_flow('a', 'b')": lambda app, a, b: app.add_flow(a, b, {("x", "p")}),
    "capture('c')": lambda app, a, b: app.capture(Capturable(app, name="c")),
    "capture_chains()": lambda app, a, b: app.capture_chains(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("phase", ["initialize", "start", "compute", "stop"])
def test_a_graph_is_changed_in_compose_or_by_computes(call: str, phase: str) -> None:
    if phase == "compute" and call.startswith("add"):
        pytest.skip("computes may add flows and operators: tests/application/test_changes.py")

    def change(app: Any) -> None:
        CALLS[call](app, *pair(app))

    class Changing(Step):
        pass

    setattr(Changing, phase, lambda op, *contexts: change(op.fragment))
    app = App(lambda app: app.add_operator(Changing(app, CountCondition(app, 1), name="changing")))
    with pytest.raises(GraphError) as caught:
        app.run()
    why = "which is starting or ending: change its graph in compose()"
    if not call.startswith("add"):
        why = "which is running: call it in compose()"
    assert str(caught.value).startswith(f"{call} of 'App', {why}")


@pytest.mark.parametrize("call", CALLS)
def test_what_is_added_outside_of_compose_is_refused(call: str) -> None:
    app = App(lambda app: app.add_operator(source(app, [1])))
    for _ in ("before a run", "after a run"):
        with pytest.raises(GraphError) as caught:
            CALLS[call](app, *pair(app))
        assert str(caught.value).startswith(
            f"{call} of 'App', which is not being composed: call it in compose()"
        )
        app.run()
        assert [operator.name for operator in app.graph] == ["source"]
