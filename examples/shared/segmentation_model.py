"""A small segmentation network, built here for ONNX or PyTorch: the discs of a simulated scene, by their colour.

The input is a frame (1, rows, columns, 3) of float32 from 0 to 1, the output the scores (1, rows, columns, 2) of
background and disc. The discs have strong colours and the background is grey, so the spread between the largest and
the smallest channel tells them apart. A 3x3 mean in front removes the noise of the camera.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["THRESHOLD", "build", "build_torch"]

THRESHOLD = 0.45  # of the spread between the channels: the background's is smaller, a disc's is larger


def build(path: Path, rows: int, columns: int) -> Path:
    """Write the model for frames of a size, and return the path."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants: dict[str, np.ndarray] = {
        "mean": _mean(),
        "channels": np.array([1], np.int64),
        "threshold": np.array([THRESHOLD], np.float32),
        "zero": np.array([0], np.float32),
    }
    nodes = [
        helper.make_node("Transpose", ["frame"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "mean"], ["smooth"], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["smooth", "channels"], ["largest"], keepdims=1),
        helper.make_node("ReduceMin", ["smooth", "channels"], ["smallest"], keepdims=1),
        helper.make_node("Sub", ["largest", "smallest"], ["disc"]),
        helper.make_node("Mul", ["disc", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "threshold"], ["background"]),
        helper.make_node("Concat", ["background", "disc"], ["both"], axis=1),
        helper.make_node("Transpose", ["both"], ["scores"], perm=[0, 2, 3, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "discs",
        [helper.make_tensor_value_info("frame", TensorProto.FLOAT, [1, rows, columns, 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, rows, columns, 2])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def build_torch(path: Path, rows: int, columns: int) -> Path:
    """Write the same model as a program of torch.export, and return the path."""
    import torch

    class Discs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.from_numpy(_mean()))

        def forward(self, frame: torch.Tensor) -> torch.Tensor:
            smooth = torch.nn.functional.conv2d(frame.permute(0, 3, 1, 2), self.mean, padding=1)
            disc = smooth.amax(dim=1, keepdim=True) - smooth.amin(dim=1, keepdim=True)
            both = torch.cat([disc * 0 + THRESHOLD, disc], dim=1)
            return both.permute(0, 2, 3, 1).contiguous()

    torch.export.save(torch.export.export(Discs(), (torch.zeros(1, rows, columns, 3),)), str(path))
    return path


def _mean() -> np.ndarray:
    """Return the weights of a 3x3 mean of each channel."""
    mean = np.zeros((3, 3, 3, 3), np.float32)
    mean[range(3), range(3)] = 1 / 9
    return mean
