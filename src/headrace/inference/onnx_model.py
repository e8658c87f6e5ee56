"""OnnxModel: an ONNX file that ONNX Runtime runs, on the CPU or on a GPU.

**Providers.** The order is that of preference: TensorRT if it was asked for, CUDA, the CPU. A build of ONNX Runtime
lists the providers that it was compiled with; whether their libraries can be loaded shows when a session is made.
So each list is tried, and what a session really uses is compared with what was wanted.

**On the CPU** `InferenceSession.run` reads NumPy arrays in place and returns memory of its own without copying it,
sooner than through an I/O binding, which is used only where the caller has the memory for the results.

**On a GPU** the session is made with the operator's stream (``user_compute_stream``), and inputs and outputs are
bound by address, so nothing is copied. A run would end with a wait for the stream; a run option turns that off.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from headrace.gpu import StreamHandle
from headrace.inference.model import Extent, InferenceError, Model, ModelOptions, TensorSpec
from headrace.lazy import import_or_explain
from headrace.tensor import Tensor

TENSORRT = "TensorrtExecutionProvider"
CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"

Providers = list[tuple[str, dict[str, Any]]]

_told: set[str] = set()


def providers(
    available: Collection[str], options: ModelOptions, wants_tensorrt: bool, path: Path
) -> list[Providers]:
    """Return the lists of providers to try, the best first."""
    cpu: Providers = [(CPU, {})]
    if not options.on_gpu:
        return [cpu]
    shared = {"device_id": str(options.device_id)}
    if options.stream is not None:
        shared["user_compute_stream"] = str(int(options.stream))
    cuda: Providers = [(CUDA, shared)] if CUDA in available else []
    tried = [[*cuda, *cpu], cpu] if cuda else [cpu]
    if wants_tensorrt and TENSORRT in available:
        tried.insert(0, [(TENSORRT, shared | _tensorrt(options, path)), *cuda, *cpu])
    return tried


def check_tensorrt_options(name: str, options: ModelOptions, has_tensorrt: bool) -> None:
    """Raise for options that mean nothing without TensorRT and change where a model runs."""
    if options.dla_core >= 0 and not has_tensorrt:
        raise InferenceError(
            f"model {name!r}: dla_core={options.dla_core} needs TensorRT, which ONNX Runtime does not have here; "
            "install a build of it with TensorRT, or leave dla_core at -1"
        )


def profile_options(
    inputs: Sequence[TensorSpec], profile: Sequence[Sequence[tuple[int, int, int]]]
) -> dict[str, str]:
    """Return TensorRT's options for the least, usual and greatest shape of each input."""
    texts: list[list[str]] = [[], [], []]
    for spec, triples in zip(inputs, profile, strict=True):
        for which, text in enumerate(texts):
            given = iter(triples)
            extents = [
                extent if isinstance(extent, int) else next(given)[which] for extent in spec.shape or ()
            ]
            text.append(f"{spec.name}:{'x'.join(map(str, extents))}")
    names = ("trt_profile_min_shapes", "trt_profile_opt_shapes", "trt_profile_max_shapes")
    return {name: ",".join(text) for name, text in zip(names, texts, strict=True)}


def tell_once(text: str) -> None:
    """Log a warning, the first time in this process that there is this one to log."""
    if text not in _told:
        _told.add(text)
        logging.getLogger("headrace.inference").warning("%s", text)


def _tensorrt(options: ModelOptions, path: Path) -> dict[str, Any]:
    chosen = {
        # As the reference does: the engine lies beside the model, and is built once.
        "trt_engine_cache_enable": "True",
        "trt_engine_cache_path": str(path.resolve().parent),
        "trt_fp16_enable": str(options.fp16),
    }
    if options.dla_core >= 0:
        chosen |= {"trt_dla_enable": "True", "trt_dla_core": str(options.dla_core)}
    return chosen


