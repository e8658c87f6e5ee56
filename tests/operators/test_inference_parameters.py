"""The parameters of InferenceOp: each works, or is refused with what would be right."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import Application
from headrace.core.errors import ParameterError
from headrace.operators import InferenceOp
from tests.inference import models
from tests.operators.inference_runs import inference, one_model, values

pytest.importorskip("onnxruntime")

DEFAULTS = {
    "device_map": {},
    "dla_core_map": {},
    "temporal_map": {},
    "activation_map": {},
    "backend_map": {},
    "in_tensor_names": [],
    "out_tensor_names": [],
    "trt_opt_profile": {},
    "infer_on_cpu": False,
    "parallel_inference": True,
    "input_on_cuda": True,
    "output_on_cuda": True,
    "transmit_on_cuda": True,
    "dynamic_input_dims": False,
    "enable_fp16": False,
    "enable_cuda_graphs": True,
    "dla_core": -1,
    "dla_gpu_fallback": True,
    "is_engine_path": False,
    "cuda_stream_pool": None,
}


def test_the_names_defaults_and_ports_are_those_of_the_reference() -> None:
    operator = InferenceOp(Application([]))
    assert operator.name == "inference"
    assert {name: getattr(operator, name) for name in DEFAULTS} == DEFAULTS
    others = {"backend", "allocator", "inference_map", "model_path_map", "pre_processor_map"}
    assert set(operator.spec.params) == set(DEFAULTS) | others
    assert operator.spec.missing(operator) == ["inference_map", "model_path_map", "pre_processor_map"]
    assert list(operator.spec.inputs) == ["receivers", "model_activation_specs"]
    assert list(operator.spec.outputs) == ["transmitter"]
    assert all(name in (inspect.getdoc(InferenceOp) or "") for name in operator.spec.params)


def test_an_activation_spec_takes_its_values_by_position() -> None:
    spec = InferenceOp.ActivationSpec("m", False)
    assert (spec.model_name, spec.active) == ("m", False)
    assert InferenceOp.ActivationSpec("m").active is True


def test_everything_is_accepted_at_its_default(tmp_path: Path) -> None:
    (sent,) = inference([values(1, 2, 3)], **one_model(models.scaling(tmp_path)), **DEFAULTS)
    assert np.asarray(sent["y"]).tolist() == [[2, 4, 6]]


@pytest.mark.parametrize(
    "flag", ["input_on_cuda", "output_on_cuda", "transmit_on_cuda", "enable_cuda_graphs"]
)
def test_a_flag_that_changes_no_result_is_accepted(tmp_path: Path, flag: str) -> None:
    (sent,) = inference([values(1, 2, 3)], **one_model(models.scaling(tmp_path)), **{flag: False})
    assert np.asarray(sent["y"]).tolist() == [[2, 4, 6]]


def test_a_plain_text_in_place_of_a_list_is_accepted_with_a_warning(tmp_path: Path) -> None:
    parameters = {
        "model_path_map": {"m": models.scaling(tmp_path)},
        "pre_processor_map": {"m": "x"},
        "inference_map": {"m": "y"},
        "out_tensor_names": "y",
        "in_tensor_names": "x",
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (sent,) = inference([values(1, 2, 3)], **parameters)
    assert list(sent) == ["y"]
    texts = [str(one.message) for one in caught]
    assert len(texts) == 4
    assert texts[0] == (
        "operator 'inference': pre_processor_map of model 'm' is the text 'x'; write a list: ['x']"
    )


def test_backend_map_chooses_for_single_models_and_stands_in_for_backend(tmp_path: Path) -> None:
    (sent,) = inference(
        [values(1, 2, 3)], **one_model(models.scaling(tmp_path)), backend=None, backend_map={"m": "onnxrt"}
    )
    assert list(sent) == ["y"]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"backend": "tensorflow"}, "backend must be one of 'trt', 'onnxrt', 'torch', not 'tensorflow'"),
        ({"backend": None}, "model 'm' has no backend: give backend=, or an entry in backend_map"),
        ({"backend_map": {"m": "x"}}, "backend_map of model 'm' must be one of"),
        ({"backend_map": {"n": "trt"}}, "backend_map has a model 'n'; model_path_map has 'm'"),
        ({"model_path_map": {}}, "model_path_map is empty"),
        (
            {"model_path_map": "net.onnx"},
            "model_path_map must be a mapping from the names of models, not 'net.onnx'",
        ),
        ({"inference_map": ["y"]}, r"inference_map must be a mapping from the names of models, not \['y'\]"),
        (
            {"pre_processor_map": {}},
            "pre_processor_map has no entry for model 'm': a list of its input tensors",
        ),
        ({"inference_map": {}}, "inference_map has no entry for model 'm': a list of its output tensors"),
        (
            {"inference_map": {"m": [1]}},
            r"inference_map of model 'm' must be a list of names of tensors, not \[1\]",
        ),
        ({"temporal_map": {"m": "0"}}, "temporal_map of model 'm' must be an integer from 1 on, not '0'"),
        (
            {"temporal_map": {"m": "often"}},
            "temporal_map of model 'm' must be an integer from 1 on, not 'often'",
        ),
        ({"temporal_map": {"other": 2}}, "temporal_map has a model 'other'; model_path_map has 'm'"),
        ({"activation_map": {"m": 2}}, "activation_map of model 'm' must be 0 or 1, not 2"),
        ({"device_map": {"m": "gpu"}}, "device_map of model 'm' must be an integer from 0 on, not 'gpu'"),
        ({"in_tensor_names": ["z"]}, "in_tensor_names lacks 'x', which pre_processor_map of model 'm' names"),
        ({"out_tensor_names": ["z"]}, "out_tensor_names has 'z'; inference_map has 'y'"),
        ({"is_engine_path": True}, "is_engine_path=True is not supported.*Give the ONNX file"),
        ({"enable_fp16": True}, "enable_fp16=True needs backend 'trt'"),
        (
            {"backend": "trt", "enable_fp16": True, "infer_on_cpu": True},
            "needs backend 'trt' and infer_on_cpu=False",
        ),
        ({"dla_core": -2}, "'dla_core' of .* must be at least -1, not -2"),
        ({"dla_core": 0}, "model 'm' is to run on DLA core 0. That needs backend 'trt'"),
        ({"backend": "trt", "dla_core_map": {"m": 1}, "dla_gpu_fallback": False}, "dla_gpu_fallback=True"),
        ({"trt_opt_profile": {"n": "1,2,3"}}, "trt_opt_profile has a model 'n'"),
        ({"infer_on_cpu": 1}, "parameter 'infer_on_cpu' of InferenceOp 'inference' must be a bool"),
        ({"temporal_map": 3}, "parameter 'temporal_map' of InferenceOp 'inference' must be a dict"),
        ({"temporal": 3}, "has no parameter 'temporal'.*did you mean 'temporal_map'"),
    ],
)
def test_a_parameter_that_cannot_be_honoured_is_refused(
    tmp_path: Path, wrong: dict[str, Any], what: str
) -> None:
    given = {**one_model(models.scaling(tmp_path)), **wrong}
    with pytest.raises(ParameterError, match=f"(?s){what}"):
        inference([values(1, 2, 3)], **given)


def test_two_models_cannot_send_one_tensor(tmp_path: Path) -> None:
    path = models.scaling(tmp_path)
    with pytest.raises(ParameterError, match="the tensor 'y' of model 'a' and of model 'b'"):
        inference(
            [values(1, 2, 3)],
            model_path_map={"a": path, "b": path},
            pre_processor_map={"a": ["x"], "b": ["x"]},
            inference_map={"a": ["y"], "b": ["y"]},
        )


@pytest.mark.parametrize(
    ("inputs", "outputs", "what"),
    [
        (
            ["x", "z"],
            ["y"],
            r"pre_processor_map names 2 tensors for model 'm', which has 1 inputs: 'x' \(float32 \(n, 3\)\)",
        ),
        (
            ["x"],
            [],
            r"inference_map names 0 tensors for model 'm', which has 1 outputs: 'y' \(float32 \(n, 3\)\)",
        ),
    ],
)
def test_the_maps_must_name_all_inputs_and_outputs(
    tmp_path: Path, inputs: Any, outputs: Any, what: str
) -> None:
    with pytest.raises(RuntimeError, match=f"operator 'inference': {what}"):
        inference([values(1, 2, 3)], **one_model(models.scaling(tmp_path), inputs, outputs))


def test_a_file_that_cannot_be_loaded_is_an_error_of_the_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="operator 'inference': model 'm': .*nowhere.onnx does not exist"):
        inference([values(1, 2, 3)], **one_model(str(tmp_path / "nowhere.onnx")))


@pytest.mark.parametrize("profile", [{"m": ["1,2,4"]}, {"m": "1,2,4"}, {"m": [1, 2, 4]}, [1, 2, 4]])
def test_a_profile_limits_dynamic_extents(tmp_path: Path, profile: Any) -> None:
    path = models.scaling(tmp_path)
    (sent,) = inference([np.ones((4, 3), np.float32)], **one_model(path), trt_opt_profile=profile)
    assert sent["y"].shape == (4, 3)
    with pytest.raises(
        RuntimeError, match=r"'x' is \(5, 3\), and trt_opt_profile allows 1 to 4 where it has 5"
    ):
        inference([np.ones((5, 3), np.float32)], **one_model(path), trt_opt_profile=profile)


@pytest.mark.parametrize(
    ("profile", "what"),
    [
        (
            ["1,2"],
            r"must be min,opt,max for each dynamic extent of input 'x': it is float32 \(n, 3\), so 3 numbers",
        ),
        (["1,2,4", "1"], "must be a list with one text for each input"),
        (["4,2,1"], "4,2,1 must be min <= opt <= max"),
        (["a,b,c"], "must be min,opt,max"),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path: Path, profile: Any, what: str) -> None:
    with pytest.raises(ParameterError, match=f"trt_opt_profile of model 'm'.*{what}"):
        inference([values(1, 2, 3)], **one_model(models.scaling(tmp_path)), trt_opt_profile={"m": profile})


def test_parameters_may_come_from_a_file(tmp_path: Path) -> None:
    path = models.scaling(tmp_path)
    config = tmp_path / "app.yaml"
    config.write_text(
        f"""
inference:
  backend: "onnxrt"
  model_path_map: {{m: "{path}"}}
  pre_processor_map: {{m: ["x"]}}
  inference_map: {{m: ["y"]}}
  temporal_map: {{m: "2"}}
  transmit_on_cuda: true
"""
    )

    def compose(app: Any) -> None:
        app.config(str(config))
        app.operator = InferenceOp(app, name="net", allocator=None, **app.kwargs("inference"))
        app.taken = []
        app.add_flow(source(app, [{"x": values(1, 2, 3)}]), app.operator, {("out", "receivers")})
        app.add_flow(app.operator, sink(app, app.taken), {("transmitter", "in")})

    from tests.harness import run, sink, source

    assert np.asarray(run(compose).taken[0]["y"]).tolist() == [[2, 4, 6]]
