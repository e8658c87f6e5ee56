"""Models of ONNX Runtime, beside ONNX's own evaluator."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace.inference import InferenceError, ModelOptions, TensorSpec, load_model, onnx_model
from headrace.inference.onnx_model import CPU, CUDA, TENSORRT, profile_options, providers
from tests.harness.processes import run_python
from tests.inference import models

pytest.importorskip("onnxruntime")

DTYPES = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_number_passes(tmp_path: Path, dtype: str) -> None:
    names = {"float32": "FLOAT", "float64": "DOUBLE", "bool": "BOOL"}
    kind = names.get(dtype, dtype.upper())
    path = models.save(
        tmp_path / "same.onnx",
        [models.helper.make_node("Identity", ["x"], ["y"])],
        {"x": (kind, ["n"])},
        {"y": (kind, ["n"])},
    )
    model = load_model(path)
    array = np.array([0, 1, 1], dtype)
    (result,) = model.run_on_host([array])
    assert result.dtype == array.dtype
    assert result.tolist() == array.tolist()
    assert result.ctypes.data != array.ctypes.data
    target = np.zeros(3, dtype)
    model.run_on_host([array], [target])
    assert target.tolist() == array.tolist()


def test_results_are_written_where_the_caller_wants_them(tmp_path: Path) -> None:
    model = load_model(models.scaling(tmp_path))
    target = np.zeros((2, 3), np.float32)
    (result,) = model.run_on_host([np.ones((2, 3), np.float32)], [target])
    assert result is target
    assert target.tolist() == [[2, 2, 2]] * 2
    assert model.run_on_host([np.ones((2, 3), np.float32)])[0] is not target


def test_an_input_is_read_in_place_and_results_are_fresh(tmp_path: Path) -> None:
    model = load_model(models.scaling(tmp_path))
    frame = np.ones((2, 3), np.float32)
    held = []
    for number in range(10):
        frame[:] = number
        held += model.run_on_host([frame])
    assert [array[0, 0] for array in held] == [2.0 * number for number in range(10)]


def test_a_model_of_text_is_refused(tmp_path: Path) -> None:
    path = models.save(
        tmp_path / "text.onnx",
        [models.helper.make_node("Identity", ["x"], ["y"])],
        {"x": ("STRING", ["n"])},
        {"y": ("STRING", ["n"])},
    )
    with pytest.raises(
        InferenceError, match=r"model 'text': its input 'x' is a tensor\(string\); a message holds"
    ):
        load_model(path)


@pytest.mark.parametrize("first", ["", "import onnxruntime\n"])
def test_a_model_prints_nothing(tmp_path: Path, first: str) -> None:
    """A runtime may print warnings about its machine and about the model, and errors that it raises, too."""
    path = models.picking(tmp_path)
    program = (
        f"{first}import numpy as np\n"
        "from headrace.inference import load_model\n"
        f"model = load_model({path!r})\n"
        "try:\n    model.run_on_host([np.array([9])])\n"
        "except Exception as error:\n    print('raised')\n"
        "try:\n    model.run_on_host([np.array([9])], [np.zeros(1, np.float32)])\n"
        "except Exception as error:\n    print('raised')\n"
    )
    done = run_python("-c", program)
    assert (done.stdout, done.stderr) == ("raised\nraised\n", "")


# Which providers are chosen.


def names(tried: Any) -> list[list[str]]:
    return [[provider for provider, _ in candidates] for candidates in tried]


def test_providers_are_tried_from_the_best_on() -> None:
    here = Path("/models/net.onnx")
    everything = [TENSORRT, CUDA, CPU]
    on_gpu = ModelOptions(on_gpu=True)
    assert names(providers(everything, on_gpu, True, here)) == [[TENSORRT, CUDA, CPU], [CUDA, CPU], [CPU]]
    assert names(providers(everything, on_gpu, False, here)) == [[CUDA, CPU], [CPU]]
    assert names(providers([CUDA, CPU], on_gpu, True, here)) == [[CUDA, CPU], [CPU]]
    assert names(providers([CPU], on_gpu, True, here)) == [[CPU]]
    assert names(providers(everything, ModelOptions(), True, here)) == [[CPU]]


def test_the_options_of_providers_name_stream_device_and_engine() -> None:
    from headrace.gpu import StreamHandle

    stream = StreamHandle(SimpleNamespace(__cuda_stream__=lambda: (0, 4711)))
    options = ModelOptions(True, 2, stream, fp16=True, dla_core=1)
    ((_, tensorrt), (_, cuda), _), *_ = providers(
        [TENSORRT, CUDA, CPU], options, True, Path("/models/net.onnx")
    )
    assert cuda == {"device_id": "2", "user_compute_stream": "4711"}
    assert tensorrt == {
        "device_id": "2",
        "user_compute_stream": "4711",
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": "/models",
        "trt_fp16_enable": "True",
        "trt_dla_enable": "True",
        "trt_dla_core": "1",
    }


def test_a_profile_becomes_the_shapes_of_tensorrt() -> None:
    inputs = [TensorSpec("x", None, ("n", 3, "h")), TensorSpec("y", None, (4,))]
    assert profile_options(inputs, [((1, 2, 4), (8, 16, 32)), ()]) == {
        "trt_profile_min_shapes": "x:1x3x8,y:4",
        "trt_profile_opt_shapes": "x:2x3x16,y:4",
        "trt_profile_max_shapes": "x:4x3x32,y:4",
    }


def test_backend_trt_says_once_what_it_runs_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_model, "_told", set())
    path = models.scaling(tmp_path)
    with caplog.at_level(logging.WARNING, "headrace.inference"):
        for _ in range(3):
            load_model(path, backend="trt")
    assert caplog.messages == ["backend 'trt' runs on ONNX Runtime (CPUExecutionProvider): no GPU is used"]


def test_a_dla_core_without_tensorrt_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="dla_core=0 needs TensorRT"):
        load_model(models.scaling(tmp_path), backend="trt", options=ModelOptions(on_gpu=True, dla_core=0))


# On a GPU, with a stand-in of the runtime that records what it is told.


class Session:
    """A session that runs nothing and records how it was made and what was bound."""

    made: ClassVar[list[Session]] = []
    refuses: tuple[str, ...] = ()

    def __init__(self, path: str, settings: Any, providers: Any, enable_fallback: int) -> None:
        if providers[0][0] in self.refuses:
            raise RuntimeError(f"no library for {providers[0][0]}")
        self.providers = providers
        self.bound: list[tuple[Any, ...]] = []
        self.runs: list[Any] = []
        Session.made.append(self)

    def get_providers(self) -> list[str]:
        return [name for name, _ in self.providers]

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", type="tensor(float)", shape=["n", 3])]

    def get_outputs(self) -> list[Any]:
        return [
            SimpleNamespace(name="y", type="tensor(float)", shape=["n", 3]),
            SimpleNamespace(name="k", type="tensor(int64)", shape=["found"]),
        ]

    def io_binding(self) -> Any:
        self.results = [
            SimpleNamespace(shape=lambda: [4, 3], _ortvalue="y"),
            SimpleNamespace(shape=lambda: [9], _ortvalue="k"),
        ]
        return SimpleNamespace(
            bind_input=lambda *what: self.bound.append(("in", *what)),
            bind_output=lambda *what: self.bound.append(("out", *what)),
            get_outputs=lambda: self.results,
        )

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        self.runs.append(options)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    import onnxruntime

    class RunOptions:
        def __init__(self) -> None:
            self.entries: dict[str, str] = {}

        def add_run_config_entry(self, key: str, value: str) -> None:
            self.entries[key] = value

    stand_in = SimpleNamespace(
        InferenceSession=Session,
        SessionOptions=onnxruntime.SessionOptions,
        RunOptions=RunOptions,
        get_available_providers=lambda: [TENSORRT, CUDA, CPU],
    )
    Session.made, Session.refuses = [], ()
    monkeypatch.setattr("headrace.inference.onnx_model.import_onnxruntime", lambda on_gpu: stand_in)
    monkeypatch.setattr(onnx_model, "_told", set())
    return stand_in


def device_tensor(shape: tuple[int, ...]) -> Any:
    return SimpleNamespace(shape=shape, data=0x1000 + shape[0])


@pytest.mark.usefixtures("runtime")
def test_on_a_gpu_addresses_are_bound_and_nothing_waits(tmp_path: Path) -> None:
    model = load_model(models.scaling(tmp_path), options=ModelOptions(on_gpu=True, device_id=1))
    (session,) = Session.made
    assert model.device_id == 1
    x = device_tensor((4, 3))
    assert model.output_shapes([x.shape]) == [None, None]  # a name may not hold what it promises
    assert model.run_on_device([x], [None, None], None) == ["y", "k"]  # type: ignore[arg-type]
    assert session.bound == [
        ("in", "x", "cuda", 1, np.float32, (4, 3), 0x1004),
        ("out", "y", "cuda", 1),
        ("out", "k", "cuda", 1),
    ]
    assert session.runs[0].entries == {"disable_synchronize_execution_providers": "1"}
    # It held what it promised in the first run, so the memory of others is written to from now on.
    assert model.output_shapes([x.shape]) == [(4, 3), None]
    session.bound.clear()
    y = device_tensor((5, 3))
    assert model.run_on_device([x], [y, None], None) == [y, "k"]  # type: ignore[arg-type]
    assert session.bound[1] == ("out", "y", "cuda", 1, np.float32, (5, 3), 0x1005)


@pytest.mark.usefixtures("runtime")
def test_names_that_did_not_hold_are_not_trusted(tmp_path: Path) -> None:
    model = load_model(models.scaling(tmp_path), options=ModelOptions(on_gpu=True))
    model.run_on_device([device_tensor((7, 3))], [None, None], None)  # type: ignore[arg-type]  # y came as (4, 3)
    assert model.output_shapes([(7, 3)]) == [None, None]


@pytest.mark.parametrize(
    ("refused", "runs_on", "told"),
    [
        ((), TENSORRT, []),
        (
            (TENSORRT,),
            CUDA,
            ["backend 'trt' runs on ONNX Runtime (CUDAExecutionProvider): TensorRT is not available"],
        ),
        (
            (TENSORRT, CUDA),
            CPU,
            [
                (
                    f"model 'net' runs on the CPU ({TENSORRT}: no library for {TENSORRT}; "
                    f"{CUDA}: no library for {CUDA})"
                ),
                (
                    "backend 'trt' runs on ONNX Runtime (CPUExecutionProvider): TensorRT is not available; "
                    "enable_fp16 has no effect"
                ),
            ],
        ),
    ],
)
@pytest.mark.usefixtures("runtime")
def test_a_provider_that_cannot_be_loaded_is_passed_over_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refused: Any, runs_on: str, told: list[str]
) -> None:
    Session.refuses = refused
    options = ModelOptions(on_gpu=True, fp16=CUDA in refused)
    with caplog.at_level(logging.WARNING, "headrace.inference"):
        model = load_model(models.scaling(tmp_path), backend="trt", name="net", options=options)
    assert model.runtime == f"ONNX Runtime ({runs_on})"
    assert caplog.messages == told


@pytest.mark.usefixtures("runtime")
def test_tensorrt_is_told_the_shapes_of_a_profile(tmp_path: Path) -> None:
    options = ModelOptions(on_gpu=True, profile=(((1, 2, 4),),))
    load_model(models.scaling(tmp_path), backend="trt", options=options)
    assert Session.made[-1].providers[0][1]["trt_profile_max_shapes"] == "x:4x3"
