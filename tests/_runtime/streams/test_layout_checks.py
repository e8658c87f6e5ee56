"""What a program declares of streams is checked when its graph is composed, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Application, Fragment
from headrace.core.errors import GraphError
from headrace.resources import (
    CudaGreenContext,
    CudaGreenContextPool,
    CudaStreamPool,
    UnboundedAllocator,
)
from tests.harness import App, Step, sink, source, through
from tests.harness.segments import Work


def middle(app: Any, name: str, *resources: Any, **settings: Any) -> Step:
    return Step(app, *resources, inputs=("in",), outputs=("out",), name=name, **settings)


def refusal(declare: Callable[[Any, Any, Any], None], *pools: Callable[[Any], Any], **settings: Any) -> str:
    """Compose two operators in a row and what a function declares of them; return the error."""

    def compose(app: Any) -> None:
        given = [pool(app) for pool in pools] or [None, None]
        a, b = (
            middle(app, name, *([pool] if pool else []), **settings)
            for name, pool in zip("ab", given, strict=True)
        )
        app.add_flow(source(app, [1]), a, b, sink(app, []))
        declare(app, a, b)

    with pytest.raises(GraphError) as raised:
        App(compose).compose_graph()
    return str(raised.value)


def share(app: Any, a: Any, b: Any) -> None:
    app.share_stream(a, b)


def test_stream_per_takes_one_of_three_words() -> None:
    def declare(app: Any, a: Any, b: Any) -> None:
        app.stream_per = "auto"

    text = refusal(declare)
    assert "stream_per must be 'operator' (a stream for each), 'branch'" in text
    assert "not 'auto'" in text


def test_an_operator_on_the_default_stream_shares_no_other() -> None:
    text = refusal(share, setup=lambda spec: spec.default_stream())
    assert "share_stream: operator 'a' says spec.default_stream(), and has one stream" in text


@pytest.mark.parametrize(
    "pools",
    [
        (lambda app: CudaStreamPool(app, name="one"), lambda app: CudaStreamPool(app, name="two")),
        (
            lambda app: CudaGreenContext(app, CudaGreenContextPool(app, sms_per_partition=[16])),
            lambda app: CudaStreamPool(app, name="two"),
        ),
    ],
    ids=["pools", "a slice and a pool"],
)
def test_a_stream_is_shared_within_one_pool(pools: Any) -> None:
    assert "operator 'b' takes its stream from another pool or slice than 'a'" in refusal(share, *pools)


def test_a_captured_operator_shares_no_stream() -> None:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app)
        first, second = (Work(app, alloc=memory, name=name) for name in ("first", "second"))
        app.add_flow(source(app, [1]), first, second, sink(app, []))
        app.capture(first, second)
        app.share_stream(first, second)

    with pytest.raises(GraphError, match="'first' is part of a captured segment"):
        App(compose).compose_graph()


def test_those_that_share_a_stream_are_two_or_more_and_share_one() -> None:
    assert "takes two operators or more" in refusal(lambda app, a, b: app.share_stream(a, a))
    assert "takes operators, not 'a'" in refusal(lambda app, a, b: app.share_stream(a, "a"))

    def twice(app: Any, a: Any, b: Any) -> None:
        app.share_stream(a, b)
        app.share_stream(b, a)

    assert "operator 'b' shares a stream already, with 'a'; name all of them in one call" in refusal(twice)


def test_a_part_of_an_application_has_streams_as_the_application_says() -> None:
    class Part(Fragment):
        def compose(self) -> None:
            self.add_flow(source(self, [1]), through(self, name="through"), sink(self, []))

    class Whole(Application):
        def compose(self) -> None:
            self.stream_per = "branch"
            self.add_fragment(Part(self, name="usual"))
            different = Part(self, name="different")
            different.stream_per = "program"
            self.add_fragment(different)

    graph = Whole().compose_graph()
    assert {each.fragment.name: each.fragment.stream_per for each in graph} == {
        "usual": "branch",
        "different": "program",
    }
