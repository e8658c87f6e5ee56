"""Leave a program with one line that says what it lacks."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from headrace import gpu
from headrace.installation import installing

# What brings a library: an extra of headrace, or a distribution of another name.
EXTRAS = {"cupy": "cupy", "torch": "torch", "cv2": "operators", "aiohttp": "view"}
EXTRAS |= dict.fromkeys(("rich", "matplotlib", "PIL", "onnx", "onnxruntime"), "demo")
DISTRIBUTIONS = {"numba": "numba-cuda", "cvcuda": "cvcuda-cu13", "cucim": "cucim-cu13"}


def needs(*modules: str, a_gpu: bool = False) -> None:
    """Exit with status 2 and one line on stderr if a module or the GPU is missing.

    Call this before any work is done, so that a missing plotting library does not cost a minute of measuring.
    """
    if a_gpu:
        os.environ.setdefault("HEADRACE_DEVICE", "cuda")  # do not fall back to the simulated device
    try:
        if a_gpu and gpu.backend() != "cuda":
            raise gpu.DeviceUnavailable(f"HEADRACE_DEVICE={os.environ['HEADRACE_DEVICE']}")
        for module in modules:
            importlib.import_module(module)
    except gpu.DeviceUnavailable as error:
        _leave(f"a GPU: {error}")
    except ImportError as error:
        library = module.partition(".")[0]
        extra = EXTRAS.get(library)
        remedy = installing(extra) if extra else f"pip install {DISTRIBUTIONS.get(library, library)}"
        _leave(f"{module}: {error}; {remedy}")


def _leave(what: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name} needs {what}", file=sys.stderr)
    raise SystemExit(2)
