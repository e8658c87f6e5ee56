"""An application of several fragments: one graph, one run, and the declarations of each fragment."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import (
    Application,
    CountCondition,
    Fragment,
    IOSpec,
    Operator,
    OperatorSpec,
    Resource,
    op,
)
from headrace.capture import CaptureRefused
from headrace.core import GraphError
from headrace.core.errors import ConfigError
from headrace.schedulers import GreedyScheduler
from tests.harness import MakeScheduler


@op
def numbers(*, count: int = 3):
    yield from range(count)


@op
def double(value: int) -> int:
    return 2 * value


@op(outputs=())
def keep(value: Any, *, into: list[Any]) -> None:
    into.append(value)


class Source(Fragment):
    """Emits numbers."""

    def compose(self) -> None:
        self.add_operator(numbers(self, name="numbers"))


class Sink(Fragment):
    """Keeps what it receives, doubled."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: list[Any] = []

    def compose(self) -> None:
        double(self, name="double") >> keep(self, into=self.kept, name="keep")


class Both(Application):
    """Two fragments; `pairs` and `options` are those of the flow between them."""

    def __init__(self, pairs: Any = None, **options: Any) -> None:
        super().__init__([])
        self.pairs, self.options = pairs or {("numbers.out", "double.value")}, options

    def make(self) -> tuple[Fragment, Sink]:
        return Source(self, "source"), Sink(self, "sink")

    def compose(self) -> None:
        self.source, self.sink = self.make()
        self.add_flow(self.source, self.sink, self.pairs, **self.options)


@pytest.mark.parametrize("pairs", [{("numbers.out", "double.value")}, {("numbers", "double")}])
def test_fragments_run_together(pairs: Any, scheduler: MakeScheduler) -> None:
    app = Both(pairs)
    app.scheduler(scheduler(app))
    outcome = app.run()
    assert app.sink.kept == [0, 2, 4]
    assert list(outcome.operators) == ["source.numbers", "sink.double", "sink.keep"]
    assert [operator.name for operator in app.sink.graph] == ["sink.double", "sink.keep"]
    assert [flow.target for flow in app.fragment_graph.flows] == [app.sink]
    app.run()  # composes its fragments anew
    assert app.sink.kept == [0, 2, 4]


def test_the_size_and_the_policy_of_a_flow_between_fragments_are_those_of_its_queue() -> None:
    app = Both(size=2, policy=IOSpec.QueuePolicy.POP)
    (flow,) = [flow for flow in app.compose_graph().flows if flow.source.name == "source.numbers"]
    assert (flow.size, flow.policy) == (2, IOSpec.QueuePolicy.POP)


