"""ONNX models that are damaged or lie about themselves: a clear error, and no memory for what is only declared."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from headrace.inference import InferenceError
from tests.inference import models
from tests.inference.models import helper, numpy_helper, onnx
from tests.limits import examples
from tests.operators.inference_runs import inference, one_model
from tests.operators.on_device import run_model_on_device

pytest.importorskip("onnxruntime")

ONE = np.ones((1, 3), np.float32)


def write(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    constants: list[Any] | None = None,
) -> str:
    """Write a model without checking it."""
    float32 = onnx.TensorProto.FLOAT
    values = [
        [helper.make_tensor_value_info(name, float32, shape) for name, shape in part.items()]
        for part in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "hostile", *values, constants or [])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("elsewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return str(path)


def relu(path: Path, before: list[Any], after: list[Any]) -> str:
    return write(path, [helper.make_node("Relu", ["x"], ["y"])], {"x": before}, {"y": after})


def declared(*dims: int, location: str = "") -> Any:
    """Return a constant w that is declared and has no values, or has them in another file."""
    constant = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT)
    constant.dims.extend(dims)
    if location:
        constant.data_location = onnx.TensorProto.EXTERNAL
        entry = constant.external_data.add()
        entry.key, entry.value = "location", location
    return constant


def adding(path: Path, constant: Any) -> str:
    return write(
        path, [helper.make_node("Add", ["x", "w"], ["y"])], {"x": ["n", 3]}, {"y": ["n", 3]}, [constant]
    )


def run(path: str, batch: np.ndarray = ONE) -> Any:
    """Run a model and return its result; it may take a few megabytes."""
    tracemalloc.start()
    try:
        (message,) = inference([{"x": batch}], **one_model(path), name="net")
        return np.asarray(message["y"])
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50_000_000


HUGE = 1 << 34

REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "a huge input": (
        lambda path: relu(path, [1 << 40, 3], [1 << 40, 3]),
        r"must be float32 \(1099511627776, 3\)",
    ),
    "an input without elements": (lambda path: relu(path, [0, 3], [0, 3]), r"must be float32 \(0, 3\)"),
    "a huge constant without values": (lambda path: adding(path, declared(1 << 40, 1 << 20)), "cannot load"),
    "a constant without values": (lambda path: adding(path, declared(3)), "cannot load"),
    "a constant in a file elsewhere": (
        lambda path: adding(path, declared(3, location="../../../../../../etc/passwd")),
        "cannot load",
    ),
    "an unknown operation": (
        lambda path: write(
            path,
            [helper.make_node("Steal", ["x"], ["y"], domain="elsewhere")],
            {"x": ["n", 3]},
            {"y": ["n", 3]},
        ),
        "cannot load",
    ),
    "a cycle": (
        lambda path: write(
            path, [helper.make_node("Add", ["x", "y"], ["y"])], {"x": ["n", 3]}, {"y": ["n", 3]}
        ),
        "cannot load",
    ),
    "no output": (
        lambda path: write(path, [helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 3]}, {}),
        "which has 0 outputs",
    ),
    "a result of terabytes": (
        lambda path: write(
            path,
            [helper.make_node("Expand", ["x", "shape"], ["y"])],
            {"x": ["n", 3]},
            {"y": ["a", "b", "c"]},
            [numpy_helper.from_array(np.array([1 << 40, 1, 3], np.int64), "shape")],
        ),
        "failed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_model_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, text = REFUSED[case]
    with pytest.raises(InferenceError, match=text) as raised:
        run(make(tmp_path / "hostile.onnx"))
    assert "operator 'net'" in str(raised.value)
    assert "'m'" in str(raised.value)


@pytest.mark.parametrize("after", [[HUGE, 3], ["n", HUGE]])
def test_an_output_is_as_large_as_it_is_and_not_as_it_is_declared(after: list[Any], tmp_path: Path) -> None:
    assert run(relu(tmp_path / "false.onnx", ["n", 3], after)).shape == (1, 3)


def test_on_a_device_a_false_output_is_not_allocated_as_declared(
    tmp_path: Path, machine: sim.Machine
) -> None:
    seen = run_model_on_device(relu(tmp_path / "false.onnx", ["n", 3], ["n", HUGE]), ONE)
    np.testing.assert_array_equal(seen.arrays[0], ONE)


def test_a_batch_of_none_has_no_results(tmp_path: Path) -> None:
    assert run(models.scaling(tmp_path), np.ones((0, 3), np.float32)).shape == (0, 3)


def test_a_name_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = Path(relu(tmp_path / "name.onnx", ["extent", 3], ["extent", 3]))
    path.write_bytes(path.read_bytes().replace(b"extent", b"ext\xff\xfet"))
    with pytest.raises(InferenceError, match="operator 'net': model 'm'.*(is not UTF-8|cannot load)"):
        run(str(path))


@pytest.mark.parametrize("seed", range(examples(5)))
def test_bytes_that_are_flipped_do_no_harm(seed: int, tmp_path: Path) -> None:
    """Each of ten models with flipped bytes runs, or is refused by name."""
    whole = Path(models.convolution(tmp_path)).read_bytes()
    source = np.random.default_rng(seed)
    batch = np.ones((1, 3, 4, 4), np.float32)
    errors = []
    for number in range(10):
        damaged = bytearray(whole)
        for place in source.integers(0, min(len(whole), 400), 3):
            damaged[place] ^= 1 << int(source.integers(8))
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(damaged)
        try:
            run(str(path), batch)
        except InferenceError as error:
            errors.append(str(error))
    assert errors
    assert [error for error in errors if "operator 'net'" not in error] == []
