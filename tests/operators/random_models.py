"""Random ONNX models, and what ONNX's own evaluator computes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.inference import models
from tests.inference.models import helper

Array = np.ndarray[Any, Any]

# Where the operations of a model take the values: none of them is chaotic, so that errors of rounding stay small.
UNARY = ["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "Elu"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]


def random_model(folder: Path, seed: int) -> tuple[str, Array]:
    """Write a model of up to twelve operations on a batch of pictures of any size; return its file and a batch."""
    source = np.random.default_rng(seed)
    channels = int(source.integers(1, 5))
    nodes: list[Any] = []
    constants: dict[str, Array] = {}
    values = {"x": channels}  # the channels of each value so far

    def node(kind: str, inputs: list[str], made: int, **attributes: Any) -> None:
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        values[name] = made

    for number in range(int(source.integers(2, 12))):
        taken = list(values)[-1] if source.random() < 0.7 else str(source.choice(list(values)))
        had = values[taken]
        chosen = source.random()
        if chosen < 0.35:
            made, size = int(source.integers(1, 6)), int(source.choice([1, 3]))
            weights = source.standard_normal((made, had, size, size)) / (had * size)
            constants[f"w{number}"] = weights.astype(np.float32)
            constants[f"b{number}"] = source.standard_normal(made).astype(np.float32)
            node("Conv", [taken, f"w{number}", f"b{number}"], made, pads=[size // 2] * 4)
        elif chosen < 0.7:
            node(str(source.choice(UNARY)), [taken], had)
        elif chosen < 0.9:
            equal = [name for name, count in values.items() if count == had]
            node(str(source.choice(BINARY)), [taken, str(source.choice(equal))], had)
        else:
            other = str(source.choice(list(values)))
            node("Concat", [taken, other], had + values[other], axis=1)
    node("Softmax", [list(values)[-1]], list(values.values())[-1], axis=1)
    last = list(values)[-1]
    path = models.save(
        folder / f"random{seed}.onnx",
        nodes,
        {"x": ("FLOAT", ["batch", channels, "rows", "columns"])},
        {last: ("FLOAT", ["batch", values[last], "rows", "columns"])},
        constants,
    )
    shape = (int(source.integers(1, 4)), channels, *(int(size) for size in source.integers(1, 24, 2)))
    return path, source.standard_normal(shape).astype(np.float32)


def evaluated(path: str, batch: Array) -> Array:
    """Return what ONNX's own evaluator computes, which is written in NumPy."""
    from onnx.reference import ReferenceEvaluator

    (expected,) = ReferenceEvaluator(path).run(None, {"x": batch})
    return np.asarray(expected)


# Sums in another order differ by a few units of the last of 24 binary digits; a GPU may round the products of a
# convolution to 10 (TF32).
HOST_TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
GPU_TOLERANCE = {"rtol": 2e-2, "atol": 2e-3}
