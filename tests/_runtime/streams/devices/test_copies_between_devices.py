"""Frames that are received on another device than they were made on are copied there, in order."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, Tensor, as_tensor
from headrace.gpu import sim
from headrace.resources import CudaStreamPool, StreamOrderedAllocator
from headrace.tensor.copies import simulated_memory
from tests.harness import MS, MakeScheduler, Step, launch, run

FRAMES = 20


def source(app: Any, device_id: int, wrap: Any = lambda tensor: tensor, frames: int = FRAMES) -> Step:
    """Return an operator that makes tensors on a device, slowly, filled with 0, 1, 2 and so on."""
    allocator = StreamOrderedAllocator(app, dev_id=device_id, name=f"memory{device_id}")

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        tensor = allocator.allocate_tensor((3, 4), np.int32, stream=stream)
        memory, number = simulated_memory(tensor), self.ticks - 1
        launch(stream, 2 * MS, lambda: memory.fill(number))
        op_output.emit(wrap(tensor), "out")

    pool = CudaStreamPool(app, device_id, 1, name=f"pool{device_id}")
    return Step(app, CountCondition(app, frames), pool, allocator, outputs=("out",), body=body, name="source")


def sink(
    app: Any, device_id: int, seen: list[Any], unwrap: Any = lambda data: data, name: str = "sink"
) -> Step:
    """Return an operator that reads tensors on a device, a while after they came, and lets go of them at once."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        tensor = unwrap(op_input.receive("in"))
        stream = op_input.receive_cuda_stream("in")
        memory, on = simulated_memory(tensor), tensor.device.device_id
        launch(stream, 3 * MS, lambda: seen.append((on, int(memory.min()), int(memory.max()))))

    return Step(
        app, CudaStreamPool(app, device_id, 1, name=f"{name}_pool"), inputs=("in",), body=body, name=name
    )


@pytest.mark.parametrize("peer_access", [True, False])
def test_a_frame_of_another_device_is_copied_in_order(
    scheduler: MakeScheduler, peer_access: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []
    with sim.Machine("h200", devices=2, peer_access=peer_access):
        run(lambda app: app.add_flow(source(app, 0), sink(app, 1, seen)), scheduler)
    assert seen == [(1, number, number) for number in range(FRAMES)]
    said = [record.getMessage() for record in caplog.records if "through the host" in record.getMessage()]
    assert len(said) == (0 if peer_access else 1)


@pytest.mark.parametrize(
    ("wrap", "unwrap"),
    [
        (lambda tensor: {"a": [tensor, 1]}, lambda data: data["a"][0]),
        (lambda tensor: (None, tensor), lambda data: data[1]),
        (lambda tensor: OrderedDict(a=deque([tensor])), lambda data: data["a"][0]),
    ],
)
def test_frames_are_found_in_containers(wrap: Any, unwrap: Any) -> None:
    seen: list[Any] = []
    run(lambda app: app.add_flow(source(app, 1, wrap), sink(app, 0, seen, unwrap)))
    assert seen == [(0, number, number) for number in range(FRAMES)]


def test_each_receiver_gets_the_frame_on_its_device() -> None:
    seen: dict[int, list[Any]] = {0: [], 1: []}

    def compose(app: Any) -> None:
        made = source(app, 0)
        for device_id in (0, 1):
            app.add_flow(made, sink(app, device_id, seen[device_id], name=f"sink{device_id}"))

    run(compose)
    assert seen == {n: [(n, number, number) for number in range(FRAMES)] for n in (0, 1)}


def test_the_original_goes_when_its_copy_has_gone() -> None:
    originals: list[Any] = []

    def remember(tensor: Tensor) -> Tensor:
        originals.append(weakref.ref(tensor.owner))
        return tensor

    run(lambda app: app.add_flow(source(app, 0, remember, 3), sink(app, 1, [])))
    gc.collect()
    assert [original() for original in originals] == [None] * 3


def test_a_view_with_gaps_keeps_its_layout() -> None:
    seen: list[Any] = []

    def compose(app: Any) -> None:
        def look(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            tensor = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            memory = simulated_memory(tensor)
            launch(stream, MS, lambda: seen.append((tensor.strides, memory.tolist())))

        def columns(tensor: Tensor) -> Tensor:
            view = tensor._description
            return Tensor._at((view[0] + 8, (3, 2), (16, -4), *view[3:]), tensor.owner)

        step = Step(app, CudaStreamPool(app, 1), inputs=("in",), body=look, name="look")
        app.add_flow(source(app, 0, columns, 1), step)

    run(compose)
    assert seen == [((16, -4), [[0, 0]] * 3)]


def test_arrays_of_the_host_and_plain_objects_pass_as_they_are() -> None:
    sent = {"host": as_tensor(np.arange(3)), "number": 1}
    found: list[Any] = []

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(sent, "out")

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(op_input.receive("in"))

        sender = Step(app, CountCondition(app, 1), outputs=("out",), body=send, name="send")
        app.add_flow(sender, Step(app, CudaStreamPool(app, 1), inputs=("in",), body=take, name="take"))

    run(compose)
    assert found[0]["host"].owner is sent["host"].owner
