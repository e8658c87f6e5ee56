"""Models of PyTorch: programs of torch.export, and TorchScript with and without a file beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.inference import InferenceError, TensorSpec, load_model
from headrace.operators import InferenceOp
from headrace.testing import run_operator
from tests.inference.torch_models import Nested, Net, Pair, Stateful, exported, scripted

torch = pytest.importorskip("torch")


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


# Programs of torch.export.


def test_an_exported_program_tells_what_it_takes_and_computes_the_same(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch")
    path = exported(tmp_path / "net.pt2", Net(), torch.ones(2, 3, 8, 8), dynamic=({0: batch},))
    model = load_model(path, backend="torch")
    assert model.runtime == "PyTorch (torch.export, cpu)"
    (spec,) = model.inputs
    assert (spec.name, spec.dtype) == ("x", np.dtype("float32"))
    assert spec.shape is not None
    assert spec.shape[1:] == (3, 8, 8)
    assert model.output_shapes([(5, 3, 8, 8)]) == [(5, 4, 8, 8)]
    frame = np.random.default_rng(1).standard_normal((5, 3, 8, 8)).astype(np.float32)
    (result,) = model.run_on_host([frame])
    with torch.no_grad():
        expected = Net()(torch.from_numpy(frame))
    np.testing.assert_allclose(np.asarray(result), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_nested_arguments_of_a_program_are_its_inputs_in_order(tmp_path: Path) -> None:
    example = {"left": torch.ones(2), "right": torch.ones(2)}
    model = load_model(exported(tmp_path / "nested.pt2", Nested(), example), backend="torch")
    assert len(model.inputs) == 2
    results = model.run_on_host([numbers(1, 2), numbers(10, 20)])
    assert [result.tolist() for result in results] == [[1, 2], [11, 22], [1]]


def test_a_program_runs_in_a_pipeline(tmp_path: Path) -> None:
    path = exported(tmp_path / "pair.pt2", Pair(), torch.ones(2), torch.ones(2))
    (sent,) = run_operator(
        InferenceOp,
        inputs={"receivers": [[{"l": numbers(5, 6), "r": numbers(1, 2)}]]},
        backend="torch",
        model_path_map={"m": path},
        pre_processor_map={"m": ["l", "r"]},
        inference_map={"m": ["s", "d"]},
    )["transmitter"]
    assert np.asarray(sent["s"]).tolist() == [6, 8]
    assert np.asarray(sent["d"]).tolist() == [4, 4]


# TorchScript.


@pytest.mark.parametrize("name", ["net.pt", "net.ts"])
def test_a_script_of_plain_tensors_needs_no_file_beside_it(tmp_path: Path, name: str) -> None:
    model = load_model(scripted(tmp_path / name, Pair()), backend="torch")
    assert model.runtime == "PyTorch (TorchScript, cpu)"
    assert model.inputs == (TensorSpec("a"), TensorSpec("b"))
    assert [spec.name for spec in model.outputs] == ["output_0", "output_1"]
    results = model.run_on_host([numbers(5), numbers(1)])
    assert [result.tolist() for result in results] == [[6], [4]]


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
    model = load_model(scripted(tmp_path / "nested.pt", Nested(), NESTED), backend="torch")
    assert model.inputs == (
        TensorSpec("l", np.dtype("float32"), (2,)),
        TensorSpec("r", np.dtype("float32"), (2,)),
    )
    results = model.run_on_host([numbers(1, 2), numbers(10, 20)])
    assert [result.tolist() for result in results] == [[11, 22], [1]]


def test_a_script_of_lists_and_dicts_without_that_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InferenceError, match=r"parts: Dict\[str, Tensor\].*nested.yaml does not exist: describe"
    ):
        load_model(scripted(tmp_path / "nested.pt", Nested()), backend="torch")


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
        load_model(path, backend="torch")


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
        load_model(path, backend="torch").run_on_host([numbers(1, 2), numbers(10, 20)])


# What was sent never changes.


@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_results_are_fresh_even_of_a_model_that_returns_its_state_or_its_input(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / f"stateful.{kind}"
    path = scripted(file, Stateful()) if kind == "pt" else exported(file, Stateful(), torch.ones(2))
    model = load_model(path, backend="torch")
    frame = numbers(0, 0)
    held = []
    for number in range(4):
        frame[:] = number
        held.append(model.run_on_host([frame]))
    assert [count.tolist() for count, _ in held] == [[number, number] for number in range(1, 5)]
    assert [same.tolist() for _, same in held] == [[number, number] for number in range(4)]


def test_results_are_contiguous_and_types_that_numpy_lacks_pass(tmp_path: Path) -> None:
    class Turn(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x + 1).t(), x.to(torch.bfloat16)

    path = exported(tmp_path / "turn.pt2", Turn(), torch.ones(2, 3))
    (sent,) = run_operator(
        InferenceOp,
        inputs={"receivers": [[np.ones((2, 3), np.float32)]]},
        backend="torch",
        model_path_map={"m": path},
        pre_processor_map={"m": ["x"]},
        inference_map={"m": ["turned", "narrow"]},
    )["transmitter"]
    assert sent["turned"].shape == (3, 2)
    assert sent["turned"].is_contiguous()
    assert sent["narrow"].dl_dtype.name == "bfloat16"


# What is wrong.


def test_weights_alone_are_refused(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InferenceError, match="holds weights or a pickled module.*torch.export.save"):
        load_model(tmp_path / "weights.pt", backend="torch")


@pytest.mark.parametrize("kind", ["pt", "pt2"])
def test_a_truncated_file_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"net.{kind}"
    scripted(file, Net()) if kind == "pt" else exported(file, Net(), torch.ones(1, 3, 4, 4))
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(InferenceError, match=r"model 'net': .*net\.pt"):
        load_model(file, backend="torch")


def test_a_failure_names_the_model(tmp_path: Path) -> None:
    path = scripted(tmp_path / "pair.pt", Pair())
    with pytest.raises(
        InferenceError, match=r"operator 'inference': model 'm' \(PyTorch \(TorchScript, cpu\), .*size"
    ):
        run_operator(
            InferenceOp,
            inputs={"receivers": [[{"a": numbers(1, 2), "b": numbers(1, 2, 3)}]]},
            backend="torch",
            model_path_map={"m": path},
            pre_processor_map={"m": ["a", "b"]},
            inference_map={"m": ["s", "d"]},
        )
