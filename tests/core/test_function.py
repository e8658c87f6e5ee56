from __future__ import annotations

from typing import Any

import pytest

from headrace import ConditionType, CountCondition, Input, IOSpec, Output, op
from headrace.core import GraphError, ParameterError
from tests.harness import App, run, sink, source


@op
def numbers(*, count: int = 3) -> Any:
    """Count."""
    yield from range(count)


@op
def scale(value: int, *, factor: int = 2) -> int:
    return value * factor


def test_arguments_are_inputs_keywords_are_parameters_and_the_result_is_emitted() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        tripled = scale(app, factor=3)
        app.add_flow(numbers(app, count=4), tripled)
        app.add_flow(tripled, sink(app, taken), {("out", "in")})

    app = run(compose)
    assert taken == [0, 3, 6, 9]
    assert [operator.name for operator in app.graph] == ["numbers", "scale", "sink"]


def test_a_decorated_function_is_still_a_function() -> None:
    assert scale(5) == 10
    assert scale(5, factor=4) == 20
    assert list(numbers(count=2)) == [0, 1]
    assert numbers.__doc__ == "Count."
    assert repr(scale) == "<op scale(value) -> out>"


def test_a_source_ends_when_its_generator_does_and_begins_anew_in_the_next_run() -> None:
    taken: list[int] = []
    app = App(lambda app: app.add_flow(numbers(app), sink(app, taken)))
    app.run()
    app.run()
    assert taken == [0, 1, 2, 0, 1, 2]


def test_returning_none_emits_nothing() -> None:
    taken: list[int] = []

    @op
    def odd(value: int) -> int | None:
        return value if value % 2 else None

    def compose(app: App) -> None:
        keep = odd(app)
        app.add_flow(source(app, range(6)), keep, sink(app, taken))

    run(compose)
    assert taken == [1, 3, 5]


def test_several_outputs_take_a_tuple_or_a_dict() -> None:
    low: list[int] = []
    high: list[int] = []

    @op(outputs=("low", "high"))
    def split(value: int) -> Any:
        if value < 2:
            return {"low": value}
        return (None, value) if value < 4 else (value, value)

    def compose(app: App) -> None:
        parts = split(app)
        app.add_flow(source(app, range(5)), parts)
        app.add_flow(parts, sink(app, low, name="l"), {"low": "in"})
        app.add_flow(parts, sink(app, high, name="h"), {"high": "in"})

    run(compose)
    assert (low, high) == ([0, 1, 4], [2, 3, 4])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "must return a tuple with a value for each"),
        ({"mid": 1}, r"returned a value for 'mid'; its outputs are 'a', 'b'"),
    ],
)
def test_a_result_that_does_not_fit_the_outputs_is_refused(value: Any, message: str) -> None:
    @op(outputs=("a", "b"))
    def wrong() -> Any:
        return value

    with pytest.raises(GraphError, match=message):
        run(lambda app: app.add_operator(wrong(app)))


def test_several_arguments_are_several_inputs() -> None:
    taken: list[int] = []

    @op
    def add(left: int, right: int) -> int:
        return left + right

    def compose(app: App) -> None:
        total = add(app)
        app.add_flow(source(app, [1, 2], name="a"), total, {("out", "left")})
        app.add_flow(source(app, [10, 20], name="b"), total, {("out", "right")})
        app.add_flow(total, sink(app, taken))

    run(compose)
    assert taken == [11, 22]


def test_an_argument_with_a_default_must_say_whether_it_is_a_parameter() -> None:
    with pytest.raises(TypeError, match=r"is 'factor' of wrong an input or a parameter\?"):

        @op
        def wrong(value: int, factor: int = 2) -> None: ...


