"""Small programs with create_op; each is a function that composes an application.

They print what arrives. ``record.py`` writes what the SDK printed to ``printed.json``.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, ConditionType, IOSpec, Subgraph
from holoscan.decorator import Input, Output, create_op

PROGRAMS: list[Callable[[Any], None]] = []


def program(compose: Callable[[Any], None]) -> Callable[[Any], None]:
    PROGRAMS.append(compose)
    return compose


def printed(compose: Callable[[Any], None]) -> list[str]:
    """Run a program, and return its lines and the type of its exception."""

    class App(Application):
        def compose(self) -> None:
            compose(self)

    lines = io.StringIO()
    with contextlib.redirect_stdout(lines):
        try:
            App().run()
        except Exception as error:
            print(type(error).__name__)
    return lines.getvalue().splitlines()


@create_op(outputs="out")
def numbers(count):
    yield from range(count)


@create_op(inputs="x")
def show(x):
    print(type(x).__name__, x)


@create_op(inputs=("p", "q"))
def show_both(p, q):
    print(p, q)


@create_op(outputs=Output("out", tensor_names=("u", "v")))
def maps():
    return {"u": np.arange(2), "v": np.ones(1), "w": np.zeros(1)}


def once(app):
    return CountCondition(app, 1)


@program
def a_generator_is_a_source_that_ends(app):
    source = numbers(app, count=3)
    print(sorted(name for name in source.conditions if not name.startswith("_internal")))
    app.add_flow(source, show(app))


@program
def keywords_fill_arguments_and_defaults_stay(app):
    @create_op(inputs="x", outputs="y")
    def scale(x, factor=2, *, offset=1):
        return x * factor + offset

    made = scale(app, offset=10)
    print(sorted(made.fixed_kwargs.items()), list(made.dynamic_kwargs), made.__name__, made.name)
    app.add_flow(numbers(app, count=2), made)
    app.add_flow(made, show(app))


@program
def a_missing_argument_is_an_error(app):
    numbers(app)


@program
def an_argument_by_position_is_no_value(app):
    numbers(app, 3)


@program
def a_surplus_keyword_reaches_the_function(app):
    made = numbers(app, count=1, other=2)
    print("created", made.fixed_kwargs)
    app.add_flow(made, show(app))


@program
def no_fragment_is_an_error(app):
    numbers(count=3)


@program
def the_fragment_may_be_a_keyword(app):
    app.add_flow(numbers(fragment=app, count=1, name="source"), show(app))


@program
def a_bare_decorator_makes_inputs_of_arguments(app):
    @create_op
    def add_one(x):
        return x + 1

    @create_op
    def last(y):
        print("last", y)

    made, end = add_one(app), last(app)
    print(list(made.spec.inputs), list(made.spec.outputs), list(end.spec.outputs))
    app.add_flow(numbers(app, count=2), made)
    app.add_flow(made, end)


@program
def an_output_without_a_name_is_connected_by_it(app):
    @create_op
    def add_one(x):
        return x + 1

    made = add_one(app)
    app.add_flow(numbers(app, count=2), made)
    app.add_flow(made, show(app), {("", "x")})


@program
def a_tuple_is_split_between_outputs(app):
    @create_op(inputs="x", outputs=("a", "b"))
    def twice(x):
        return x, x * 2

    made = twice(app)
    app.add_flow(numbers(app, count=2), made)
    app.add_flow(made, show_both(app), {("a", "p"), ("b", "q")})


@program
def what_is_no_tuple_goes_to_every_output(app):
    @create_op(inputs="x", outputs=("a", "b"))
    def same(x):
        return [x]

    made = same(app)
    app.add_flow(numbers(app, count=1), made)
    app.add_flow(made, show_both(app), {("a", "p"), ("b", "q")})


@program
def a_tuple_of_another_length_is_an_error(app):
    @create_op(inputs="x", outputs=("a", "b"))
    def three(x):
        return x, x, x

    made = three(app)
    app.add_flow(numbers(app, count=1), made)
    app.add_flow(made, show_both(app), {("a", "p"), ("b", "q")})


@program
def an_array_arrives_as_an_array(app):
    @create_op(outputs="out")
    def array():
        return np.arange(3.0)

    app.add_flow(array(app, once(app)), show(app))


@program
def a_tensor_arrives_as_such_if_it_is_not_cast(app):
    @create_op(inputs="x", cast_tensors=False)
    def kind(x):
        print(type(x).__name__, np.asarray(x))

    @create_op(outputs=Output("out", tensor_names="t"))
    def array():
        return np.arange(2)

    app.add_flow(array(app, once(app)), kind(app))


@program
def a_map_of_tensors_is_split_between_arguments(app):
    @create_op(inputs=Input("i", arg_map={"u": "first", "v": "second"}))
    def parts(first, second):
        print(type(first).__name__, first, second)

    app.add_flow(maps(app, once(app)), parts(app))


@program
def an_argument_gets_the_tensor_of_its_name(app):
    @create_op(inputs=Input("i", arg_map="v"))
    def part(v):
        print(v)

    app.add_flow(maps(app, once(app)), part(app))


@program
def several_tensors_and_none_of_the_name_is_an_error(app):
    app.add_flow(maps(app, once(app)), show(app))


@program
def a_tensor_that_did_not_come_is_an_error(app):
    @create_op(inputs=Input("i", arg_map={"nobody": "x"}))
    def part(x):
        print(x)

    app.add_flow(maps(app, once(app)), part(app))


@program
def a_tensor_that_was_not_returned_is_an_error(app):
    @create_op(outputs=Output("out", tensor_names=("t",)))
    def array():
        return {"r": np.ones(1)}

    app.add_flow(array(app, once(app)), show(app))


@program
def other_objects_are_sent_as_they_are(app):
    @create_op(outputs="out")
    def objects():
        yield {"r": 5}
        yield "text"
        yield None

    app.add_flow(objects(app), show(app))


@program
def a_function_is_given_its_operator(app):
    @create_op(inputs="x", outputs="y", op_param="self_")
    def named(x, self_):
        return self_.name, x

    made = named(app, name="me")
    app.add_flow(numbers(app, count=1), made)
    app.add_flow(made, show(app))


@program
def a_class_keeps_its_state(app):
    @create_op(inputs="x", outputs="y")
    class Sum:
        def __init__(self, total):
            self.total = total

        def __call__(self, x):
            self.total += x
            return self.total

    made = Sum(total=10)(app, name="sum")
    print(made.name, made.__name__, made.class_obj.total)
    app.add_flow(numbers(app, count=4), made)
    app.add_flow(made, show(app))


@program
def a_generator_with_an_input_is_begun_once(app):
    @create_op(inputs="x", outputs="y")
    def pairs(x, *, count=2):
        for number in range(count):
            yield (x, number)

    made = pairs(app)
    app.add_flow(numbers(app, count=5), made)
    app.add_flow(made, show(app))


@program
def a_port_has_a_size(app):
    @create_op(inputs=Input("i", arg_map="x", size=2))
    def batch(x):
        print(x)

    app.add_flow(numbers(app, count=4), batch(app))


@program
def a_port_has_a_condition(app):
    @create_op(inputs=Input("i", arg_map="x", condition_type=ConditionType.NONE))
    def idle(x):
        print(x)

    app.add_operator(idle(app, CountCondition(app, 2)))


@program
def an_input_without_a_mapping_is_received(app):
    @create_op(inputs=Input("i"))
    def tick():
        print("tick")

    app.add_flow(numbers(app, count=2), tick(app))


@program
def an_unknown_argument_is_an_error(app):
    @create_op(inputs="nobody")
    def takes(x):
        print(x)

    takes(app)


@program
def a_wrong_policy_is_an_error(app):
    @create_op(inputs=Input("x", arg_map="x", policy=7))
    def takes(x):
        print(x)

    takes(app)


@program
def a_queue_has_a_policy(app):
    @create_op(inputs=Input("x", arg_map="x", policy=IOSpec.QueuePolicy.POP))
    def takes(x):
        print(x)

    app.add_flow(numbers(app, count=2), takes(app))


@program
def an_operator_belongs_to_a_subgraph(app):
    @create_op(outputs="out")
    def five():
        return 5

    class Part(Subgraph):
        def compose(self):
            self.add_flow(five(self, once(self)), show(self))

    part = Part(app, name="part")
    if hasattr(app, "add_subgraph"):
        app.add_subgraph(part)
