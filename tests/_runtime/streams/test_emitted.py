"""What is emitted as tensors is ordered whoever made it, on whatever stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock import CountCondition, as_tensor, gpu
from penstock.gpu import sim
from tests.harness import MS, MakeScheduler, Step, launch, run

FRAMES = 5


class ByInterface:
    """An array whose library says on which stream it makes it, as Numba's do."""

    def __init__(self, memory: np.ndarray, stream: Any) -> None:
        self.__cuda_array_interface__ = {
            "shape": memory.shape,
            "typestr": memory.dtype.str,
            "data": (memory.ctypes.data, False),
            "strides": None,
            "version": 3,
            "stream": int(stream),
        }
        self.memory = memory


class ByHandshake:
    """An array whose library has streams of its own and orders whichever it is told, as JAX does."""

    def __init__(self, memory: np.ndarray, stream: Any) -> None:
        self.memory, self.stream = memory, stream
        self.told: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> Any:
        self.told.append(stream)
        gpu.Stream.from_handle(stream).wait(self.stream.stream)
        return self.memory.__dlpack__(max_version=max_version)


def as_a_tensor(memory: np.ndarray, stream: Any) -> Any:
    return as_tensor(ByInterface(memory, stream))


@pytest.mark.parametrize("array", [ByInterface, ByHandshake, as_a_tensor])
def test_what_another_library_makes_on_its_own_stream_arrives_right(
    scheduler: MakeScheduler, array: Any
) -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
            library = context.allocate_cuda_stream("the library's")
            memory = np.zeros(1, np.int64)
            launch(library, 2 * MS, lambda: memory.fill(7))
            op_output.emit({"frame": array(memory, library)}, "out")

        def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")["frame"]
            memory = frame.owner.memory
            launch(op_input.receive_cuda_stream("in"), MS / 10, lambda: app.seen.append(int(memory[0])))

        app.add_flow(
            Step(app, CountCondition(app, FRAMES), outputs=("out",), body=make, name="make"),
            Step(app, inputs=("in",), body=read, name="read"),
        )

    assert run(compose, scheduler).seen == [7] * FRAMES


def test_an_array_made_on_the_senders_stream_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    wait = sim.Stream.wait
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: waits.append(other) or wait(self, other))

    def compose(app: Any) -> None:
        def make(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("own")
            op_output.set_cuda_stream(stream, "out")
            launch(stream, MS, lambda: None)
            op_output.emit({"frame": ByInterface(np.zeros(1), stream)}, "out")

        def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            op_input.receive_cuda_stream("in")

        app.add_flow(
            Step(app, CountCondition(app, 1), outputs=("out",), body=make, name="make"),
            Step(app, inputs=("in",), body=read, name="read"),
        )

    run(compose)
    assert len(waits) == 1
