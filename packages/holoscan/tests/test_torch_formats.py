"""The file beside a TorchScript model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.inference import InferenceError, ModelOptions, TensorSpec, load_model
from headrace.testing import run_operator
from headrace_holoscan.operators import InferenceOp
from headrace_holoscan.torch_formats import format_beside
from tests.inference.torch_models import Nested, scripted

pytest.importorskip("torch")


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def load(path: str) -> Any:
    return load_model(path, backend="torch", options=ModelOptions(torch_format=format_beside))


NESTED = """
inference:
  input_nodes:
    l: {dim: "2", dtype: kFloat32}
    r: {dim: "2", dtype: float32}
  output_nodes:
    total: {dim: "2", dtype: kFloat32}
    first: {dtype: kFloat32}
  input_format: [{left: l, right: r}]
  output_format: [null, {sum: total, first: first}]
"""


def test_the_file_beside_a_script_says_where_its_tensors_are(tmp_path: Path) -> None:
    model = load(scripted(tmp_path / "nested.pt", Nested(), NESTED))
    assert model.inputs == (
        TensorSpec("l", np.dtype("float32"), (2,)),
        TensorSpec("r", np.dtype("float32"), (2,)),
    )
    results = model.run_on_host([numbers(1, 2), numbers(10, 20)])
    assert [result.tolist() for result in results] == [[11, 22], [1]]


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("inference:", "inferences:", "has no section 'inference'"),
        ("inference:", "inference: [", "is not YAML"),
        ("input_nodes:", "inputs:", "inference has no input_nodes"),
        ('dim: "2"', 'dim: "two"', "input_nodes: l: dim must be extents"),
        ("kFloat32", "kFloat33", "there is no dtype 'kFloat33'"),
        ("dtype: kFloat32", "type: kFloat32", "input_nodes: l must have dim and dtype"),
        ("right: r", "right: q", "input_format must name each of 'l', 'r' once; 'q' is not one of them"),
        ("right: r", "right: l", "input_format must name each of 'l', 'r' once; 'l' is in it 2 times"),
        ("[null, ", "[3, ", "output_format has lists, dicts and names of tensors, not 3"),
    ],
)
def test_a_wrong_file_beside_a_script_is_refused(tmp_path: Path, before: str, after: str, what: str) -> None:
    path = scripted(tmp_path / "nested.pt", Nested(), NESTED.replace(before, after, 1))
    with pytest.raises(InferenceError, match=f"nested.yaml.*{what}"):
        load(path)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (
            "[null, {sum: total, first: first}]",
            "[total]",
            "its result is a tuple of 2; output_format .* a list of 1",
        ),
        (
            "{sum: total",
            "{sums: total",
            r"its result\[1\] is a dict with 'sum', 'first'; .* has the key 'sums'",
        ),
        (
            "output_format: [null, {sum: total, first: first}]",
            "",
            "its output 'first' is a dict, and should be",
        ),
    ],
)
def test_a_result_that_is_not_as_described_is_an_error(
    tmp_path: Path, before: str, after: str, what: str
) -> None:
    yaml = NESTED.replace(before, after)
    if after == "[total]":
        yaml = yaml.replace("    first: {dtype: kFloat32}\n", "")
    path = scripted(tmp_path / "nested.pt", Nested(), yaml)
    with pytest.raises(InferenceError, match=what):
        load(path).run_on_host([numbers(1, 2), numbers(10, 20)])


def test_an_operator_reads_the_file_beside_a_script(tmp_path: Path) -> None:
    outcome = run_operator(
        InferenceOp,
        inputs={"receivers": [[{"l": numbers(1, 2), "r": numbers(10, 20)}]]},
        backend="torch",
        allocator=None,
        model_path_map={"m": scripted(tmp_path / "nested.pt", Nested(), NESTED)},
        pre_processor_map={"m": ["l", "r"]},
        inference_map={"m": ["total", "first"]},
    )
    assert np.asarray(outcome["transmitter"][0]["total"]).tolist() == [11, 22]
