"""Expressions with tensors on a device come after the work behind them; the result is an array of a library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import Application, CountCondition, Operator, TensorMap, as_tensor, op
from headrace.gpu import StreamHandle
from headrace.resources import UnboundedAllocator
from headrace.tensor import Tensor
from tests.gpu.bench import Bench
from tests.gpu.kernels import slow_write
from tests.harness.libraries import fresh_registry

COUNT = 8
LATE = 5_000_000  # nanoseconds


@pytest.fixture(autouse=True)
def no_library_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrays that an expression brings into use are those of one test."""
    fresh_registry(monkeypatch)


def written(bench: Bench, value: int, stream: StreamHandle) -> Tensor:
    """Return a tensor that a kernel fills after a while."""
    tensor: Tensor = UnboundedAllocator().allocate_tensor((COUNT,), np.int32, "device", stream=stream)
    place = tensor if bench.is_simulated else tensor.data
    bench.launch(stream.stream, slow_write, place, np.int32(COUNT), np.int32(value), np.int64(LATE))
    return tensor


def host(array: Any) -> np.ndarray:
    """Return an array of any library in memory of the host."""
    if hasattr(array, "get"):
        return np.asarray(array.get())
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def test_an_expression_comes_after_the_work_on_the_tensor(of_this_process: Bench) -> None:
    stream = StreamHandle(of_this_process.device.create_stream())
    tensor = as_tensor(written(of_this_process, 7, stream), stream=stream)
    assert len(tensor) == COUNT
    assert host(2 * tensor + 1).tolist() == [15] * COUNT
    assert host(tensor[2:5]).tolist() == [7] * 3
    assert host(tensor == 7).all()
    assert int(tensor[0]) == 7
    assert [int(element) for element in tensor] == [7] * COUNT


def test_an_operation_in_place_changes_the_memory_and_keeps_the_tensor(of_this_process: Bench) -> None:
    stream = StreamHandle(of_this_process.device.create_stream())
    same = tensor = as_tensor(written(of_this_process, 7, stream), stream=stream)
    tensor -= 2
    tensor[0] = 50
    tensor[1:3] = tensor[3:5] * 10
    assert tensor is same
    assert host(tensor + 0).tolist() == [50, 50, 50, 5, 5, 5, 5, 5]


@pytest.mark.parametrize("kind", [dict, TensorMap])
@pytest.mark.parametrize("receivers", [1, 2])
def test_plain_code_computes_with_what_it_receives(of_this_process: Bench, kind: Any, receivers: int) -> None:
    seen: list[list[int]] = []

    class Source(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.number += 1
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            op_output.emit(kind(frame=written(of_this_process, self.number, stream)), "out")

    @op
    def double(message: Any) -> Any:
        assert type(message) is kind
        return {"frame": message["frame"] * 2, "kept": message["frame"]}

    @op(outputs=())
    def show(message: Any) -> None:
        assert type(message) is dict
        assert type(message["kept"]) is Tensor
        seen.append([int(host(message["frame"])[0]), int(message["kept"][-1])])

    class App(Application):
        def compose(self) -> None:
            source = Source(self, CountCondition(self, 3))
            for number in range(receivers):
                source >> double(self, name=f"double{number}") >> show(self, name=f"show{number}")

    App().run()
    assert sorted(seen) == sorted(receivers * [[2 * n, n] for n in (1, 2, 3)])
