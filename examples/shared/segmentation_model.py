"""A small segmentation network in ONNX, built here: the discs of a simulated scene, by their colour.

The input is a frame (1, rows, columns, 3) of float32 from 0 to 1, the output the scores (1, rows, columns, 2) of
background and disc. The discs have strong colours and the background is grey, so the spread between the largest and
the smallest channel tells them apart. A 3x3 mean in front removes the noise of the camera.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["THRESHOLD", "build"]

THRESHOLD = 0.45  # of the spread between the channels: the background's is smaller, a disc's is larger


def build(path: Path, rows: int, columns: int) -> Path:
    """Write the model for frames of a size, and return the path."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    mean = np.zeros((3, 3, 3, 3), np.float32)
    mean[range(3), range(3)] = 1 / 9
    constants: dict[str, np.ndarray] = {
        "mean": mean,
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
