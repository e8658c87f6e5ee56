"""Made-up clips and models, in the folders and under the names that applications look for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.testing import Message, run_operator
from headrace_holoscan.ready import VideoStreamRecorderOp

ROWS, COLUMNS, FRAMES, SIDE = 24, 32, 6, 8


def frame(number: int) -> np.ndarray:
    """Return a picture of the clips: a white square on grey; both change from frame to frame."""
    picture = np.full((ROWS, COLUMNS, 3), 10 * number, np.uint8)
    left = corner(number)
    picture[SIDE : 2 * SIDE, left : left + SIDE] = 255
    return picture


def corner(number: int) -> int:
    """Return the left column of the square."""
    return 4 * number


def make_clip(folder: Path, name: str) -> None:
    """Record a clip with our own recorder: a pair of files, as the SDK writes and reads them."""
    messages = [Message({"": frame(number)}, at=f"{20 * number}ms") for number in range(FRAMES)]
    run_operator(VideoStreamRecorderOp, inputs=messages, directory=folder, basename=name)


def make_models(folder: Path) -> None:
    """Write small networks with the inputs and outputs of the models that applications use."""
    from tests.inference.models import helper, save

    (folder / "models").mkdir(exist_ok=True)
    image = (1, ROWS, COLUMNS, 3)
    # Two classes for each pixel: how dark it is, and how bright.
    save(
        folder / "models" / "segmentation.onnx",
        [
            helper.make_node("ReduceMean", ["INPUT__0"], ["bright"], axes=[3], keepdims=1),
            helper.make_node("Sub", ["one", "bright"], ["dark"]),
            helper.make_node("Concat", ["dark", "bright"], ["OUTPUT__0"], axis=3),
        ],
        {"INPUT__0": ("FLOAT", image)},
        {"OUTPUT__0": ("FLOAT", (1, ROWS, COLUMNS, 2))},
        {"one": np.float32(1)},
    )
    # The identity, for those who bring their own.
    save(
        folder / "models" / "identity.onnx",
        [helper.make_node("Identity", ["INPUT__0"], ["OUTPUT__0"])],
        {"INPUT__0": ("FLOAT", image)},
        {"OUTPUT__0": ("FLOAT", image)},
    )
    # A map of scores, whose maximum is the point that is looked for.
    save(
        folder / "models" / "peaks.onnx",
        [
            helper.make_node("ReduceMean", ["INPUT__0"], ["mean"], axes=[0, 3], keepdims=0),
            helper.make_node("Unsqueeze", ["mean", "axes"], ["OUTPUT__0"]),
        ],
        {"INPUT__0": ("FLOAT", image)},
        {"OUTPUT__0": ("FLOAT", (1, ROWS, COLUMNS, 1))},
        {"axes": np.array([0, 3], np.int64)},
    )
    # Two candidates for a person: box, score and two key points. They do not depend on the picture.
    found = np.zeros((1, 11, 2), np.float32)
    found[0, :, 0] = [16, 12, 8, 8, 0.9, 16, 10, 0.9, 18, 14, 0.9]
    found[0, :, 1] = [16, 12, 8, 8, 0.2, 1, 1, 0.1, 2, 2, 0.1]
    save(
        folder / "models" / "pose.onnx",
        [
            helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
            helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
            helper.make_node("Add", ["found", "nothing"], ["output0"]),
        ],
        {"images": ("FLOAT", (1, 3, ROWS, COLUMNS))},
        {"output0": ("FLOAT", (1, 11, 2))},
        {"zero": np.float32(0), "found": found},
    )


def make(folder: Path) -> Path:
    """Make the clips that the programs read; return the folder."""
    for place, name in (("racerx", "racerx"), ("endoscopy", "surgical_video"), ("ultrasound", "ultrasound")):
        (folder / place).mkdir(parents=True)
        make_clip(folder / place, name)
    return folder
