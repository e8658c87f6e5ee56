"""Leave a program with one line that says what it lacks."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from headrace import gpu


def needs(*modules: str, a_gpu: bool = False, remedy: str = "") -> None:
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
    except (gpu.DeviceUnavailable, ImportError) as error:
        missing = "a GPU" if isinstance(error, gpu.DeviceUnavailable) else module
        print(f"{Path(sys.argv[0]).name} needs {missing}: {error}{remedy and f'; {remedy}'}", file=sys.stderr)
        raise SystemExit(2) from None
