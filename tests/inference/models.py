"""Small models, made where a test needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

Shape = Sequence[int | str | None]


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: dict[str, tuple[str, Shape]],
    outputs: dict[str, tuple[str, Shape]],
    constants: dict[str, np.ndarray] | None = None,
) -> str:
    """Write an ONNX model; inputs and outputs are names with a type and a shape."""
    infos = [
        [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
            for name, (kind, shape) in part.items()
        ]
        for part in (inputs, outputs)
    ]
    values = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "model", *infos, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return str(path)


def scaling(folder: Path, factor: float = 2.0, shape: Shape = ("n", 3), name: str = "") -> str:
    """Return the file of a model that multiplies float32 values by a number."""
    return save(
        folder / f"{name or f'times_{factor:g}'}.onnx",
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        {"x": ("FLOAT", shape)},
        {"y": ("FLOAT", shape)},
        {"factor": np.array(factor, np.float32)},
    )


def sum_and_difference(folder: Path) -> str:
    """Return the file of a model with two inputs and two outputs."""
    return save(
        folder / "sum_and_difference.onnx",
        [helper.make_node("Add", ["a", "b"], ["sum"]), helper.make_node("Sub", ["a", "b"], ["difference"])],
        {"a": ("FLOAT", ["n"]), "b": ("FLOAT", ["n"])},
        {"sum": ("FLOAT", ["n"]), "difference": ("FLOAT", ["n"])},
    )


def positions(folder: Path) -> str:
    """Return the file of a model whose output has as many columns as its input has values other than 0."""
    return save(
        folder / "positions.onnx",
        [helper.make_node("NonZero", ["x"], ["where"])],
        {"x": ("FLOAT", ["n"])},
        {"where": ("INT64", [1, "found"])},
    )


def picking(folder: Path, name: str = "picking") -> str:
    """Return the file of a model that fails in its run for an index that is too large."""
    return save(
        folder / f"{name}.onnx",
        [helper.make_node("Gather", ["table", "index"], ["value"])],
        {"index": ("INT64", ["n"])},
        {"value": ("FLOAT", ["n"])},
        {"table": np.arange(4, dtype=np.float32)},
    )


def convolution(folder: Path, channels: int = 8) -> str:
    """Return the file of a small convolutional model with a dynamic batch and picture size."""
    weights = np.random.default_rng(7).standard_normal((channels, 3, 3, 3)).astype(np.float32)
    return save(
        folder / "convolution.onnx",
        [
            helper.make_node("Conv", ["x", "weights"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        {"x": ("FLOAT", ["batch", 3, "height", "width"])},
        {"y": ("FLOAT", ["batch", channels, "height", "width"])},
        {"weights": weights},
    )
