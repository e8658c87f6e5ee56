"""Loading models: what is wrong with a file, a backend or what is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.inference import InferenceError, load_model
from tests.harness.processes import output_of
from tests.inference import models


@pytest.mark.parametrize(
    ("name", "backend", "what"),
    [
        ("a.onnx", "tf", "there is no backend 'tf'; the backends are 'trt', 'onnxrt', 'torch'"),
        ("none.onnx", "onnxrt", "none.onnx does not exist$"),
        ("folder", "onnxrt", "folder is a folder"),
        ("a.engine", "trt", "a TensorRT engine, which none of the runtimes loads: give the ONNX file"),
        ("a.onnx", "torch", "an ONNX file, and its backend is 'torch': use backend 'onnxrt' or 'trt'"),
        ("a.pt2", "onnxrt", "a PyTorch file, and its backend is 'onnxrt': use backend 'torch'"),
        ("a.onnx", "onnxrt", "ONNX Runtime cannot load .*a.onnx: .*Protobuf parsing failed"),
        ("a.onnx", "trt", "ONNX Runtime cannot load"),
        ("a.pt", "torch", "is not a file of PyTorch"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named(tmp_path: Path, name: str, backend: str, what: str) -> None:
    pytest.importorskip("onnxruntime")
    if name == "a.pt":
        pytest.importorskip("torch")
    (tmp_path / "folder").mkdir()
    for file in ("a.onnx", "a.engine", "a.pt2", "a.pt"):
        (tmp_path / file).write_bytes(b"no model")
    with pytest.raises(InferenceError, match=f"(?s)model 'net': .*{what}"):
        load_model(tmp_path / name, backend=backend, name="net")


def test_a_relative_path_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InferenceError, match=rf"model 'net': net.onnx does not exist \(looked for in {tmp_path}\)"
    ):
        load_model("net.onnx")


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_truncated_model_is_an_error(tmp_path: Path, size: int) -> None:
    pytest.importorskip("onnxruntime")
    path = Path(models.convolution(tmp_path))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InferenceError, match="ONNX Runtime cannot load"):
        load_model(path)


@pytest.mark.parametrize(("module", "extra"), [("onnxruntime", "inference"), ("torch", "torch")])
def test_a_runtime_that_is_missing_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    file = tmp_path / ("a.pt2" if module == "torch" else "a.onnx")
    file.write_bytes(b"")
    with pytest.raises(ImportError, match=rf"'(?:\.|headrace)\[{extra}\]"):
        load_model(file, backend="torch" if module == "torch" else "onnxrt")


def test_no_runtime_is_imported_before_a_model_is_loaded() -> None:
    program = (
        "import sys, headrace.operators, headrace.inference\n"
        "from headrace.operators import InferenceOp\n"
        "from headrace import Application\n"
        "InferenceOp(Application([]))\n"
        "print([name for name in ('onnxruntime', 'torch', 'onnx', 'cupy') if name in sys.modules])"
    )
    assert output_of("-c", program) == "[]\n"
