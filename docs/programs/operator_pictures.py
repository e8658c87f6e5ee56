"""Make the pictures in docs/pictures, one for each operator, from the operators themselves.

    PYTHONPATH=src:. python docs/programs/operator_pictures.py [name ...]

Each shows what goes into an operator beside what comes out. A test makes them again.
"""

from __future__ import annotations

import io
import logging
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from headrace import (
    Application,
    CountCondition,
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    VideoReaderOp,
    run_operator,
)
from headrace.operators import (
    BayerDemosaicOp,
    CameraSimOp,
    PingRxOp,
    PingTxOp,
    ProbeOp,
    SegmentationPostprocessorOp,
    V4L2VideoCaptureOp,
    VideoWriterOp,
)
from headrace.testing import Message
from headrace.video import VideoReader
from headrace_holoscan.ready import (
    InferenceProcessorOp,
    PingTensorRxOp,
    PingTensorTxOp,
    VideoStreamRecorderOp,
    VideoStreamReplayerOp,
)

FOLDER = Path(__file__).parents[1] / "pictures"
SIZE = 180
GAP, TITLE = 14, 20
LARGEST = 60_000  # bytes of a file
PALETTE = np.array([[200, 80, 80], [80, 170, 100], [70, 90, 150], [230, 190, 70], [150, 90, 170]], np.uint8)

Panels = dict[str, Any]


def scene(rows: int = SIZE, columns: int = SIZE) -> np.ndarray:
    """Return a colour picture: discs before a gradient, and fine stripes."""
    y, x = np.mgrid[:rows, :columns]
    y, x = y / rows, x / columns
    picture = np.stack([60 + 80 * x, 40 + 60 * y, 120 - 60 * x], axis=-1)
    for row, column, radius, colour in (
        (0.35, 0.35, 0.22, (220, 60, 50)),
        (0.62, 0.6, 0.26, (60, 190, 90)),
        (0.3, 0.75, 0.12, (240, 210, 80)),
    ):
        distance = np.hypot(y - row, (x - column) * columns / rows)
        inside = distance < radius
        shade = (1 - 0.6 * distance / radius)[..., None] * np.array(colour)
        picture[inside] = shade[inside]
    stripes = (np.sin(np.hypot(y - 1, x) * 110) > 0) & (y > 0.72) & (x < 0.34)
    picture[stripes] = 255
    return picture.round().astype(np.uint8)


def only(kind: Any, frame: Any, **params: Any) -> np.ndarray:
    """Return what an operator makes of a frame."""
    ((message,),) = run_operator(kind, inputs=[frame], **params).values()
    return np.asarray(message.get())


def enlarged(picture: np.ndarray, times: int) -> np.ndarray:
    return picture.repeat(times, axis=0).repeat(times, axis=1)


