"""Subgraphs: groups of operators with ports, parameters and names of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Application, Operator, Subgraph, op
from headrace.core import GraphError, ParameterError, SubgraphSpec
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler


@op
def count(*, first: int = 1, last: int = 3):
    yield from range(first, last + 1)


@op
def scale(value: int, *, factor: int = 1) -> int:
    return factor * value


@op(outputs=())
def collect(value: Any, *, into: list[Any]) -> None:
    into.append(value)


@op
def add(left: int, right: int) -> int:
    return left + right


class Scaled(Subgraph):
    """Multiplies what it receives by two factors."""

    factor: int

    def setup(self, spec: SubgraphSpec) -> None:
        spec.param("factor", 2, minimum=1)

    def compose(self) -> None:
        first = scale(self, name="first", factor=self.factor)
        second = scale(self, name="second", factor=10)
        first >> second
        self.add_input("value", first)
        self.add_output("result", second["out"])


class Twice(Subgraph):
    """One subgraph in another, after a source of its own."""

    def compose(self) -> None:
        inner = Scaled(self, name="inner", factor=3)
        count(self, name="count") >> inner
        self.add_output("out", inner["result"])


def run(compose: Callable[[Application], None], scheduler: Any = None) -> Application:
    class App(Application):
        def compose(self) -> None:
            compose(self)

    app = App()
    if scheduler is not None:
        app.scheduler(scheduler(app))
    app.run()
    return app


def failing(compose: Callable[[Application], None], kind: type[Exception] = GraphError) -> str:
    with pytest.raises(kind) as error:
        run(compose)
    return str(error.value)


@pytest.mark.parametrize(
    "scheduler",
    [
        GreedyScheduler,
        MultiThreadScheduler,
        lambda app: EventBasedScheduler(app, worker_thread_number=2),
        lambda app: EventBasedScheduler(app, worker_thread_number=5),
    ],
)
def test_a_subgraph_is_its_operators_with_longer_names(scheduler: Any) -> None:
    found: list[int] = []

    def compose(app: Application) -> None:
        app.add_flow(
            count(app), Scaled(app, name="one"), Scaled(app, name="two", factor=1), collect(app, into=found)
        )

    app = run(compose, scheduler)
    assert found == [200, 400, 600]
    assert [operator.name for operator in app.graph] == [
        *("one.first", "one.second", "two.first", "two.second"),
        *("count", "collect"),
    ]
    assert [str(flow) for flow in app.graph.flows][2:] == [
        "count.out -> one.first.value",
        "one.second.out -> two.first.value",
        "two.second.out -> collect.value",
    ]
    assert list(app.graph.subgraphs) == ["one", "two"]


def test_subgraphs_are_nested_and_names_follow() -> None:
    found: list[int] = []

    def compose(app: Application) -> None:
        Twice(app, name="left") >> collect(app, into=found)

    app = run(compose)
    assert found == [30, 60, 90]
    assert [operator.name for operator in app.graph] == [
        *("left.inner.first", "left.inner.second", "left.count", "collect"),
    ]
    assert app.graph.find("left.inner.first").fragment is app
    assert app.run().operators["left.count"].computes == 4  # composed anew for every run


class Eye(Subgraph):
    """A source whose settings come from the section with its name."""

    gain: int

    def setup(self, spec: SubgraphSpec) -> None:
        spec.param("gain")

    def compose(self) -> None:
        camera = count(self, self.from_config("camera"), name="camera")
        amplifier = scale(self, name="amplifier", factor=self.gain)
        camera >> amplifier
        self.add_output("frame", amplifier)


def test_the_sections_of_a_subgraph_have_its_name() -> None:
    found: list[int] = []
    settings = {
        "pair": {
            "left": {"gain": 2, "camera": {"first": 5, "last": 6}},
            "right": {"gain": 3, "camera": {"last": 1}},
        }
    }

    class Pair(Subgraph):
        def compose(self) -> None:
            assert self.config_keys() >= {"left", "left.gain", "right.camera.last"}
            for side in ("left", "right"):
                self.add_output(side, Eye(self, self.from_config(side), name=side))

    def compose(app: Application) -> None:
        app.config(settings)
        pair = Pair(app)
        (pair["left"], pair["right"]) >> collect(app, into=found)

    run(compose)
    assert sorted(found) == [3, 10, 12]
    settings["pair"]["right"]["camra"] = {}
    assert failing(compose, ParameterError) == (
        "subgraph 'pair.right' has no parameter or operator 'camra'; it has 'gain', 'camera', 'amplifier'; did you "
        "mean 'camera'?"
    )


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        (
            lambda app: count(app) >> Scaled(app, name="left")["valeu"],
            "subgraph 'left' has no port 'valeu'; it has 'value', 'result'; did you mean 'value'?",
        ),
        (
            lambda app: app.add_flow(count(app), Scaled(app, name="left"), {("out", "result")}),
            "add_flow('count', 'left'): subgraph 'left' has no input 'result'; it has 'value'",
        ),
        (
            lambda app: count(app) >> Twice(app, name="left"),
            "subgraph 'left' has no input (its compose declares one by add_input('name', operator['port'])), and a",
        ),
        (
            lambda app: [Scaled(app, name="left"), Scaled(app, name="left")],
            "two subgraphs are named 'left'; give one another name=...",
        ),
        (
            lambda app: [Scaled(app, name="left"), app.add_operator(count(app, name="left"))],
            "a subgraph and an operator are named 'left'; give one another name=...",
        ),
        (
            lambda app: Scaled(app, name="left") >> collect(app, into=[]),
            "input 'value' of operator 'left.first' (port 'value' of subgraph 'left') is not connected",
        ),
        (lambda app: app.add_operator(Scaled(app, name="left")), "subgraph 'left' is no operator"),
        (lambda app: app.capture(Scaled(app, name="left")), "subgraph 'left' is no operator"),
        (lambda app: Scaled(app, name="a.b"), "the name of a Scaled must be a str without a '.', not 'a.b'"),
    ],
)
def test_a_mistake_names_the_subgraph_and_what_would_be_right(compose: Any, message: str) -> None:
    assert message in failing(compose, (KeyError, ValueError, TypeError))  # type: ignore[arg-type]


def test_a_subgraph_declares_each_port_once_and_of_its_own_operators() -> None:
    def declaring(declare: Callable[[Subgraph, Operator], None]) -> str:
        class Wrong(Subgraph):
            def compose(self) -> None:
                declare(self, scale(self))

        return failing(lambda app: Wrong(app, name="wrong"), (KeyError, ValueError))  # type: ignore[arg-type]

    def twice(self: Subgraph, inner: Operator) -> None:
        self.add_output("out", inner)
        self.add_output("out", inner)

    assert declaring(twice) == (
        "subgraph 'wrong': add_output('out', 'wrong.scale'): the subgraph has the output 'out' already"
    )
    assert "give the input of an operator inside" in declaring(lambda self, inner: self.add_input("in"))
    assert "must be a non-empty str" in declaring(lambda self, inner: self.add_input("", inner))
    assert "is not an operator" in declaring(lambda self, inner: self.add_input("in", 3))  # type: ignore[arg-type]
    assert "was created in 'App' and cannot be connected in 'wrong'" in declaring(
        lambda self, inner: self.add_input("in", scale(self.fragment))
    )
    assert (
        "subgraph 'wrong': add_input('in', 'wrong.scale'['out']): operator 'wrong.scale' has no input 'out'"
        in (declaring(lambda self, inner: self.add_input("in", inner["out"])))
    )


def test_settings_and_methods_of_the_fragment_are_not_those_of_a_subgraph() -> None:
    class Wrong(Subgraph):
        def compose(self) -> None:
            self.max_in_flight = 2

    assert "'max_in_flight' is a setting of the whole fragment" in failing(
        lambda app: Wrong(app), AttributeError
    )

    class Stops(Subgraph):
        def compose(self) -> None:
            self.capture(1)

    assert "has no attribute 'capture'; its fragment has one: self.fragment.capture" in failing(
        lambda app: Stops(app), AttributeError
    )


def test_an_error_in_compose_names_the_subgraph_and_a_subgraph_needs_a_compose_around_it() -> None:
    class Broken(Subgraph):
        def compose(self) -> None:
            raise LookupError("no lens")

    class Outer(Subgraph):
        def compose(self) -> None:
            Broken(self, name="lens")

    with pytest.raises(LookupError) as error:
        run(lambda app: Outer(app, name="left"))
    assert error.value.__notes__[:2] == [
        "raised in compose of subgraph 'left.lens' (Broken)",
        "raised in compose of subgraph 'left' (Outer)",
    ]
    with pytest.raises(GraphError, match=r"Scaled\('scaled'\) of 'Application', which is not being composed"):
        Scaled(Application())


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (
            lambda app, box: box.first >> collect(app, into=[]),
            "'collect' .* in 'box': a subgraph does not change in a run; connect a port that it has",
        ),
        (
            lambda app, box: app.add_flow(box.first, collect(app, into=[])),
            "'box.first' .* a subgraph does not change in a run; connect a port that it has",
        ),
        (
            lambda app, box: box.first >> collect(box, into=[]),
            r"in subgraph 'box', which does not change in a run: create the operator in 'Wired', and connect it to",
        ),
        (
            lambda app, box: box >> Scaled(app, name="late"),
            r"Scaled\('late'\) of 'Wired', which is running: .* a run takes only new operators .*a >> b",
        ),
    ],
)
def test_a_mistake_of_wiring_in_a_run_says_what_a_run_takes(wire: Any, message: str) -> None:
    class Box(Subgraph):
        def compose(self) -> None:
            self.first = scale(self, name="first")
            self.add_input("value", self.first)
            self.add_output("result", self.first["out"])

    class Wired(Application):
        def compose(self) -> None:
            box = Box(self, name="box")

            @op
            def change(value: int) -> None:
                wire(self, box)

            count(self) >> box >> change(self)

    with pytest.raises(GraphError, match=message):
        Wired().run()


def test_a_run_takes_an_operator_behind_a_port_of_a_subgraph() -> None:
    taken: list[int] = []

    class Wired(Application):
        def compose(self) -> None:
            box = Scaled(self, name="box")

            @op
            def change(value: int) -> None:
                if value == 20:
                    box["result"] >> collect(self, into=taken)
                    assert self.wait_until_changed(0) is False, "before the next compute"

            count(self, last=4) >> box >> change(self)

    Wired().run()
    assert taken[-1] == 80
