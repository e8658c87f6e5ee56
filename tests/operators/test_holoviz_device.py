"""HolovizOp and tensors on a device: order, lifetimes, and no waiting on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import CountCondition, as_tensor
from penstock.gpu import StreamHandle, sim
from penstock.operators import HolovizOp
from penstock.viewer import Renderer
from penstock.viewer.transfers import HostMemory, copy_to_device
from tests.harness import MS, MakeScheduler, launch, run
from tests.operators.device_arrays import (
    DeviceAllocator,
    DeviceArray,
    DeviceReader,
    DeviceSource,
    device_array,
)

RNG = np.random.default_rng(8)
TENSORS: list[Any] = [
    {"name": "image", "type": "color"},
    {"name": "box", "type": "rectangles", "color": [1, 0, 0, 1], "priority": 1},
]


def frames(count: int) -> list[dict[str, np.ndarray]]:
    box = np.array([[0.1, 0.2], [0.6, 0.8]], np.float32)
    return [
        {"image": RNG.integers(0, 256, (10, 20, 3), dtype=np.uint8), "box": box + 0.02 * number}
        for number in range(count)
    ]


def stream_of(machine: sim.Machine) -> StreamHandle:
    return StreamHandle(sim.Device(0).create_stream())


def test_a_picture_of_tensors_on_the_device_is_emitted_there_in_order(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    given, allocator = frames(6), DeviceAllocator()

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, len(given)), values=given, name="source")
        viewer = HolovizOp(
            app,
            tensors=TENSORS,
            width=20,
            height=10,
            headless=True,
            enable_render_buffer_output=True,
            allocator=allocator,
        )
        app.reader = DeviceReader(app, name="reader")
        app.add_flow(source, viewer, {("out", "receivers")})
        app.add_flow(viewer, app.reader, {("render_buffer_output", "in")})

    seen = run(compose, scheduler).reader.seen
    renderer = Renderer(20, 10, TENSORS)
    assert len(seen) == len(given)
    for picture, tensors in zip(seen, given, strict=True):
        assert (picture == renderer.render(tensors)).all()
    assert allocator.asked[0] == ((10, 20, 4), np.dtype("u1"), 1, "holoviz_op")


def test_what_is_shown_of_the_device_is_complete(
    machine: sim.Machine, scheduler: MakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    monkeypatch.setenv("PENSTOCK_VIEW", str(tmp_path / "it.png"))
    given = frames(1)

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, 1), values=given, name="source")
        app.viewer = HolovizOp(app, tensors=TENSORS, width=20, height=10)
        app.add_flow(source, app.viewer, {("out", "receivers")})

    app = run(compose, scheduler)
    with Image.open(tmp_path / "it.png") as image:
        assert (np.asarray(image) == Renderer(20, 10, TENSORS).render(given[0])[..., :3]).all()
    assert (app.viewer.frames_received, app.viewer.frames_shown) == (1, 1)


def test_frames_that_nobody_looks_at_are_not_copied(
    machine: sim.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("aiohttp")
    copies: list[int] = []
    copy = HostMemory.copy

    def counted(self: Any, *arguments: Any) -> Any:
        copies.append(1)
        return copy(self, *arguments)

    monkeypatch.setattr(HostMemory, "copy", counted)
    monkeypatch.setenv("PENSTOCK_VIEW", "page")
    given = frames(50)

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, len(given)), values=given, name="source")
        app.viewer = HolovizOp(app, tensors=TENSORS, width=20, height=10)
        app.add_flow(source, app.viewer, {("out", "receivers")})

    app = run(compose)
    assert app.viewer.frames_received == 50
    assert app.viewer.frames_received == app.viewer.frames_shown + app.viewer.frames_dropped
    assert len(copies) < 30  # of 100 tensors; a few, in case somebody looks


def test_the_host_never_waits_in_compute(machine: sim.Machine) -> None:
    """The clock of the device stands still while the host computes: it moves only when somebody waits for it."""
    given, times = frames(3), []

    class Watched(HolovizOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            before = machine.now
            super().compute(op_input, op_output, context)
            times.append(machine.now - before)

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, 3), values=given, name="source")
        viewer = Watched(
            app,
            tensors=TENSORS,
            width=20,
            height=10,
            headless=True,
            enable_render_buffer_output=True,
            allocator=DeviceAllocator(),
            name="it",
        )
        app.add_flow(source, viewer, {("out", "receivers")})

    run(compose)
    assert times == [0, 0, 0]


# Transfers.


def test_a_copy_holds_what_was_written_before_it_in_the_order_of_the_stream(machine: sim.Machine) -> None:
    stream, memory = stream_of(machine), HostMemory()
    values = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    array = device_array(stream, values)
    copy = memory.copy(as_tensor(array), stream)
    launch(stream, MS, lambda out: out.fill(0), array.buffer)  # later work does not change it
    stream.stream.sync()
    assert (copy == values).all()


@pytest.mark.parametrize(
    "view", ["[::2]", "[:, ::3]", "[::-1]", "[:, :, 1]", "[1:5, 2:3, ::-1]", "[..., None]"]
)
def test_a_copy_of_a_tensor_with_gaps_has_its_values(machine: sim.Machine, view: str) -> None:
    stream = stream_of(machine)
    values = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint16)
    array = device_array(stream, values)
    part = eval(f"values{view}")
    offset = part.__array_interface__["data"][0] - values.__array_interface__["data"][0]
    gaps = DeviceArray(array.buffer, part.shape, part.dtype, part.strides, offset)
    copy = HostMemory().copy(as_tensor(gaps), stream)
    stream.stream.sync()
    assert (copy == part).all()


def test_an_empty_tensor_is_copied(machine: sim.Machine) -> None:
    stream = stream_of(machine)
    array = device_array(stream, np.zeros((4, 2), np.float32))
    empty = DeviceArray(array.buffer, (0, 2), np.dtype("f4"))
    assert HostMemory().copy(as_tensor(empty), stream).shape == (0, 2)


def test_memory_is_used_again_once_nobody_refers_to_it(machine: sim.Machine) -> None:
    memory = HostMemory()
    one, two = memory.array((10,), np.dtype("u1")), memory.array((10,), np.dtype("u1"))
    first, second = one.ctypes.data, two.ctypes.data
    assert first != second
    view = one[2:]
    del one
    third = memory.array((10,), np.dtype("u1"))
    assert third.ctypes.data not in (first, second)
    del view
    assert memory.array((8,), np.dtype("u1")).ctypes.data == first


def test_a_buffer_on_the_device_is_filled_in_order(machine: sim.Machine) -> None:
    stream, memory = stream_of(machine), HostMemory()
    target = as_tensor(device_array(stream, np.zeros((4, 4), np.uint8)))
    source = memory.array((4, 4), np.dtype("u1"))
    source[...] = RNG.integers(0, 256, (4, 4), dtype=np.uint8)
    expected = source.copy()
    copy_to_device(target, source, stream)
    back = memory.copy(target, stream)
    stream.stream.sync()
    assert (back == expected).all()
    gaps = as_tensor(DeviceArray(target.owner.buffer, (4, 2), np.dtype("u1"), (4, 2)))
    with pytest.raises(ValueError, match="must be contiguous"):
        copy_to_device(gaps, source, stream)