def mosaic_of(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an RGGB mosaic of a picture, and the same with each sample in its colour."""
    mosaic = np.zeros(picture.shape[:2], np.uint8)
    samples = np.zeros_like(picture)
    for row, column, channel in ((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2)):
        place = (slice(row, None, 2), slice(column, None, 2))
        mosaic[place] = picture[(*place, channel)]
        samples[(*place, channel)] = mosaic[place]
    return mosaic, samples


def grey(values: np.ndarray) -> np.ndarray:
    """Return numbers as a grey picture, from their least to their largest."""
    low, high = float(values.min()), float(values.max())
    return np.repeat(((values - low) / (high - low or 1) * 255).astype(np.uint8)[..., None], 3, axis=2)


# Images.


def bayer_demosaic() -> Panels:
    mosaic, samples = mosaic_of(scene())
    part = (slice(44, 44 + 30), slice(60, 60 + 30))
    colour = only(BayerDemosaicOp, mosaic, bayer_grid_pos=1)
    return {
        "Bayer mosaic": samples,
        "a part of it": enlarged(samples[part], 6),
        "BayerDemosaicOp: the part": enlarged(colour[part], 6),
        "the whole": colour,
    }


def format_converter() -> Panels:
    picture = scene()
    found: Panels = {"RGB, 180 by 180": picture}
    for mode, name in ((1, "nearest"), (2, "linear"), (8, "area")):
        params = {"resize_height": 45, "resize_width": 45, "resize_mode": mode}
        found[f"to 45 by 45, {name}"] = enlarged(
            only(FormatConverterOp, picture, out_dtype="rgb888", **params), 4
        )
    found["out_channel_order=[2, 1, 0]"] = only(
        FormatConverterOp, picture, out_dtype="rgb888", out_channel_order=[2, 1, 0]
    )
    planes = only(FormatConverterOp, picture, out_dtype="yuv420")
    found["to yuv420: its planes"] = np.repeat(planes.reshape(-1, SIZE)[..., None], 3, axis=2)
    return found


def segmentation_postprocessor() -> Panels:
    scores = only(FormatConverterOp, scene(), out_dtype="float32")
    classes = only(SegmentationPostprocessorOp, scores)[..., 0]
    return {
        **{f"scores of class {number}": grey(scores[..., number]) for number in range(3)},
        "SegmentationPostprocessorOp": PALETTE[classes],
    }


def inference_processor() -> Panels:
    y, x = np.mgrid[:SIZE, :SIZE] / SIZE
    maps = np.stack(
        [np.exp(-((y - row) ** 2 + (x - column) ** 2) * 40) for row, column in ((0.3, 0.6), (0.7, 0.25))],
        axis=-1,
    )
    maps = maps.astype(np.float32)[None]
    dark = (scene()[..., 1].astype(np.float32) / 255) ** 3
    outcome = run_operator(
        InferenceProcessorOp,
        inputs={"receivers": [[{"maps": maps, "dark": dark[None]}]]},
        process_operations={"maps": ["max_per_channel_scaled"], "dark": ["scale_intensity_cpu"]},
        processed_map={"maps": ["points"], "dark": ["bright"]},
    )
    (message,) = outcome["transmitter"]
    points = np.asarray(message["points"]).reshape(-1, 2)
    heat = np.concatenate([maps[0], np.zeros_like(maps[0, ..., :1])], axis=-1)
    marked = drawn(
        {"heat": (heat * 255).astype(np.uint8), "points": points[:, ::-1]},
        [
            {"name": "heat", "type": "color"},
            {"name": "points", "type": "crosses", "line_width": 2, "color": [1, 1, 1, 1], "priority": 1},
        ],
    )
    return {
        "two heat maps": (heat * 255).astype(np.uint8),
        "max_per_channel_scaled": marked,
        "a dark picture": (dark * 255).astype(np.uint8)[..., None].repeat(3, axis=2),
        "scale_intensity_cpu": np.asarray(message["bright"]),
    }


# Pings.


def printed(compose: Callable[[Any], None]) -> str:
    """Run an application and return what it prints and logs."""

    class App(Application):
        def compose(self) -> None:
            compose(self)

    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger = logging.getLogger("headrace_holoscan.ready")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with redirect_stdout(text):
            App().run()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return text.getvalue().strip()


def ping() -> Panels:
    def compose(app: Any) -> None:
        app.add_flow(PingTxOp(app, CountCondition(app, 3)), PingRxOp(app))

    return {"PingTxOp to PingRxOp prints": printed(compose)}


def ping_tensor() -> Panels:
    def compose(app: Any) -> None:
        source = PingTensorTxOp(app, CountCondition(app, 2), rows=3, columns=4, channels=2, dtype="float")
        app.add_flow(source, PingTensorRxOp(app))

    return {"PingTensorTxOp and PingTensorRxOp log": printed(compose)}


def probe() -> Panels:
    def compose(app: Any) -> None:
        camera = CameraSimOp(app, width=1920, height=1080, count=1, out_tensor_name="raw")
        demosaic = BayerDemosaicOp(app, in_tensor_name="raw", out_tensor_name="colour", name="demosaic")
        app.add_flow(camera, before := ProbeOp(app, name="before"))
        app.add_flow(before, demosaic)
        app.add_flow(demosaic, ProbeOp(app, name="after"))

    text = printed(compose).replace(", strides", ",\n    strides")
    return {"ProbeOp before and after BayerDemosaicOp prints": text}


# Video.


def camera_sim() -> Panels:
    outcome = run_operator(
        CameraSimOp, width=SIZE, height=SIZE, count=4, frame_rate=2, bayer_grid_pos=1, seed=3, noise=0.0
    )
    frames = [np.asarray(message.get()) for message in outcome["output"]]
    truth = outcome.operator.truth(3)
    _, samples = mosaic_of(np.repeat(frames[3][..., None], 3, axis=2))
    return {
        "CameraSimOp: frame 3": samples,
        "demosaicked": only(BayerDemosaicOp, frames[3], bayer_grid_pos=1),
        "its truth: labels": np.concatenate([[[40, 40, 40]], PALETTE]).astype(np.uint8)[truth.labels],
        "frame 0, demosaicked": only(BayerDemosaicOp, frames[0], bayer_grid_pos=1),
    }


def clip(folder: str, count: int) -> list[np.ndarray]:
    """Record some frames of a moving scene, 0.4 s apart, and return them."""
    outcome = run_operator(
        CameraSimOp, width=SIZE, height=120, count=count, frame_rate=2.5, bayer_grid_pos=1, seed=3, noise=0.0
    )
    frames = [only(BayerDemosaicOp, np.asarray(one.get()), bayer_grid_pos=1) for one in outcome["output"]]
    run_operator(VideoStreamRecorderOp, inputs=frames, directory=folder, basename="clip")
    return frames


def video_stream_replayer() -> Panels:
    with tempfile.TemporaryDirectory() as folder:
        clip(folder, 4)
        outcome = run_operator(VideoStreamReplayerOp, directory=folder, basename="clip", frame_rate=2.5)
    return {
        f"{'VideoStreamReplayerOp: ' * (not number)}{message.at / 1e9:.1f} s": np.asarray(message.data[""])
        for number, message in enumerate(outcome.messages["output"])
    }


def video_stream_recorder() -> Panels:
    with tempfile.TemporaryDirectory() as folder:
        frames = clip(folder, 3)
        index = Path(folder, "clip.gxf_index").read_bytes()
        entities = Path(folder, "clip.gxf_entities").read_bytes()
    lines = [f"clip.gxf_index: {len(index)} bytes"]
    lines += [f"  {size} bytes at {offset}" for _, size, offset in struct.iter_unpack("<3Q", index)]
    lines += [f"clip.gxf_entities: {len(entities)} bytes", f"  {entities[72:96].hex(' ', 4)} ..."]
    return {"a frame": frames[0], "the next": frames[1], "VideoStreamRecorderOp writes": "\n".join(lines)}


def video_file() -> Panels:
    with tempfile.TemporaryDirectory() as folder:
        frames = clip(folder, 3)
        times = (0, 40, 500)
        messages = [
            Message(frame, acq_timestamp=ms * 1_000_000) for frame, ms in zip(frames, times, strict=True)
        ]
        path = Path(folder, "clip.mp4")
        run_operator(VideoWriterOp, inputs=messages, path=path)
        lines = f"clip.mp4: {VideoReader(path).codec}\n" + "\n".join(f"  a frame at {ms} ms" for ms in times)
        read = run_operator(VideoReaderOp, path=path).messages["output"]
    return {
        "a frame": frames[0],
        "VideoWriterOp writes": lines,
        **{
            f"{'VideoReaderOp: ' * (not number)}{message.at // 1_000_000} ms": np.asarray(message.data[""])
            for number, message in enumerate(read)
        },
    }


def v4l2_video_capture() -> Panels:
    """Capture from a driver for tests, which stands in for a camera."""
    from tests.operators.test_v4l2_video_capture import Opened, capture
    from tests.video.v4l2_driver import FakeDriver

    picture = scene(120, SIZE).astype(float)
    red, green, blue = np.moveaxis(picture, -1, 0)
    luma = 16 + (65.48 * red + 128.55 * green + 24.97 * blue) / 255
    chroma = np.where(
        np.arange(SIZE) % 2,
        128 + (112 * red - 93.79 * green - 18.21 * blue) / 255,
        128 + (-37.8 * red - 74.2 * green + 112 * blue) / 255,
    )
    raw = np.stack([luma, chroma], axis=-1).round().astype(np.uint8)

    class Camera(FakeDriver):
        formats = {"YUYV": ((SIZE, 120),)}  # noqa: RUF012

        def on_start(self) -> None:
            opened.has_started.set()

    opened = Opened()

    def open_device(path: str) -> FakeDriver:
        opened.append(Camera(path))
        return opened[-1]

    original = V4L2VideoCaptureOp.open_device
    V4L2VideoCaptureOp.open_device = staticmethod(open_device)  # type: ignore[method-assign]
    try:
        ((frame, *_),), _ = capture(opened, [raw])
    finally:
        V4L2VideoCaptureOp.open_device = staticmethod(original)  # type: ignore[method-assign]
    bytes_ = np.repeat(raw.reshape(120, 2 * SIZE)[..., None], 3, axis=2)
    return {"YUYV: the camera's bytes": bytes_, "V4L2VideoCaptureOp": frame[..., :3]}


# Networks and the viewer.


def inference() -> Panels:
    """Find edges with a model of one convolution."""
    from onnx import TensorProto, helper, numpy_helper, save

    kernel = np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]], np.float32) / 3
    weights = np.repeat(kernel[None, None], 3, axis=1)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4), helper.make_node("Abs", ["c"], ["y"])],
        "edges",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, SIZE, SIZE])],
        [numpy_helper.from_array(weights, "w")],
    )
    picture = scene()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "edges.onnx"))
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        planes = np.ascontiguousarray(np.moveaxis(picture, -1, 0)[None].astype(np.float32) / 255)
        (message,) = run_operator(
            InferenceOp,
            inputs={"receivers": [[{"x": planes}]]},
            backend="onnxrt",
            model_path_map={"edges": path},
            pre_processor_map={"edges": ["x"]},
            inference_map={"edges": ["y"]},
        )["transmitter"]
    found = np.clip(np.asarray(message["y"])[0, 0] * 255, 0, 255).astype(np.uint8)
    return {"input": picture, "InferenceOp: a model of edges": found[..., None].repeat(3, axis=2)}


def drawn(tensors: dict[str, Any], layers: list[Any]) -> np.ndarray:
    """Return the picture that a viewer draws of tensors."""
    (message,) = run_operator(
        HolovizOp,
        inputs={"receivers": [[tensors]]},
        tensors=layers,
        width=SIZE,
        height=SIZE,
        headless=True,
        enable_render_buffer_output=True,
    )["render_buffer_output"]
    return np.asarray(message["render_buffer_output"])[..., :3]


def holoviz() -> Panels:
    picture = scene()
    turn = np.linspace(0, 2 * np.pi, 60)
    wave = np.stack([np.linspace(0.05, 0.95, 60), 0.9 + 0.05 * np.sin(3 * turn)], axis=-1)
    tensors = {
        "frame": picture,
        "boxes": np.array([[0.13, 0.13], [0.57, 0.57], [0.34, 0.36], [0.86, 0.88]], np.float32),
        "centres": np.array([[0.35, 0.35, 0.08], [0.6, 0.62, 0.08]], np.float32),
        "labels": np.array([[0.14, 0.03, 0.09], [0.66, 0.25, 0.09]], np.float32),
        "ring": np.array([[0.75, 0.3, 0.28, 0.28]], np.float32),
        "wave": wave.astype(np.float32),
    }
    colour = {"yellow": [1.0, 0.9, 0.3, 1.0], "white": [1.0, 1.0, 1.0, 1.0], "cyan": [0.3, 0.9, 1.0, 1.0]}
    layers = [
        {"name": "frame", "type": "color"},
        {"name": "boxes", "type": "rectangles", "color": colour["white"], "line_width": 2, "priority": 1},
        {"name": "centres", "type": "crosses", "color": colour["white"], "line_width": 2, "priority": 1},
        {"name": "ring", "type": "ovals", "color": colour["cyan"], "line_width": 3, "priority": 1},
        {"name": "wave", "type": "line_strip", "color": colour["yellow"], "line_width": 3, "priority": 1},
        {"name": "labels", "type": "text", "text": ["red", "small"], "color": colour["white"], "priority": 2},
    ]
    half = [{**layers[0], "opacity": 0.4}, *layers[1:]]
    return {
        "a frame": picture,
        "HolovizOp": drawn(tensors, layers),
        "the frame at opacity 0.4": drawn(tensors, half),
    }


PICTURES: dict[str, tuple[tuple[Any, ...], Callable[[], Panels]]] = {
    "bayer_demosaic": ((BayerDemosaicOp,), bayer_demosaic),
    "format_converter": ((FormatConverterOp,), format_converter),
    "segmentation_postprocessor": ((SegmentationPostprocessorOp,), segmentation_postprocessor),
    "inference_processor": ((InferenceProcessorOp,), inference_processor),
    "ping": ((PingTxOp, PingRxOp), ping),
    "ping_tensor": ((PingTensorTxOp, PingTensorRxOp), ping_tensor),
    "probe": ((ProbeOp,), probe),
    "camera_sim": ((CameraSimOp,), camera_sim),
    "video_stream_replayer": ((VideoStreamReplayerOp,), video_stream_replayer),
    "video_stream_recorder": ((VideoStreamRecorderOp,), video_stream_recorder),
    "video_file": ((VideoWriterOp, VideoReaderOp), video_file),
    "v4l2_video_capture": ((V4L2VideoCaptureOp,), v4l2_video_capture),
    "inference": ((InferenceOp,), inference),
    "holoviz": ((HolovizOp,), holoviz),
}
"""The operators of each picture, and what makes its panels."""


def arranged(panels: Panels) -> Any:
    """Return a picture of panels beside each other, each under its title: arrays, or text on dark."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(12)
    probe = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    images = []
    for panel in panels.values():
        if isinstance(panel, str):
            box = probe.multiline_textbbox((0, 0), panel, font=font, spacing=6)
            image = Image.new("RGB", (int(box[2]) + 24, int(box[3]) + 24), (30, 34, 42))
            ImageDraw.Draw(image).multiline_text((12, 10), panel, (225, 228, 232), font=font, spacing=6)
        else:
            image = Image.fromarray(np.ascontiguousarray(panel))
        images.append(image)
    widths = [
        max(image.width, int(probe.textlength(title, font=font)) + 2)
        for title, image in zip(panels, images, strict=True)
    ]
    width = sum(widths) + GAP * (len(images) + 1)
    canvas = Image.new("RGB", (width, max(image.height for image in images) + TITLE + 2 * GAP), "white")
    draw = ImageDraw.Draw(canvas)
    left = GAP
    for title, image, wide in zip(panels, images, widths, strict=True):
        draw.text((left, GAP), title, "black", font=font)
        canvas.paste(image, (left, GAP + TITLE))
        left += wide + GAP
    return canvas


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        _, make = PICTURES[name]
        picture = arranged(make())
        file = io.BytesIO()
        picture.save(file, "png", optimize=True)
        if file.tell() > LARGEST:  # noise: a table of colours makes it smaller
            file = io.BytesIO()
            picture.quantize(256, kmeans=3).save(file, "png", optimize=True)
        (FOLDER / f"{name}.png").write_bytes(file.getvalue())


if __name__ == "__main__":
    main(sys.argv[1:])
