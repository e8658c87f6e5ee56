"""What a program needs, said in one line where it is not there."""

import importlib
import os
import sys
from pathlib import Path

from penstock import gpu


def needs(*modules: str, a_gpu: bool = False, remedy: str = "") -> None:
    """Leave the program, with one line that says why and what helps, where it has not got what it needs.

    Called before the work: a program that fails for want of a table when it has measured for a minute has measured
    for nothing.
    """
    if a_gpu:
        os.environ.setdefault("PENSTOCK_DEVICE", "cuda")  # so that nothing is simulated instead
    try:
        if a_gpu and gpu.backend() != "cuda":
            raise gpu.DeviceUnavailable(f"PENSTOCK_DEVICE={os.environ['PENSTOCK_DEVICE']}")
        for module in modules:
            importlib.import_module(module)
    except (gpu.DeviceUnavailable, ImportError) as error:
        wanted = "a GPU" if isinstance(error, gpu.DeviceUnavailable) else module
        print(f"{Path(sys.argv[0]).name} needs {wanted}: {error}{remedy and f'; {remedy}'}", file=sys.stderr)
        raise SystemExit(2) from None