_DTYPES = {
    "float16": "float16",
    "float": "float32",
    "double": "float64",
    **{
        name: name
        for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}
_FATAL = 4  # the severity from which ONNX Runtime prints; what is raised need not be printed too


class OnnxModel(Model):
    """A model that ONNX Runtime runs."""

    returns_own_memory = False

    def __init__(self, path: Path, name: str, options: ModelOptions, wants_tensorrt: bool) -> None:
        self._runtime = import_onnxruntime(options.on_gpu)
        self.path = path
        self.name = name
        self._session: Any = self._open(options, wants_tensorrt)
        found = self._session.get_providers()
        self.runtime = f"ONNX Runtime ({found[0]})"
        self.device_id = options.device_id if found[0] in (TENSORRT, CUDA) else None
        self._report(found, options, wants_tensorrt)
        self.inputs = tuple(self._spec(node, "input") for node in self._session.get_inputs())
        self.outputs = tuple(self._spec(node, "output") for node in self._session.get_outputs())
        self._input_names = [spec.name for spec in self.inputs]
        self._output_names = [spec.name for spec in self.outputs]
        self._binding = self._session.io_binding()
        self._run_options = self._runtime.RunOptions()
        if self.device_id is not None:
            self._run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        # Extents of one name may differ all the same. The first run on the GPU shows whether they do.
        self._names_hold: bool | None = None

    # Loading.

    def _open(self, options: ModelOptions, wants_tensorrt: bool) -> Any:
        available = self._runtime.get_available_providers()
        tried = providers(available, options, wants_tensorrt, self.path)
        check_tensorrt_options(self.name, options, tried[0][0][0] == TENSORRT)
        if options.profile and tried[0][0][0] == TENSORRT:
            tried[0][0][1].update(profile_options(self._read_inputs(), options.profile))
        refusals: list[str] = []
        for candidates in tried:
            wanted = candidates[0][0]
            try:
                session = self._session_with(candidates)
            # The runtime raises various types; the CPU, which comes last, shows whether it is the model.
            except Exception as error:
                if wanted == CPU:
                    raise InferenceError(
                        f"model {self.name!r}: ONNX Runtime cannot load {self.path}: {_one_line(error)}"
                    ) from error
                refusals.append(f"{wanted}: {_one_line(error)}")
                continue
            if session.get_providers()[0] == wanted:
                break
            refusals.append(f"{wanted}: its libraries could not be loaded")
        if refusals and wanted == CPU:
            tell_once(f"model {self.name!r} runs on the CPU ({'; '.join(refusals)})")
        return session

    def _session_with(self, candidates: Providers) -> Any:
        settings = self._runtime.SessionOptions()
        settings.log_severity_level = _FATAL
        return self._runtime.InferenceSession(
            str(self.path),
            settings,
            providers=candidates,
            enable_fallback=0,  # it would print, and retry without TensorRT and CUDA
        )

    def _read_inputs(self) -> tuple[TensorSpec, ...]:
        """Return the inputs of the model, of which TensorRT must be told the shapes before a session is made."""
        session = self._session_with([(CPU, {})])
        return tuple(self._spec(node, "input") for node in session.get_inputs())

    def _report(self, found: list[str], options: ModelOptions, wants_tensorrt: bool) -> None:
        """Log, once, what runs models in place of what was asked for."""
        if wants_tensorrt and found[0] != TENSORRT:
            why = "TensorRT is not available" if options.on_gpu else "no GPU is used"
            half = "; enable_fp16 has no effect" if options.fp16 else ""
            tell_once(f"backend 'trt' runs on {self.runtime}: {why}{half}")
        elif options.on_gpu and self.device_id is None:
            tell_once(
                f"backend 'onnxrt' runs on {self.runtime}: this ONNX Runtime has no CUDA; "
                "install onnxruntime-gpu in place of onnxruntime"
            )

    def _spec(self, node: Any, kind: str) -> TensorSpec:
        import numpy as np

        try:
            name, extents = node.name, tuple(map(_extent, node.shape))
        except UnicodeDecodeError as error:
            raise InferenceError(
                f"model {self.name!r}: the name of an {kind} of {self.path}, or of one of its extents, is not UTF-8"
            ) from error
        element = node.type.removeprefix("tensor(").removesuffix(")")
        if not node.type.startswith("tensor(") or element not in _DTYPES:
            raise InferenceError(
                f"model {self.name!r}: its {kind} {name!r} is a {node.type}; a message holds tensors of "
                "numbers or booleans"
            )
        return TensorSpec(name, np.dtype(_DTYPES[element]), extents)

    # Running.

    def run_on_host(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> list[Any]:
        """Run on NumPy arrays; see :meth:`Model.run_on_host`."""
        if outputs is None:
            feeds = dict(zip(self._input_names, inputs, strict=True))
            results: list[Any] = self._session.run(self._output_names, feeds, self._run_options)
            return results
        binding = self._binding
        for name, array in zip(self._input_names, inputs, strict=True):
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in zip(self._output_names, outputs, strict=True):
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        self._session.run_with_iobinding(binding, self._run_options)
        return list(outputs)

    def run_on_device(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None], stream: StreamHandle
    ) -> list[Any]:
        """Submit a run on the GPU; see :meth:`Model.run_on_device`."""
        binding, device_id = self._binding, self.device_id
        for spec, tensor in zip(self.inputs, inputs, strict=True):
            binding.bind_input(spec.name, "cuda", device_id, _type(spec), tensor.shape, tensor.data)
        for spec, target in zip(self.outputs, outputs, strict=True):
            if target is None:  # bound anew each time: the runtime would write to the memory of the last run
                binding.bind_output(spec.name, "cuda", device_id)
            else:
                binding.bind_output(spec.name, "cuda", device_id, _type(spec), target.shape, target.data)
        self._session.run_with_iobinding(binding, self._run_options)
        if None not in outputs:
            return list(outputs)
        values = binding.get_outputs()
        if self._names_hold is None:
            shapes = super().output_shapes([tensor.shape for tensor in inputs])
            self._names_hold = all(
                shape is None or shape == tuple(value.shape())
                for shape, value in zip(shapes, values, strict=True)
            )
        return [
            value._ortvalue if target is None else target
            for value, target in zip(values, outputs, strict=True)
        ]

    def output_shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...] | None]:
        """Return the shapes of the outputs where they are certain; see :meth:`Model.output_shapes`."""
        found = super().output_shapes(shapes)
        if self._names_hold or self.device_id is None:
            return found
        return [None if spec.is_dynamic else shape for spec, shape in zip(self.outputs, found, strict=True)]

    def close(self) -> None:
        """Release the session."""
        self._binding = self._session = None


def import_onnxruntime(on_gpu: bool = False) -> Any:
    """Import ONNX Runtime; the error names what to install."""
    is_first = "onnxruntime" not in sys.modules
    onnxruntime = import_or_explain(
        "onnxruntime", "inference", "to run ONNX models, and onnxruntime-gpu for a GPU"
    )
    if is_first:
        # A program that imported it itself may have chosen what it prints.
        onnxruntime.set_default_logger_severity(_FATAL)
        if on_gpu and hasattr(onnxruntime, "preload_dlls"):
            with redirect_stdout(StringIO()):  # it prints what it does not find
                onnxruntime.preload_dlls()
    return onnxruntime


def _extent(entry: Any) -> Extent:
    if isinstance(entry, int):
        return entry if entry >= 0 else None
    return entry or None


def _type(spec: TensorSpec) -> Any:
    assert spec.dtype is not None
    return spec.dtype.type


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
