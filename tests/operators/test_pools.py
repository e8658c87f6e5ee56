"""Operators allocate what they emit from their pool, and say so where it is exhausted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.gpu import sim
from penstock.operators import BayerDemosaicOp, FormatConverterOp
from penstock.operators.arrays import Workplace, allocate_as
from penstock.tensor import Tensor
from penstock.testing import run_operator
from tests.operators.cases import Case, random
from tests.operators.on_device import run_on_device


class Pool:
    """An allocator that notes what it was asked for, and has only so many blocks."""

    def __init__(self, blocks: int = 1000) -> None:
        self.blocks = blocks
        self.asked: list[tuple[Any, ...]] = []

    def allocate_tensor(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        storage_type: int = 1,
        *,
        stream: Any = None,
        operator: str = "",
    ) -> Tensor:
        if self.blocks == 0:
            raise MemoryError(f"operator {operator!r}: no block left")
        self.blocks -= 1
        self.asked.append((shape, np.dtype(dtype).name, int(storage_type), stream is not None, operator))
        return allocate_as(None, shape, np.dtype(dtype), storage_type, stream, operator)


class SystemPool(Pool):
    storage_type = 2
    name = "frames"


class DevicePool(Pool):
    storage_type = 1


class PinnedPool(Pool):
    storage_type = 0


class StreamPool(Pool):
    served = (1,)


FRAME = random(np.uint8, 8, 6, 3)
RESIZED = {"out_dtype": "float32", "resize_height": 4, "resize_width": 5}


def test_the_blocks_are_those_that_the_docstring_names() -> None:
    pool = Pool()
    run_operator(FormatConverterOp, inputs=[FRAME], pool=pool, name="format", **RESIZED)
    assert pool.asked == [
        ((4, 5, 3), "uint8", 2, False, "format"),
        ((4, 5, 3), "float32", 2, False, "format"),
    ]


def test_on_a_device_the_blocks_are_of_its_memory_and_for_the_operators_stream(machine: sim.Machine) -> None:
    pool = Pool()
    case = Case(BayerDemosaicOp, random(np.uint8, 4, 6), {"pool": pool})
    run_on_device(case)
    assert pool.asked == [((4, 6, 3), "uint8", 1, True, "operator")]


@pytest.mark.parametrize("kind", [DevicePool, StreamPool])
def test_a_pool_of_device_memory_is_left_alone_on_the_host(kind: Any) -> None:
    pool = kind()
    outcome = run_operator(FormatConverterOp, inputs=[FRAME], pool=pool, **RESIZED)
    assert str(outcome["tensor"][0].get().device) == "cpu"
    assert pool.asked == []


def test_a_pool_of_pinned_memory_is_used_on_the_host(machine: sim.Machine) -> None:
    pool = PinnedPool()
    outcome = run_operator(BayerDemosaicOp, inputs=[random(np.uint8, 4, 6)], pool=pool)
    assert [asked[2] for asked in pool.asked] == [0]
    np.testing.assert_array_equal(
        np.asarray(outcome["transmitter"][0].get()),
        Case(BayerDemosaicOp, random(np.uint8, 4, 6)).on_host(),
    )


def test_a_pool_of_system_memory_is_refused_on_a_device(machine: sim.Machine) -> None:
    case = Case(BayerDemosaicOp, random(np.uint8, 4, 6), {"pool": SystemPool()})
    with pytest.raises(
        ValueError, match="'operator' works on a device, and its pool 'frames' has only system"
    ):
        run_on_device(case)


def test_an_exhausted_pool_names_the_operator() -> None:
    with pytest.raises(MemoryError, match="operator 'eye': no block left"):
        run_operator(BayerDemosaicOp, inputs=[random(np.uint8, 4, 6)] * 3, pool=Pool(2), name="eye")


def test_a_message_without_a_device_can_only_be_system_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gpu.backend", lambda: "none")
    with pytest.raises(ValueError, match="there is no device, so it can send only system memory"):
        allocate_as(None, (2,), np.dtype(np.uint8), 1, None, "tx")


def test_nothing_runs_for_an_empty_result() -> None:
    ran: list[int] = []
    from penstock.operators.arrays import Routine

    Workplace("x", None, None).run(Routine("f", "", lambda: ran.append(1)), 0)
    assert ran == []