def test_a_fragment_is_used_by_the_names_of_its_own_operators() -> None:
    found: list[Any] = []

    class Looks(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            names = ("looks", "source.looks", "sink.keep")
            found.append([context.find_operator(name).name for name in names])
            found.append((self.fragment.name, self.fragment.application is app))

    class Looking(Fragment):
        def compose(self) -> None:
            self.add_operator(Looks(self, CountCondition(self, 1), name="looks"))

    class Program(Both):
        def make(self) -> tuple[Fragment, Sink]:
            return Looking(self, "source"), Sink(self, "sink")

    app = Program({("looks", "double")})
    app.run()
    assert found == [["source.looks", "source.looks", "sink.keep"], ("source", True)]


def test_a_fragment_can_be_stopped_alone() -> None:
    class Stops(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(1)
            self.fragment.stop_execution()

    class Stopping(Fragment):
        def compose(self) -> None:
            self.add_operator(Stops(self, name="stops"))

    class Program(Both):
        def make(self) -> tuple[Fragment, Sink]:
            return Stopping(self, "source"), Sink(self, "sink")

    app = Program({("stops", "double")})
    assert str(app.run().ended_by) == "finished"
    assert app.sink.kept == [2]


def test_two_fragments_have_segments_and_operators_of_the_same_names() -> None:
    class Copies(Operator):
        capturable = True

        def setup(self, spec: OperatorSpec) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive())

    class Part(Fragment):
        def compose(self) -> None:
            first, second = Copies(self, name="first"), Copies(self, name="second")
            first >> second
            self.capture(first, second)

    class Program(Application):
        def compose(self) -> None:
            source, one, two = Source(self, "source"), Part(self, "one"), Part(self, "two")
            self.sink = Sink(self, "sink")
            self.add_flow(source, one, {("numbers", "first")})
            self.add_flow(one, two, {("second", "first")})
            self.add_flow(two, self.sink, {("second", "double")})

    app = Program([])
    with pytest.warns(CaptureRefused):  # there is no work on a device
        outcome = app.run()
    assert app.sink.kept == [0, 2, 4]
    assert [segment.name for segment in outcome.segments] == ["one.segment", "two.segment"]


def test_a_setting_names_an_operator_of_a_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SET_source__numbers__count", "1")
    app = Both()
    app.run()
    assert app.sink.kept == [0]
    monkeypatch.setenv("HEADRACE_SET_source__digits__count", "1")
    with pytest.raises(ConfigError, match="there is no operator 'source.digits'"):
        Both().run()


def test_the_scheduler_of_a_fragment_is_not_used_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Program(Both):
        def make(self) -> tuple[Fragment, Sink]:
            source, sink = super().make()
            source.scheduler(GreedyScheduler(source, name="own"))
            return source, sink

    app = Program()
    with caplog.at_level(logging.WARNING):
        app.run()
    assert "fragment 'source' has a scheduler of its own, <GreedyScheduler 'own'>" in caplog.text
    assert app.source.scheduler() is app.scheduler()


# Mistakes.


def _compose(compose: Any) -> Application:
    class Program(Application):
        def compose(self) -> None:
            compose(self)

    return Program([])


@pytest.mark.parametrize(
    ("compose", "text"),
    [
        (
            lambda app: app.add_flow(Source(app, "a"), Sink(app, "b")),
            r"a flow between fragments names its operators, as in \{\('camera.out', 'detector.in'\)\}",
        ),
        (
            lambda app: app.add_flow(Source(app, "a"), Sink(app, "b"), {("numbrs", "double")}),
            "fragment 'a' has no operator 'numbrs'; it has 'numbers'",
        ),
        (
            lambda app: app.add_flow(Source(app, "a"), Sink(app, "b"), {("numbers.outt", "double")}),
            "operator 'a.numbers' has no output 'outt'; it has 'out'",
        ),
        (
            lambda app: app.add_flow(Source(app, "a"), Sink(app, "a"), {("numbers", "double")}),
            "two fragments are named 'a'",
        ),
        (
            lambda app: app.add_flow(Source(app, "a"), Sink(), {("numbers", "double")}),
            "'Sink' cannot be a part of 'Program', because it was not made for it",
        ),
        (
            lambda app: app.add_flow(Source(app, "a"), double(app, name="d"), {("numbers", "double")}),
            "'d' cannot be a part of 'Program'",
        ),
        (lambda app: app.add_fragment(app), "cannot be a part of 'Program'"),
        (lambda app: app.add_fragment(Source(Both(), "a")), "because it was made for 'Both'"),
        (lambda app: app.add_fragment(Source), "cannot be a part of 'Program'"),
        (
            lambda app: app.add_flow(Source(app, "a"), Source(app, "b"), {("n", "n")}, Source(app, "c")),
            "connects two of them",
        ),
        (
            lambda app: (Source(app, "a"), app.add_fragment(Source(app, "b"))),
            "fragment 'a' .Source. was created in compose but is not a part of 'Program'",
        ),
        (
            lambda app: (app.add_fragment(Source(app, "a")), app.add_operator(numbers(app, name="n"))),
            "'Program' consists of fragments and has the operator 'n' of its own",
        ),
        (
            lambda app: app.add_fragment(Sink(app, "a")),
            "input 'value' of operator 'a.double' is not connected",
        ),
    ],
)
def test_a_mistake_names_the_fragment(compose: Any, text: str) -> None:
    with pytest.raises(GraphError, match=text):
        _compose(compose).run()


def test_an_error_in_the_compose_of_a_fragment_names_it() -> None:
    class Broken(Fragment):
        def compose(self) -> None:
            raise OSError("no camera")

    with pytest.raises(OSError, match="no camera") as raised:
        _compose(lambda app: app.add_fragment(Broken(app, "edge"))).run()
    assert "raised in compose of fragment 'edge' (Broken)" in raised.value.__notes__


def test_a_part_is_run_by_its_application() -> None:
    app = Both()
    app.run()
    for call in (app.sink.run, app.sink.run_async):
        with pytest.raises(GraphError, match=r"of 'sink', which is a part of 'Both' and runs with it"):
            call()


def test_a_fragment_has_services_and_finds_those_of_the_application() -> None:
    log: list[Any] = []

    class Table(Resource):
        def initialize(self) -> None:
            log.append(f"initialize {self.name}")

        def release(self) -> None:
            log.append(f"release {self.name}")

    class Look(Operator):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            log.append([self.service(kind) for kind in (int, str, float)])

    class Part(Fragment):
        def compose(self) -> None:
            self.register_service(Table(self, name=f"of {self.name}"))
            self.register_service(self.name)
            self.add_operator(Look(self, CountCondition(self, 1), name="look"))

    class Whole(Application):
        def compose(self) -> None:
            self.register_service(7)
            first, second = Part(self, "first"), Part(self, "second")
            first.register_service(1.5)
            self.add_fragment(first)
            self.add_fragment(second)

    app = Whole()
    app.scheduler(GreedyScheduler(app))
    app.run()
    assert log == [
        *("initialize of first", "initialize of second"),
        *([7, "first", 1.5], [7, "second", None]),
        *("release of second", "release of first"),
    ]
