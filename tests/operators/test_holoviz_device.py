"""HolovizOp and tensors on a device: order, lifetimes, and no waiting on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition
from headrace.gpu import sim
from headrace.operators import HolovizOp
from headrace.tensor.copies import HostMemory
from headrace.viewer import Renderer
from tests.harness import MakeScheduler, run
from tests.operators.allocators import CountingAllocator
from tests.operators.device_arrays import DeviceReader, DeviceSource

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


def test_a_picture_of_tensors_on_the_device_is_emitted_there_in_order(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    given, allocator = frames(6), CountingAllocator()

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
    assert allocator.requests[0] == ((10, 20, 4), "uint8", 1, "holoviz_op")


def test_what_is_shown_of_the_device_is_complete(
    machine: sim.Machine, scheduler: MakeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("HEADRACE_VIEW", str(tmp_path / "it.png"))
    given = frames(1)

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, 1), values=given, name="source")
        app.viewer = HolovizOp(app, tensors=TENSORS, width=20, height=10)
        app.add_flow(source, app.viewer, {("out", "receivers")})

    app = run(compose, scheduler)
    with images.open(tmp_path / "it.png") as image:
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
    monkeypatch.setenv("HEADRACE_VIEW", "page")
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
            allocator=CountingAllocator(),
            name="it",
        )
        app.add_flow(source, viewer, {("out", "receivers")})

    run(compose)
    assert times == [0, 0, 0]


def test_at_most_two_frames_are_on_their_way_to_the_host(
    machine: sim.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_VIEW", str(tmp_path / "it.png"))
    given, under_way = frames(12), []

    class Watched(HolovizOp):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            under_way.append(len(self._in_flight))

    def compose(app: Any) -> None:
        source = DeviceSource(app, CountCondition(app, len(given)), values=given, name="source")
        app.viewer = Watched(app, tensors=TENSORS, width=20, height=10)
        app.add_flow(source, app.viewer, {("out", "receivers")})

    viewer = run(compose).viewer
    assert max(under_way) <= 2
    assert viewer.frames_received == 12
