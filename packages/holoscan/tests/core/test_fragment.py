"""Composing and running. What a test states is what the SDK 4.6.0 did with the same program."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from headrace.core.errors import GraphError
from headrace.resources import ManualClock
from headrace_holoscan.conditions import CountCondition
from headrace_holoscan.core import Application, ConditionType, Fragment, IOSpec, Operator, OperatorSpec
from headrace_holoscan.schedulers import EventBasedScheduler
from packages.holoscan.tests.core.programs import Seen, Sink, Source, composed, run


class Inputs(Operator):
    """Receives at each input as it is told to."""

    def __init__(self, fragment: Any, seen: Seen, *names: str, **kinds: Any) -> None:
        self.seen, self.names, self.kinds = seen, names, kinds
        super().__init__(fragment, name="inputs")

    def setup(self, spec: OperatorSpec) -> None:
        for name in self.names:
            spec.input(name, size=self.kinds.get("size", 1))

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        kind = self.kinds.get("kind", "")
        times = self.kinds.get("times", 1)
        self.seen.append([op_input.receive(name, kind=kind) for name in self.names for _ in range(times)])


def test_an_application_needs_no_operators() -> None:
    assert Application().run() is None
    assert Application().run_async().result() is None


def test_the_class_names_an_application() -> None:
    class Named(Application):
        name, description, version = "n", "d", "v"

    app, plain = Named(), Application()
    assert (app.name, app.description, app.version) == ("n", "d", "v")
    assert (plain.name, plain.description, plain.version) == ("", "", "0.0.0")
    assert repr(app) == "<holoscan.Application: name:n>"
    app.name = "other"
    assert app.name == "other"


def test_a_fragment_knows_its_application() -> None:
    app = Application()
    assert [Fragment(app).name, Fragment(app, "a").name, Fragment(app, name="b").name] == ["", "a", "b"]
    assert (Fragment(app).application, app.application, Fragment().application) == (app, app, None)
    assert isinstance(app, Fragment)


def test_mistakes_in_composing_are_runtime_errors() -> None:
    for wrong, match in (
        (
            lambda app: app.add_flow(Source(app), Sink(app, []), {("wrong", "in")}),
            "not have an output port with label 'wrong'",
        ),
        (lambda app: app.add_flow(Source(app, name="a"), Sink(app, [], name="a")), "named 'a'"),
        (lambda app: app.add_flow(Source(app), Inputs(app, [], "in", size=-7)), "-7"),
    ):
        with pytest.raises(RuntimeError, match=match) as raised:
            run(wrong)
        assert type(raised.value).__name__ == "RuntimeError"
        assert isinstance(raised.value, GraphError)
        with pytest.raises(RuntimeError, match=match):
            composed(wrong).run_async().result()
    with pytest.raises(TypeError):
        Application().add_operator(3)


@pytest.mark.parametrize(
    ("options", "received"),
    [
        ({"kind": "multi"}, [[(1,)], [(2,)], [(3,)], [(4,)]]),
        ({"kind": "single"}, [[1], [2], [3], [4]]),
        ({"kind": "single", "size": 2, "times": 3}, [[1, 2, None], [3, 4, None]]),
        ({"kind": "multi", "size": 2, "times": 2}, [[(1, 2), None], [(3, 4), None]]),
        ({"kind": "multi", "size": IOSpec.ANY_SIZE}, [[(1,)], [(2,)], [(3,)], [(4,)]]),
    ],
)
def test_receive_has_a_kind(options: Any, received: Any) -> None:
    seen: Seen = []
    run(lambda app: app.add_flow(Source(app, 4), Inputs(app, seen, "in", **options)))
    assert seen == received


@pytest.mark.parametrize("options", [{"kind": "wrong"}, {"kind": "single", "size": IOSpec.ANY_SIZE}])
def test_a_wrong_kind_is_an_error(options: Any) -> None:
    with pytest.raises(RuntimeError):
        run(lambda app: app.add_flow(Source(app), Inputs(app, [], "in", **options)))


def test_ports_have_the_sdks_default_names_and_one_declared_twice_counts_once() -> None:
    class Ports(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.input()
            spec.output()
            assert spec.input("in") is spec.input("in", size=5)

    spec = Ports(Application()).spec
    assert (list(spec.inputs), list(spec.outputs)) == (["__iospec_input", "in"], ["__iospec_output"])


class Stops(Operator):
    """An operator of a chain that notes its stop, and stops the run or fails at its second compute."""

    def __init__(self, fragment: Any, seen: Seen, name: str, chain: str, does: str = "") -> None:
        self.seen, self.is_first, self.is_last = seen, name == chain[0], name == chain[-1]
        self.does, self.computes = does, 0
        counted = [CountCondition(fragment, 3)] if self.is_first and not does else []
        super().__init__(fragment, *counted, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        if not self.is_first:
            spec.input("in")
        if not self.is_last:
            spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self.is_first:
            op_input.receive("in")
        if not self.is_last:
            op_output.emit(1, "out")
        self.computes += 1
        if self.does == f"stop {self.name}" and self.computes == 2:
            self.fragment.stop_execution()
        if self.does == f"fail {self.name}" and self.computes == 2:
            raise ZeroDivisionError

    def stop(self) -> None:
        self.seen.append(self.name)


@pytest.mark.parametrize(
    ("does", "workers", "stops"),
    [
        *[
            ("", 0, "adcb"),
            ("", 1, "abcd"),
            ("stop a", 0, "bcda"),
            ("stop b", 0, "cdab"),
            ("stop d", 0, "abcd"),
        ],
        *[("fail a", 0, "abcd"), ("fail c", 0, "cabd"), ("fail c", 1, "cabd")],
    ],
)
def test_operators_are_stopped_in_the_sdks_order(does: str, workers: int, stops: str) -> None:
    seen: Seen = []

    def compose(app: Any) -> None:
        if workers:
            app.scheduler(EventBasedScheduler(app, worker_thread_number=workers))
        made = [Stops(app, seen, name, "abcd", does) for name in "abcd"]
        for first, second in pairwise(made):
            app.add_flow(first, second)

    with suppress(ZeroDivisionError):
        run(compose)
    assert "".join(seen) == stops


@pytest.mark.parametrize(
    ("mode", "counts", "received"),
    [
        ({"sampling_mode": "SumOfAll", "min_sum": 2}, (3, 1), [[1, 1]]),
        ({"sampling_mode": "SumOfAll", "min_sum": 5}, (2, 2), []),
        ({"sampling_mode": "PerReceiver", "min_sizes": [1, 1]}, (3, 2), [[1, 1], [2, 2]]),
    ],
)
def test_a_timeout_keeps_no_run_alive(mode: Any, counts: Any, received: Any) -> None:
    seen: Seen = []

    class Timeout(Inputs):
        def setup(self, spec: OperatorSpec) -> None:
            super().setup(spec)
            kind = ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT
            spec.multi_port_condition(kind, port_names=["a", "b"], execution_frequency="50ms", **mode)

    def compose(app: Any) -> None:
        app.scheduler(EventBasedScheduler(app, clock=ManualClock(app)))
        target = Timeout(app, seen, "a", "b")
        for port, count in zip("ab", counts, strict=True):
            app.add_flow(Source(app, count, name=f"to {port}"), target, {("out", port)})

    run(compose)
    assert seen == received


def test_operators_and_flows_may_be_added_outside_of_compose() -> None:
    seen: Seen = []
    app = Application()
    app.add_flow(Source(app), Sink(app, seen))
    assert app.run() is None
    assert seen == [1, 2]


def test_a_source_that_waits_for_no_room_drops_what_does_not_fit() -> None:
    seen: Seen = []

    class Eager(Source):
        def setup(self, spec: OperatorSpec) -> None:
            spec.output("out").condition(ConditionType.NONE)

    def compose(app: Any) -> None:
        source = Eager(app, 3)
        app.add_flow(source, Inputs(app, [], "in", "never connected"), {("out", "in")})
        app.add_flow(source, Sink(app, seen))

    run(compose)
    assert seen == [1, 2, 3]


def test_an_error_of_composing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def compose(app: Any) -> None:
        app.add_flow(Source(app), Sink(app, []), {("out", "nothing")})

    with pytest.raises(RuntimeError, match="nothing") as raised:
        run(compose)
    logged = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in logged] == [str(raised.value)]
