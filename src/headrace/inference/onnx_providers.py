"""Which execution providers of ONNX Runtime a model is loaded with, and with which options.

The order is that of preference: TensorRT if it was asked for, CUDA, the CPU. A build of ONNX Runtime lists the
providers that it was compiled with; whether their libraries can be loaded shows when a session is made. So each
list is tried, and what a session really uses is compared with what was wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from headrace.inference.errors import InferenceError
from headrace.inference.model import ModelOptions
from headrace.inference.tensor_spec import TensorSpec

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
