"""HolovizOp and CuPy arrays on a GPU: the picture of the host, in order, without waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition
from headrace.operators import HolovizOp
from headrace.tensor.copies import HostMemory, copy_from_pinned
from headrace.viewer import Renderer
from tests.gpu.bench import Bench
from tests.harness import App, Step

TENSORS: list[Any] = [
    {"name": "image", "type": "color"},
    {"name": "box", "type": "rectangles", "color": [1, 0, 0, 1], "priority": 1},
]
BOX = np.array([[0.1, 0.2], [0.6, 0.8]], np.float32)


def source(app: Any, cupy: Any, images: list[np.ndarray]) -> Step:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        with stream.cupy():
            image = cupy.asarray(images[self.ticks - 1])
            for _ in range(50):  # work that is not done when compute returns
                image = image + cupy.uint8(0)
            op_output.emit({"image": image, "box": cupy.asarray(BOX)}, "out")

    return Step(app, CountCondition(app, len(images)), outputs=["out"], body=body, name="source")


def images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.integers(0, 256, (180, 320, 3), dtype=np.uint8) for _ in range(count)]


def test_what_is_shown_is_what_the_host_would_draw(
    real: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy, pillow = pytest.importorskip("cupy"), pytest.importorskip("PIL.Image")
    pytest.importorskip("cv2")
    monkeypatch.setenv("HEADRACE_VIEW", str(tmp_path / "it.png"))
    given = images(1)

    def compose(app: Any) -> None:
        app.viewer = HolovizOp(app, tensors=TENSORS, width=320, height=180)
        app.add_flow(source(app, cupy, given), app.viewer, {("out", "receivers")})

    App(compose, clock=None).run()
    with pillow.open(tmp_path / "it.png") as image:
        shown = np.asarray(image)
    expected = Renderer(320, 180, TENSORS).render({"image": given[0], "box": BOX})
    assert (shown == expected[..., :3]).all()


def test_pictures_are_emitted_on_the_device_in_order(real: Bench) -> None:
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("cv2")
    given, seen = images(8), []

    class Allocator:
        def allocate_tensor(
            self, shape: Any, dtype: Any, storage: int, *, stream: Any = None, operator: str = ""
        ) -> Any:
            from headrace import as_tensor

            with stream.cupy():
                return as_tensor(cupy.empty(shape, dtype))

    def keep(self: Any, op_input: Any, op_output: Any) -> None:
        tensor = op_input.receive("in")["render_buffer_output"]
        stream = op_input.receive_cuda_stream("in")
        with stream.cupy():
            seen.append(cupy.from_dlpack(tensor).copy())

    def compose(app: Any) -> None:
        viewer = HolovizOp(
            app,
            tensors=TENSORS,
            width=320,
            height=180,
            headless=True,
            enable_render_buffer_output=True,
            allocator=Allocator(),
        )
        app.add_flow(source(app, cupy, given), viewer, {("out", "receivers")})
        app.add_flow(
            viewer, Step(app, inputs=["in"], body=keep, name="keep"), {("render_buffer_output", "in")}
        )

    App(compose, clock=None).run()
    renderer = Renderer(320, 180, TENSORS)
    assert len(seen) == len(given)
    for picture, image in zip(seen, given, strict=True):
        assert (picture.get() == renderer.render({"image": image, "box": BOX})).all()


def test_a_tensor_with_gaps_is_copied_there_and_a_picture_back(real: Bench) -> None:
    from headrace import as_tensor
    from headrace.gpu import StreamHandle

    cupy = pytest.importorskip("cupy")
    stream, memory = StreamHandle(real.device.create_stream()), HostMemory()
    values = np.arange(6 * 8 * 3, dtype=np.uint16).reshape(6, 8, 3)
    with stream.cupy():
        array = cupy.asarray(values)
        copies = [
            memory.copy(as_tensor(part), stream) for part in (array[::2], array[:, ::-1], array[..., 1])
        ]
        target = as_tensor(cupy.empty((6, 8, 3), np.uint16))
    pinned = memory.array((6, 8, 3), np.dtype("u2"))
    pinned[...] = values + 1
    copy_from_pinned(target, pinned, stream)
    back = memory.copy(target, stream)
    stream.stream.sync()
    for copy, part in zip(copies, (values[::2], values[:, ::-1], values[..., 1]), strict=True):
        assert (copy == part).all()
    assert (back == values + 1).all()
