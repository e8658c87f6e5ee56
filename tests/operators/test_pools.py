"""Operators allocate what they emit from their pool, and say so where it is exhausted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.core.errors import AllocationError, ParameterError
from headrace.gpu import sim
from headrace.operators import (
    BayerDemosaicOp,
    CameraSimOp,
    FormatConverterOp,
    HolovizOp,
    SegmentationPostprocessorOp,
    V4L2VideoCaptureOp,
)
from headrace.operators.arrays import Workplace
from headrace.resources import BlockMemoryPool, MemoryStorageType, StreamOrderedAllocator, UnboundedAllocator
from headrace.tensor import DLDeviceType
from headrace.testing import run_operator
from headrace_holoscan.ready import InferenceProcessorOp, PingTensorTxOp
from tests.harness import App, run
from tests.operators.allocators import CountingAllocator
from tests.operators.cases import Case, random
from tests.operators.on_device import DeviceSource, Sink, run_on_device

FRAME = random(np.uint8, 8, 6, 3)
RESIZED = {"out_dtype": "float32", "resize_height": 4, "resize_width": 5}


def test_the_blocks_are_those_that_the_docstring_names() -> None:
    pool = CountingAllocator()
    run_operator(FormatConverterOp, inputs=[FRAME], pool=pool, name="format", **RESIZED)
    assert pool.requests == [((4, 5, 3), "float32", 2, "format")]


def test_on_a_device_the_blocks_are_of_its_memory_and_for_the_operators_stream(machine: sim.Machine) -> None:
    pool = CountingAllocator()
    case = Case(BayerDemosaicOp, random(np.uint8, 4, 6), {"pool": pool})
    run_on_device(case)
    assert pool.requests == [((4, 6, 3), "uint8", 1, "operator")]


@pytest.mark.parametrize(
    "pool", [BlockMemoryPool(None, "device", 8, 1, name="pool"), StreamOrderedAllocator(None)]
)
def test_a_pool_of_device_memory_is_left_alone_on_the_host(pool: Any, machine: sim.Machine) -> None:
    outcome = run_operator(FormatConverterOp, inputs=[FRAME], pool=pool, **RESIZED)
    assert str(outcome["tensor"][0].get().device) == "cpu"


def test_a_pool_of_pinned_memory_is_used_on_the_host(machine: sim.Machine) -> None:
    pool = BlockMemoryPool(None, "host", block_size=4 * 6 * 3, num_blocks=1)
    outcome = run_operator(BayerDemosaicOp, inputs=[random(np.uint8, 4, 6)], pool=pool)
    assert outcome["transmitter"][0].get().device.device_type == DLDeviceType.CUDA_HOST
    np.testing.assert_array_equal(
        np.asarray(outcome["transmitter"][0].get()),
        Case(BayerDemosaicOp, random(np.uint8, 4, 6)).on_host(),
    )


def test_a_pool_of_system_memory_is_refused_on_a_device(machine: sim.Machine) -> None:
    case = Case(
        BayerDemosaicOp,
        random(np.uint8, 4, 6),
        {"pool": BlockMemoryPool(None, "system", 72, 1, name="frames")},
    )
    with pytest.raises(
        ValueError, match="'operator' works on a device, and its pool 'frames' has only system"
    ):
        run_on_device(case)


def test_an_exhausted_pool_names_the_operator() -> None:
    pool = BlockMemoryPool(None, "system", block_size=72, num_blocks=2, name="pool")
    with pytest.raises(
        AllocationError, match="operator 'eye': 'pool' has too little SYSTEM memory for 72 B: 0 of 2"
    ):
        run_operator(BayerDemosaicOp, inputs=[random(np.uint8, 4, 6)] * 3, pool=pool, name="eye")


@pytest.mark.parametrize(
    ("kind", "parameter"),
    [
        (BayerDemosaicOp, "pool"),
        (FormatConverterOp, "pool"),
        (SegmentationPostprocessorOp, "allocator"),
        (InferenceProcessorOp, "allocator"),
        (PingTensorTxOp, "allocator"),
        (CameraSimOp, "allocator"),
        (V4L2VideoCaptureOp, "allocator"),
        (HolovizOp, "allocator"),
    ],
)
def test_an_allocator_that_is_left_out_is_unbounded_and_lives_with_the_run(kind: Any, parameter: str) -> None:
    def compose(app: Any) -> None:
        for given in ({}, {parameter: None}):
            operator = kind(app, name=f"it_{len(given)}", **given)
            allocator = getattr(operator, parameter)
            assert type(allocator) is UnboundedAllocator
            assert allocator.name == f"it_{len(given)}_allocator"
        wrong = kind(app, name="wrong", **{parameter: 3})
        with pytest.raises(ParameterError, match=f"operator 'wrong': {parameter} must be an allocator"):
            wrong.initialize()

    App(compose).compose()


def test_the_default_allocator_gives_its_memory_back_when_the_run_has_ended(machine: sim.Machine) -> None:
    sizes: list[int] = []

    class Watched(BayerDemosaicOp):
        def stop(self) -> None:
            sizes.append(self.pool._store(MemoryStorageType.DEVICE).size)

    def compose(app: Any) -> None:
        app.demosaic = Watched(app, name="demosaic")
        app.add_flow(DeviceSource(app, [random(np.uint8, 4, 6)] * 4), app.demosaic, Sink(app, name="sink"))

    app: Any = run(compose)
    assert sizes[0] >= 512
    assert app.demosaic.pool._store(MemoryStorageType.DEVICE).size == 0


def test_nothing_runs_for_an_empty_result() -> None:
    ran: list[int] = []
    from headrace.operators.arrays import Routine

    Workplace("x", None, None).run(Routine("classify", lambda: ran.append(1)), 0)
    assert ran == []
