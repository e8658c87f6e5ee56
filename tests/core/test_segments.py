"""Segments as compose declares them: what they may consist of, and what they say about themselves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from headrace import Operator
from headrace.capture import Segment, SegmentOptions
from headrace.core import GraphError
from tests.harness import App


class Idle(Operator):
    """An operator that is never run."""

    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        raise AssertionError


class Step(Idle):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")


class Join(Idle):
    def setup(self, spec: Any) -> None:
        spec.input("one")
        spec.input("two")
        spec.output("out")


class First(Idle):
    def setup(self, spec: Any) -> None:
        spec.output("out")


class Last(Idle):
    def setup(self, spec: Any) -> None:
        spec.input("in")


def steps(app: Any, names: str) -> list[Any]:
    return [Step(app, name=name) for name in names]


def chain(app: Any, *operators: Any) -> None:
    for one, other in pairwise(operators):
        app.add_flow(one, other)


def composed(compose: Any) -> Any:
    app = App(compose)
    app.compose_graph()
    return app


def test_a_segment_knows_its_operators_and_options() -> None:
    def compose(app: Any) -> None:
        a, b = steps(app, "ab")
        chain(app, First(app, name="first"), a, b, Last(app, name="last"))
        app.declared = app.capture(a, b, name="two", warmup=1, check_every=5, shapes=2)

    app = composed(compose)
    segment = app.declared
    assert app.segments == [segment]
    assert [operator.name for operator in segment.operators] == ["a", "b"]
    assert segment.options == SegmentOptions(1, 5, 2, False)
    assert (segment.name, segment.state, segment.reason) == ("two", "composed", "")
    assert repr(segment) == "<Segment 'two', composed>"
    assert segment.report() == "segment 'two' (a, b): composed"


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"warmup": 0}, "warmup must be at least 1, not 0"),
        ({"warmup": 1.5}, "warmup must be an int"),
        ({"check_every": -1}, "check_every must be a number of seconds, or None to compare nothing, not -1"),
        ({"check_every": True}, "check_every must be a number of seconds"),
        ({"shapes": 0}, "shapes must be at least 1"),
    ],
)
def test_wrong_options(options: dict[str, Any], match: str) -> None:
    def compose(app: Any) -> None:
        (a,) = steps(app, "a")
        chain(app, First(app, name="first"), a, Last(app, name="last"))
        app.capture(a, **options)

    def compose_chains(app: Any) -> None:
        (a,) = steps(app, "a")
        chain(app, First(app, name="first"), a, Last(app, name="last"))
        app.capture_chains(**options)

    for each in (compose, compose_chains):
        with pytest.raises((TypeError, ValueError), match=match):
            composed(each)


def capturing(*names: str, also: tuple[str, ...] = (), **options: Any) -> Any:
    """Return a program that captures some of its operators.

    ``first -> a -> b -> c -> last``, with ``a -> join`` and ``c -> join`` and a loop ``d -> e -> d``.
    """

    def compose(app: Any) -> None:
        made = {step.name: step for step in steps(app, "abcde")}
        made["join"] = Join(app, name="join")
        made["first"] = First(app, name="first")
        made["alone"] = Step(app, name="alone")
        a, b, c, d, e = (made[name] for name in "abcde")
        chain(app, made["first"], a, b, c, Last(app, name="last"))
        app.add_flow(a, made["join"], {("out", "one")})
        app.add_flow(c, made["join"], {("out", "two")})
        chain(app, d, e, d)
        if "alone" not in names:
            chain(app, c, made["alone"])
        app.capture(*[made[name] for name in names], **options)
        if also:
            app.capture(*[made[name] for name in also])

    return compose


@pytest.mark.parametrize(
    ("compose", "match"),
    [
        (capturing(), r"takes one operator or more: self\.capture\(blur, sharpen\)"),
        (capturing("a", "a"), "operator 'a' is given twice"),
        (capturing("a", "b", also=("b", "c")), "'b' is part of the segment 'segment' already"),
        (capturing("a", "c"), "'c' and 'a' are not connected.*make two"),
        (capturing("d", "e"), "its operators form a cycle"),
        (capturing("a", "c", "join"), "leave it by .* and come back by .*make two segments"),
        (capturing("a", "alone"), "'alone' .*not part of the graph|is not in the graph"),
        (capturing("a", name="x", also=()), ""),
    ],
)
def test_operators_that_cannot_form_a_segment(compose: Any, match: str) -> None:
    if not match:
        assert [segment.name for segment in composed(compose).segments] == ["x"]
        return
    with pytest.raises(GraphError, match=match):
        composed(compose)


def test_the_report_of_a_segment() -> None:
    segment = Segment("three", [], SegmentOptions())
    segment.state, segment.reason = "eager", "'a' waits for the device"
    assert segment.report() == "segment 'three' (): eager, because 'a' waits for the device"
    segment.state, segment.reason, segment.frames, segment.replayed = "captured", "", 1_000, 900
    assert segment.report() == "segment 'three' (): captured; 900 of 1000 frames replayed"
    segment.eager_ns, segment.replay_ns = 50_000.0, 10_000.0
    assert segment.report().endswith(
        "replayed in 10.0 µs of the host's time each instead of 50.0, which saved 0.036 s"
    )


def test_a_class_with_the_compute_of_a_mixin_says_itself_that_it_may_be_captured() -> None:
    class Other:
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            raise AssertionError

    class Silent(Other, Step):
        pass

    class Says(Other, Step):
        capturable = True

    class Behind(Step, Other):
        pass

    assert not Silent.capturable
    assert Says.capturable is True
    assert Behind.capturable is True

    def compose(app: Any) -> None:
        app.capture(Silent(app, name="silent"))

    with pytest.raises(GraphError, match="does not say that it may be captured"):
        composed(compose)
