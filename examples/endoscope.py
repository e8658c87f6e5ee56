"""A camera, demosaic, segmentation and a viewer: every frame is checked against what the camera really saw.

    python examples/endoscope.py                       the last picture goes to out/endoscope.png
    python examples/endoscope.py --view                shows the pictures in the browser, too
    python examples/endoscope.py --size 3840 2160      another size

The camera is simulated: discs that move over a still background, as a Bayer mosaic with noise. A small network,
built by this program, finds the discs. The truth is known, so each mask is scored. On a GPU the frames stay on the
GPU from the camera to the network; without one everything runs on the host.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from penstock import Application, EventBasedScheduler, Operator, OperatorSpec, gpu
from penstock.core import MetadataPolicy
from penstock.operators import (
    BayerDemosaicOp,
    CameraSimOp,
    FormatConverterOp,
    HolovizOp,
    InferenceOp,
    SegmentationPostprocessorOp,
)
from shared.needs import needs
from shared.segmentation_model import build

ROWS, COLUMNS = 256, 256  # of the network's input
VIEW = 960, 540  # the size of the picture
ENOUGH = 0.8  # the part that mask and truth must have in common, of what either covers


class Endoscope(Application):
    """From the camera to the picture, with the network beside."""

    def __init__(self, width: int, height: int, rate: float, frames: int, model: Path) -> None:
        super().__init__()
        self.width, self.height, self.rate, self.frames, self.model = width, height, rate, frames, model

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=3))
        self.enable_metadata(True)  # the number of a frame travels with it
        camera = CameraSimOp(
            self,
            width=self.width,
            height=self.height,
            frame_rate=self.rate,
            count=self.frames,
            objects=3,
            storage_type="device" if gpu.backend() == "cuda" else "system",
            name="camera",
        )
        demosaic = BayerDemosaicOp(self, bayer_grid_pos=2, name="demosaic")
        convert = FormatConverterOp(
            self,
            in_dtype="rgb888",
            out_dtype="float32",
            resize_width=COLUMNS,
            resize_height=ROWS,
            resize_mode=8,  # the mean of the pixels behind each
            out_tensor_name="frame",
            name="convert",
        )
        # The viewer draws on the host: it is sent what it shows, and no more.
        shrink = FormatConverterOp(
            self,
            in_dtype="rgb888",
            out_dtype="rgb888",
            resize_width=VIEW[0],
            resize_height=VIEW[1],
            resize_mode=2,
            out_tensor_name="picture",
            name="shrink",
        )
        network = InferenceOp(
            self,
            backend="onnxrt",
            model_path_map={"discs": str(self.model)},
            pre_processor_map={"discs": ["frame"]},
            inference_map={"discs": ["scores"]},
            infer_on_cpu=True,
            transmit_on_cuda=False,
            name="network",
        )
        classify = SegmentationPostprocessorOp(
            self, in_tensor_name="scores", data_format="nhwc", name="classify"
        )
        self.score = Score(self, camera=camera, name="score")
        self.viewer = HolovizOp(
            self,
            tensors=[
                {"name": "picture", "type": "color", "priority": 0},
                {"name": "out_tensor", "type": "color_lut", "opacity": 0.5, "priority": 1},
            ],
            color_lut=[[0, 0, 0, 0], [1.0, 1.0, 1.0, 1.0]],
            width=VIEW[0],
            height=VIEW[1],
            headless=True,
            enable_render_buffer_output=True,
            window_title="endoscope",
            name="viewer",
        )
        self.viewer.metadata_policy = (
            MetadataPolicy.UPDATE
        )  # both of its inputs carry the number of the frame
        self.keep = KeepLast(self, name="keep")
        self.add_flow(camera, demosaic, {("output", "receiver")})
        self.add_flow(demosaic, convert, {("transmitter", "source_video")})
        self.add_flow(convert, network, {("tensor", "receivers")})
        self.add_flow(network, classify, {("transmitter", "in_tensor")})
        self.add_flow(classify, self.score, {("out_tensor", "in")})
        self.add_flow(demosaic, shrink, {("transmitter", "source_video")})
        self.add_flow(shrink, self.viewer, {("tensor", "receivers")})
        self.add_flow(classify, self.viewer, {("out_tensor", "receivers")})
        self.add_flow(self.viewer, self.keep, {("render_buffer_output", "in")})


class Score(Operator):
    """Compares each mask with the truth of its frame."""

    camera: CameraSimOp

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.param("camera")

    def start(self) -> None:
        self.frames = self.wrong = 0
        self.least = 1.0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        mask = to_host(op_input.receive("in")["out_tensor"])[..., 0] > 0
        number = self.metadata["frame_number"]
        labels = self.camera.truth(number).labels
        rows = (np.arange(ROWS) * labels.shape[0] + labels.shape[0] // 2) // ROWS
        columns = (np.arange(COLUMNS) * labels.shape[1] + labels.shape[1] // 2) // COLUMNS
        truth = labels[rows][:, columns] > 0
        common = int((mask & truth).sum()) / max(int((mask | truth).sum()), 1)
        self.frames += 1
        self.wrong += common < ENOUGH
        self.least = min(self.least, common)


class KeepLast(Operator):
    """Keeps the last picture."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def start(self) -> None:
        self.picture: Any = None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.picture = to_host(op_input.receive("in")["render_buffer_output"])


def to_host(tensor: Any) -> np.ndarray:
    """Return a tensor as a NumPy array; one on a GPU is waited for and copied."""
    if tensor.device.is_host:
        return np.asarray(tensor)
    import cupy

    return cupy.asnumpy(cupy.asarray(tensor))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, nargs=2, default=(960, 540), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--rate", type=float, default=30.0, help="frames per second")
    parser.add_argument("--frames", type=int, default=60, help="number of frames")
    parser.add_argument("--view", action="store_true", help="show the pictures in the browser")
    parser.add_argument(
        "--out", type=Path, default=Path("out/endoscope.png"), help="file for the last picture"
    )
    options = parser.parse_args()
    needs("onnx", "onnxruntime", "PIL", remedy="pip install 'penstock[inference,view]' onnx")
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder) / "discs.onnx", ROWS, COLUMNS)
        width, height = options.size
        app = Endoscope(width, height, options.rate, options.frames, model)
        outcome = app.run()
    score = app.score
    options.out.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(app.keep.picture).save(options.out)
    where = "a GPU" if gpu.backend() == "cuda" else "the host"
    print(
        f"{score.frames} frames of {width}x{height} on {where} in {outcome.seconds:.2f} s "
        f"({score.frames / outcome.seconds:.1f} per second), {score.wrong} wrong; "
        f"mask and truth have at least {score.least:.0%} in common. The last picture is in {options.out}."
    )


if __name__ == "__main__":
    main()