def test_a_star_argument_takes_any_number_of_connections() -> None:
    taken: list[int] = []

    @op
    def add(first: int, *others: int) -> int:
        return first + sum(others)

    @op
    def each(*values: int) -> Any:
        yield sum(values)

    def compose(app: App) -> None:
        total, again = add(app), each(app)
        app.add_flow(source(app, [1, 2], name="a"), total, {("out", "first")})
        for name, factor in (("b", 10), ("c", 100)):
            app.add_flow(source(app, [factor, 2 * factor], name=name), total, {("out", "others")})
        app.add_flow(total, again, sink(app, taken))

    run(compose)
    assert taken == [111, 222]
    assert repr(add) == "<op add(first, *others) -> out>"


def test_the_generator_of_a_source_is_closed_when_the_run_ends_before_it() -> None:
    log: list[str] = []

    @op
    def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            log.append("closed")

    run(lambda app: app.add_flow(endless(app), sink(app, [], CountCondition(app, 3))))
    assert log == ["closed"]


# What is said of its ports.

POP = IOSpec.QueuePolicy.POP


def test_an_input_of_a_function_takes_a_size_and_conditions() -> None:
    taken: list[Any] = []

    @op(inputs={"values": Input(size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)}, outputs=())
    def batch(values: tuple[int, ...], *, offset: int = 0) -> None:
        taken.append(tuple(value + offset for value in values))

    run(lambda app: app.add_flow(source(app, range(4)), batch(app, offset=10)))
    assert taken == [(10, 11), (12, 13)]


def test_an_output_of_a_function_takes_a_size_a_policy_and_conditions() -> None:
    taken: list[Any] = []

    @op(outputs={"pair": Output(size=2), "other": Output(policy=POP).condition(ConditionType.NONE)})
    def split(value: int) -> Any:
        yield {"pair": value}
        yield {"pair": -value, "other": value}

    def compose(app: App) -> None:
        from tests.harness import Step

        parts = split(app)
        pairs = Step(
            app, inputs=[("in", {"size": 2})], body=lambda op, i, o: taken.append(i.receive()), name="pairs"
        )
        app.add_flow(source(app, [1, 2, 3]), parts)
        app.add_flow(parts, pairs, {"pair": "in"})
        app.add_flow(parts, Step(app, CountCondition(app, 0), inputs=["in"], name="dead"), {"other": "in"})

    app = run(compose)
    assert taken == [(1, -1), (2, -2), (3, -3)]
    assert app.dropped() == {"dead.in": 2}
    assert list(split.outputs) == ["pair", "other"]


def test_what_is_said_of_a_port_that_is_not_there_lists_the_ports() -> None:
    with pytest.raises(GraphError, match=r"@op: show has no input 'frme'; it has 'frame'"):

        @op(inputs={"frme": Input()})
        def show(frame: Any) -> None: ...

    with pytest.raises(
        GraphError, match=r"input 'frame' of show must be declared by Input\(size=...\), not 4"
    ):

        @op(inputs={"frame": 4})  # type: ignore[dict-item]
        def show(frame: Any) -> None: ...

    with pytest.raises(GraphError, match=r"output 'out' of show must be declared by Output\(size=...\), not"):

        @op(outputs={"out": Input()})  # type: ignore[dict-item]
        def show(frame: Any) -> None: ...

    with pytest.raises(GraphError, match=r"\*frames of show takes several messages"):

        @op(inputs={"frames": Input(size=1)})
        def show(*frames: Any) -> None: ...


def test_the_annotation_of_a_parameter_says_which_values_it_takes() -> None:
    """The default alone, an int, would not allow a fraction."""
    taken: list[float] = []

    @op
    def scaled(value: int, *, factor: float = 1, of: Any = 0) -> float:
        return value * factor

    def compose(app: App) -> None:
        app.add_flow(source(app, [1, 2]), stage := scaled(app, factor=0.5, of="anything"))
        app.add_flow(stage, sink(app, taken))
        with pytest.raises(ParameterError, match="parameter 'factor' of .* must be a float, not a str"):
            scaled(app, factor="half", name="wrong")

    run(compose)
    assert taken == [0.5, 1.0]
