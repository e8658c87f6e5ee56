"""Models of PyTorch: programs of torch.export, and TorchScript."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.inference import InferenceError, ModelOptions, TensorSpec, TorchFormat, load_model
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
def test_a_script_of_plain_tensors_tells_what_it_takes(tmp_path: Path, name: str) -> None:
    model = load_model(scripted(tmp_path / name, Pair()), backend="torch")
    assert model.runtime == "PyTorch (TorchScript, cpu)"
    assert model.inputs == (TensorSpec("a"), TensorSpec("b"))
    assert [spec.name for spec in model.outputs] == ["output_0", "output_1"]
    results = model.run_on_host([numbers(5), numbers(1)])
    assert [result.tolist() for result in results] == [[6], [4]]


def test_a_script_of_lists_and_dicts_is_refused_unless_somebody_tells_their_places(tmp_path: Path) -> None:
    path = scripted(tmp_path / "nested.pt", Nested())
    with pytest.raises(InferenceError, match=r"parts: Dict\[str, Tensor\].*: save it with torch.export.save"):
        load_model(path, backend="torch")
    told = TorchFormat(
        (TensorSpec("l"), TensorSpec("r")),
        (TensorSpec("total"),),
        lambda tensors: [dict(zip(("left", "right"), tensors, strict=True))],
        lambda result: [result[1]["sum"]],
    )
    options = ModelOptions(torch_format=lambda file: told if file == Path(path) else None)
    (total,) = load_model(path, backend="torch", options=options).run_on_host(
        [numbers(1, 2), numbers(10, 20)]
    )
    assert total.tolist() == [11, 22]


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
