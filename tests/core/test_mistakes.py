"""The mistakes of the first hour: each is told where it is made, with what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, GreedyScheduler, Operator, op
from headrace.conditions import BooleanCondition
from headrace.core import GraphError, ParameterError, PortError
from headrace.resources import RealtimeClock, ThreadPool
from tests.harness import App, Step, run, sink, source


@op
def numbers(*, count: int = 3) -> Any:
    yield from range(count)


@op
def show(value: Any) -> None:
    pass


@op
def add(left: int, right: int) -> int:
    return left + right


@op
def gather(*values: int) -> None:
    pass


class Average(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("value")
        spec.output("average")
        spec.param("window", 3)
        spec.param("path")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("valu"), "average")


class Plain(Operator):
    """Without ports and parameters."""


class Handed(Operator):
    def __init__(self, fragment: Any, factor: int) -> None:
        self.factor = factor
        super().__init__()  # type: ignore[call-arg]


def forgotten_return(app: App) -> None:
    @op
    def square(value: int) -> None:
        value * value

    squares = square(app)
    app.add_flow(numbers(app), squares, show(app))


def misspelled_port(app: App) -> None:
    join = Step(
        app,
        inputs=["frame", "mask"],
        body=lambda op, i, o: i.receive("fram"),
        name="join",
    )
    app.add_flow(source(app, [1], name="a"), join, {"out": "frame"})
    app.add_flow(source(app, [1], name="b"), join, {"out": "mask"})


MISTAKES: dict[str, tuple[Callable[[App], Any], type[Exception], str]] = {
    "a function that is not an operator yet": (
        lambda app: app.add_flow(numbers, show),  # type: ignore[arg-type]
        GraphError,
        "<op numbers() -> out> is not an operator; create one first: numbers(self, name=...)",
    ),
    "no self": (
        lambda app: Average(window=2),  # type: ignore[call-arg]
        TypeError,
        "and none was given; inside compose: Average(self, window=2)",
    ),
    "a fragment that is not passed on": (
        lambda app: Handed(app, 3),
        TypeError,
        "Handed.__init__ must pass it on: super().__init__(fragment)",
    ),
    "a parameter that is missing": (
        lambda app: app.add_flow(numbers(app), Average(app)),
        ParameterError,
        "operator 'average' (Average) needs a value for 'path'; pass it as a keyword argument",
    ),
    "a parameter that is misspelled": (
        lambda app: Average(app, windw=2),
        ParameterError,
        "Average 'average' has no parameter 'windw'; it has 'window', 'path'; did you mean 'window'?",
    ),
    "a parameter of the wrong type": (
        lambda app: Average(app, window="2"),
        ParameterError,
        "parameter 'window' of Average 'average' must be an int, not a str ('2')",
    ),
    "a float for a number of things": (
        lambda app: Average(app, window=1e6),
        ParameterError,
        "must be an int, not a float (1000000.0); write 1000000",
    ),
    "a name by position": (
        lambda app: numbers(app, "source"),
        ParameterError,
        "are given by keyword, and so is a name: name='source'",
    ),
    "a name that is no text": (
        lambda app: Plain(app, name=5),  # type: ignore[arg-type]
        TypeError,
        "the name of a Plain must be a str, not 5",
    ),
    "a condition that was not made": (
        lambda app: Plain(app, CountCondition),
        ParameterError,
        "create one first: CountCondition(self, ...)",
    ),
    "a scheduler that was not made": (
        lambda app: app.scheduler(GreedyScheduler),  # type: ignore[arg-type]
        TypeError,
        "create one first: GreedyScheduler(self)",
    ),
    "a forgotten return": (
        forgotten_return,
        GraphError,
        (
            "operator 'square': the function says that it returns nothing (-> None), so square.out -> show.value "
            "would carry nothing; return the value to emit, and say its type"
        ),
    ),
    "a flow the wrong way round": (
        lambda app: app.add_flow(show(app), numbers(app)),
        GraphError,
        (
            "operator 'numbers' has no input (an argument of the function is one), and a flow goes from "
            "an output of "
            "the first operator to an input of the second"
        ),
    ),
    "a flow from a class without outputs": (
        lambda app: app.add_flow(Plain(app), show(app)),
        GraphError,
        "operator 'plain' has no output (setup declares one by spec.output('name'))",
    ),
    "an ambiguous input": (
        lambda app: app.add_flow(Step(app, outputs=["frame"], name="camera"), add(app)),
        GraphError,
        (
            "operator 'add' has several inputs ('left', 'right'), so name one, by "
            "{('frame', 'left')} or by add['left']"
        ),
    ),
    "an input that is not connected": (
        lambda app: app.add_flow(numbers(app), add(app), {("out", "left")}),
        GraphError,
        "input 'right' of operator 'add' is not connected, so the operator would never run; connect it with",
    ),
    "a function of any number of messages that gets none": (
        lambda app: (app.add_flow(numbers(app), show(app)), app.add_operator(gather(app))),
        GraphError,
        (
            "input 'values' of operator 'gather' takes the messages of any number of flows and has none, so the "
            "function would be called without arguments for ever; connect it with add_flow "
            "(outputs: numbers.out, show.out), or give the operator a condition, such as CountCondition(self, 1)"
        ),
    ),
    "a port map without braces": (
        lambda app: app.add_flow(numbers(app), show(app), ("out", "value")),  # type: ignore[arg-type]
        GraphError,
        "such as {('out', 'value')}, or a dict such as {'out': 'value'}; not ('out', 'value')",
    ),
    "neither a port map nor an operator": (
        lambda app: app.add_flow(numbers(app), show(app), 3),  # type: ignore[call-overload]
        GraphError,
        "the third argument is a port map such as {('out', 'in')}, or the next operator of a chain, not 3",
    ),
    "a misspelled port in compute": (
        misspelled_port,
        PortError,
        "operator 'join' has no input 'fram'; it has 'frame', 'mask'; did you mean 'frame'?",
    ),
    "a run inside compose": (
        lambda app: app.run(),
        RuntimeError,
        "end it by stop_execution(), from outside of its compose and its operators",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_would_be_right(mistake: str) -> None:
    make, kind, text = MISTAKES[mistake]
    with pytest.raises(kind, match=re.escape(text)):
        run(make)


def test_a_function_of_any_number_of_messages_may_get_none_if_something_else_ends_it() -> None:
    called: list[tuple[int, ...]] = []

    @op
    def rest(first: int, *others: int) -> None:
        called.append((first, *others))

    @op
    def keep(*values: int) -> None:
        called.append(values)

    def compose(app: App) -> None:
        app.add_flow(numbers(app, count=2), rest(app), {("out", "first")})
        app.add_operator(keep(app, CountCondition(app, 1)))

    run(compose)
    assert sorted(called) == [(), (0,), (1,)]


METHODS = {
    "async": (
        "async def compute(self, op_input, op_output, context): ...",
        "Wrong.compute is async, and an operator has no event loop to await it: make it a plain method",
    ),
    "async generator": ("async def start(self):\n        yield", "Wrong.start is async"),
    "generator": (
        "def compute(self, op_input, op_output, context):\n        yield 1",
        "Wrong.compute yields, so calling it does nothing: emit each value with op_output.emit",
    ),
    "an argument is missing": (
        "def compute(self, op_input, op_output): ...",
        "Wrong.compute must be def compute(self, op_input, op_output, context), not def compute(self, op_input",
    ),
    "no spec": ("def setup(self): ...", "Wrong.setup must be def setup(self, spec), not def setup(self)"),
    "one too many": ("def stop(self, context): ...", "Wrong.stop must be def stop(self), not"),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_that_could_not_work_is_refused_where_it_is_written(method: str) -> None:
    code, text = METHODS[method]
    with pytest.raises(TypeError, match=re.escape(text)):
        exec(f"class Wrong(Operator):\n    {code}", {"Operator": Operator})


def test_methods_may_be_written_freely() -> None:
    class Free(Operator):
        def setup(self, spec: Any, *more: Any) -> None: ...

        def compute(self, *args: Any) -> None: ...  # type: ignore[override]

        @staticmethod
        def start() -> None: ...

    run(lambda app: app.add_operator(Free(app, CountCondition(app, 2))))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Application(nam="x"), "Application does not take 'nam'"),
        (lambda: Application(nam="x"), "did you mean 'name'?"),
        (lambda: Application(gpus=1), "Application: gpus= is for the fragments of an application"),
        (lambda: Application("camera"), "a name is given by keyword: Application(name='camera')"),
        (lambda: Application([], "camera"), "Application does not take 'camera'"),
    ],
)
def test_an_application_says_what_it_takes(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "class Camera:\n    @op\n    def read(self): ...",
            "Camera.read is a method: its 'self' would be an input",
        ),
        ("op('frame')", "@op takes a plain function, not 'frame'"),
    ],
)
def test_what_cannot_be_an_operator_is_refused_where_it_is_decorated(code: str, text: str) -> None:
    with pytest.raises(TypeError, match=re.escape(text)):
        exec(code, {"op": op})


def test_an_application_lists_what_its_class_passes_on_too() -> None:
    class Sized(Application):
        def __init__(self, *args: Any, size: int = 3, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    with pytest.raises(TypeError, match="it takes 'size', 'argv', 'name', 'gpus', 'cpus', 'on_loss'"):
        Sized(sizes=3)


def test_an_empty_name_means_the_only_port_as_it_does_in_receive_and_emit() -> None:
    taken: list[int] = []
    run(lambda app: app.add_flow(numbers(app), sink(app, taken), {("", "in")}))
    run(lambda app: app.add_flow(numbers(app), sink(app, taken), {"out": ""}))
    assert taken == [0, 1, 2] * 2
    with pytest.raises(GraphError, match="several inputs"):
        run(lambda app: app.add_flow(numbers(app), add(app), {("out", "")}))


def test_a_keyword_of_an_operator_wins_over_its_section_whatever_the_order() -> None:
    app = Application([])
    app.config({"average": {"window": 5, "path": "file"}})
    section = app.from_config("average")
    operator: Any = Average(app, section, window=2)
    assert (operator.window, operator.path) == (2, "file")
    operator = Average(app, window=2)
    operator.add_arg(section)
    assert (operator.window, operator.path) == (2, "file")
    operator = Average(app)
    operator.add_arg(window=3)
    operator.add_arg(section)
    assert (operator.window, operator.path) == (3, "file")


@pytest.mark.parametrize("wrong", ["no", "False", "", b"0", 2, None, object])
@pytest.mark.parametrize(
    ("what", "give"),
    [
        (
            "GreedyScheduler 'greedyscheduler': stop_on_deadlock",
            lambda v: GreedyScheduler(stop_on_deadlock=v),
        ),
        ("BooleanCondition 'boolean_condition': enable_tick", lambda v: BooleanCondition(enable_tick=v)),
        (
            "RealtimeClock 'realtime_clock': use_time_since_epoch",
            lambda v: RealtimeClock(use_time_since_epoch=v),
        ),
        ("thread pool 'thread_pool': pin_operator", lambda v: ThreadPool().add([], pin_operator=v)),
        ("'Application': whether metadata is enabled", lambda v: Application([]).enable_metadata(v)),
    ],
)
def test_text_is_not_taken_for_a_flag(what: str, give: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(f"{what} must be True or False, not {wrong!r}")):
        give(wrong)


@pytest.mark.parametrize("flag", [False, 0, np.False_])
def test_a_flag_of_any_library_is_one(flag: Any) -> None:
    assert GreedyScheduler(stop_on_deadlock=flag).stop_on_deadlock is False
