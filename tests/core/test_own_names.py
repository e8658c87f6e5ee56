"""A program's names are its own: its classes may use every name that their bases do not document."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from headrace import Application, Condition, Operator, Subgraph
from headrace.application import Fragment
from headrace.conditions import CountCondition
from headrace.core import ParameterError, Resource
from headrace.operators import FeedOp, ResultsOp
from headrace.schedulers import Scheduler
from tests.harness import App
from tests.harness.own_names import WHEN, Names, check_kept, documented, of_inner_class, undocumented

BASES = (Operator, Application, Fragment, Subgraph, Condition, Resource, Scheduler)


def program(names: Names) -> tuple[list[Any], list[int]]:
    """Run a program of all kinds of classes, and return its objects and what came out."""
    made: list[Any] = []
    taken: list[int] = []
    stage: Any = names.own(Operator)

    class Source(stage):
        sent = 0

        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.use()
            self.sent += 1
            op_output.emit(self.sent)

    class Scale(stage):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.param("factor", 1, live=True)
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.use()
            op_output.emit(op_input.receive() * self.factor)

        def end(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(100)

    class Sink(stage):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.use()
            taken.append(op_input.receive())

    class Middle(names.own(Subgraph)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            scale = Scale(self, factor=2, name="scale", on_error="skip")
            made.extend([self, scale])
            self.add_input("in", scale["in"])
            self.add_output("out", scale["out"])

    class Edge(names.own(Fragment)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            condition = names.own(Condition)(self, name="always")
            source = Source(self, condition, CountCondition(self, 3), name="source")
            middle = Middle(self, name="middle")
            source >> middle
            made.extend([self, condition, source])

    class Hub(names.own(Fragment)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            resource = names.own(Resource)(self, name="resource")
            sink = Sink(self, resource, name="sink")
            made.extend([self, resource, sink])
            self.add_operator(sink)

    class App(names.own(Application)):  # type: ignore[misc]
        def compose(self) -> None:
            super().compose()
            self.add_flow(Edge(self, "edge"), Hub(self, "hub"), {("middle.scale.out", "sink.in")})

    class Once(names.own(Scheduler)):  # type: ignore[misc]
        def execute(self, run: Any) -> None:
            run.run_here()

    app = App()
    app.scheduler(Once(app))
    made.extend([app, app.scheduler()])
    app.track()
    app.run()
    made.clear()
    taken.clear()
    made.extend([app, app.scheduler()])
    app.run()  # once more, with what the first run has left behind
    return made, taken


@functools.cache
def names_of(bases: tuple[Any, ...] = BASES) -> dict[str, set[str]]:
    """Return the names that classes of programs may use, by the base class."""
    made, _ = program(Names({}, "method"))
    found: dict[str, set[str]] = {}
    for base in bases:
        objects = [each for each in made if isinstance(each, base)]
        own = {"sent", "factor", "use"}  # the program's
        found[base.__name__] = (undocumented(base, objects) | of_inner_class(base, objects)) - own
    return found


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.usefixtures("machine")
def test_a_program_may_use_every_name_that_is_not_documented(when: str) -> None:
    names = Names(names_of(), when)
    assert sum(map(len, names.names.values())) > 300
    made, taken = program(names)
    assert taken == [2, 4, 6, 100]
    if when in ("before", "__init__", "method"):
        check_kept(names, made)


@pytest.mark.parametrize("base", BASES)
def test_a_base_class_has_no_name_that_it_does_not_document(base: Any) -> None:
    made, _ = program(Names({}, "method"))
    objects = [each for each in made if type(each).__mro__[1].__mro__[1] is base]
    assert undocumented(base, objects) <= {"sent", "factor", "use"}


@pytest.mark.parametrize("base", BASES)
def test_a_planted_name_is_found_and_breaks_the_program(base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_planted", property(lambda self: 1), raising=False)
    assert "_planted" in undocumented(base)
    with pytest.raises(AttributeError, match="no setter"):
        program(Names({base.__name__: undocumented(base)}, "__init__"))


def test_the_documented_names_are_those_of_the_documentation() -> None:
    assert {"name", "spec", "fragment", "compute", "metadata", "add_arg"} <= documented(Operator)
    assert {"compose", "run", "graph", "argv", "add_flow"} <= documented(Application)
    assert not any(name.startswith("_") for base in BASES for name in documented(base))


@pytest.mark.parametrize("base", [Operator, Condition, Resource, Subgraph])
def test_a_parameter_may_have_every_name_that_is_not_documented(base: Any) -> None:
    names = sorted(names_of((base,))[base.__name__])
    seen: list[Any] = []

    def setup(self: Any, spec: Any) -> None:
        for name in names:
            spec.param(name, 1)

    def compute(self: Any, op_input: Any, op_output: Any, context: Any) -> None: ...

    body = {"setup": setup, "compose": lambda self: None, "compute": compute}
    own: Any = type("Own", (base,), body)
    bare: Any = type("Bare", (Operator,), {"compute": compute})

    class App(Application):
        def compose(self) -> None:
            made = own(self, name="own", **dict.fromkeys(names, 2))
            seen.extend(getattr(made, name) for name in names)
            host = made if base is Operator else bare(self, name="host")
            if base in (Condition, Resource):
                host.add_arg(made)
            self.add_operator(host)
            host.add_arg(CountCondition(self, 1))

    App().run()
    assert seen == [2] * len(names)


def test_a_block_of_running_asks_for_the_types_of_operators_and_not_for_their_attributes() -> None:
    class Source(Operator):
        def setup(self, spec: Any) -> None:
            self.feed: list[int] = []
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.feed.append(1)
            op_output.emit(1)

    class Sink(Operator):
        def setup(self, spec: Any) -> None:
            self.results: list[int] = []
            self.declared = self.feed = "the program's"
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.results.append(op_input.receive())

    class App(Application):
        def compose(self) -> None:
            self.sink = Sink(self, name="sink")
            Source(self, name="source") >> self.sink
            FeedOp(self, name="feed") >> ResultsOp(self, name="results")

    app = App()
    with app.running():
        app.feed("feed").put(7)
        assert next(iter(app.results("results"))) == 7
    assert len(app.sink.results) == app.outcome.operators["sink"].computes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["args", "conditions", "metadata", "resources", "spec"])
def test_an_attribute_that_a_run_needs_is_not_replaced_silently(name: str, when: str) -> None:
    class Own(Operator):
        def __init__(self, fragment: Any, *args: Any, **settings: Any) -> None:
            if when == "before":
                setattr(self, name, "mine")
            super().__init__(fragment, *args, **settings)
            if when == "after":
                setattr(self, name, "mine")

    app = App(lambda app: app.add_operator(Own(app, CountCondition(app, 1), name="own")))
    expected = f"Own sets its {name} to 'mine', but every operator has an attribute of that name"
    with pytest.raises(ParameterError, match=expected):
        app.run()
