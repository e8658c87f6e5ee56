"""An operator has one source of streams, and a device is divided once; else the graph is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.core.errors import GraphError
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.harness import App, Step, run
from tests.resources.green_contexts import composed, green_pool


@pytest.mark.parametrize(
    ("makes", "first", "second"),
    [
        ((CudaStreamPool, CudaStreamPool), "CudaStreamPool 'a'", "CudaStreamPool 'b'"),
        (
            (CudaStreamPool, lambda app, name: CudaGreenContext(app, green_pool(app), 0, name=name)),
            "CudaStreamPool 'a'",
            "CudaGreenContext 'b'",
        ),
        (
            (lambda app, name: CudaGreenContext(app, green_pool(app), 0, name=name), CudaStreamPool),
            "CudaGreenContext 'a'",
            "CudaStreamPool 'b'",
        ),
        ((CudaStreamPool, green_pool), "CudaStreamPool 'a'", "CudaGreenContextPool 'b'"),
    ],
)
def test_an_operator_that_was_given_two_sources_of_streams_is_refused(
    makes: Any, first: str, second: str
) -> None:
    given = [
        lambda app, make=make, name=name: make(app, name=name) for make, name in zip(makes, "ab", strict=True)
    ]
    with pytest.raises(
        GraphError, match=rf"operator 'step' .* was given two: {first} and {second}; pass one"
    ):
        composed(*given)


def test_a_pool_given_by_parameter_counts_as_well() -> None:
    def compose(app: Any) -> None:
        pools = [CudaStreamPool(app, name=name) for name in "ab"]
        app.add_operator(
            Step(
                app,
                pools[0],
                body=lambda *_: None,
                setup=lambda spec: spec.param("cuda_stream_pool", None),
                name="step",
                cuda_stream_pool=pools[1],
            )
        )

    with pytest.raises(GraphError, match="given two: CudaStreamPool 'a' and CudaStreamPool 'b'"):
        App(compose).compose_graph()


@pytest.mark.parametrize("given", [(0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (2, 1), (1, 2), (2, 0)])
def test_a_stream_pool_may_come_with_the_slice_it_stands_on(given: tuple[int, ...]) -> None:
    found: list[int] = []

    def compose(app: Any) -> None:
        slices = green_pool(app)
        context = CudaGreenContext(app, slices, 0)
        parts = (CudaStreamPool(app, cuda_green_context=context), context, slices)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        step = Step(app, CountCondition(app, 1), *(parts[n] for n in given), body=body, name="step")
        app.add_operator(step)

    run(compose)
    assert found == [16]


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        ({"sms_per_partition": [16]}, {"sms_per_partition": [40, 8]}, r"sms_per_partition=\[16, 40, 8\]"),
        (
            {"sms_per_partition": {"a": 16}},
            {"sms_per_partition": {"b": 40}},
            r"sms_per_partition=\{'a': 16, 'b': 40\}",
        ),
        ({"sms_per_partition": {"a": 16}}, {"sms_per_partition": {"a": 40}}, r"sms_per_partition=\[16, 40\]"),
        ({"sms_per_partition": {"a": 16}}, {"sms_per_partition": [40]}, r"sms_per_partition=\[16, 40\]"),
        ({"num_partitions": 2}, {"sms_per_partition": [40]}, "num_partitions=3"),
    ],
)
def test_two_pools_that_divide_one_device_are_refused(first: Any, second: Any, right: str) -> None:
    def compose(app: Any) -> None:
        for n, arguments in enumerate((first, second)):
            slices = CudaGreenContextPool(app, **arguments, name=f"slices{n}")
            given = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, 0))
            app.add_operator(Step(app, given, body=lambda *_: None, name=f"step{n}"))

    with pytest.raises(
        GraphError,
        match=rf"'slices0' \(operator 'step0'\) and .*'slices1' \(operator 'step1'\) both divide device 0.*{right}",
    ):
        App(compose).compose_graph()
