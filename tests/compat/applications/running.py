"""Run a program that was written for the Holoscan SDK, in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli import main
from headrace.compat.holoscan import lenience
from headrace.compat.holoscan.alias import uninstall
from tests.harness.libraries import fresh_registry
from tests.harness.logs import logging_of_a_program

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
STAND_INS = HERE / "stand_ins"
HAS_CUPY = importlib.util.find_spec("cupy") is not None


@dataclass
class Ended:
    """How a program ended, and what it left."""

    status: int
    printed: list[str]
    errors: str
    folder: Path

    def picture(self) -> np.ndarray:
        """Return the last picture that HolovizOp showed, as RGB."""
        from PIL import Image

        return np.asarray(Image.open(self.folder / "view.png").convert("RGB"))


def run_program(program: str | Path, *arguments: object, folder: Path, **variables: Any) -> Ended:
    """Run a program as ``headrace run --as-holoscan PROGRAM -- ARGUMENTS``.

    CuPy is the real one where it is installed; elsewhere `stand_ins/cupy`, which computes with NumPy.

    Parameters
    ----------
    program
        A file, or the name of one in `programs`.
    folder
        The current folder, where the last picture of HolovizOp goes.
    variables
        Environment variables.
    """
    path = Path(program) if os.sep in str(program) else PROGRAMS / f"{program}.py"
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, logging_of_a_program():
        patch.chdir(folder)
        for name, value in {"HEADRACE_VIEW": "view.png", "HEADRACE_PROGRESS": "0", **variables}.items():
            patch.setenv(name, str(value))
        if not HAS_CUPY:
            fresh_registry(patch)
            patch.syspath_prepend(str(STAND_INS))
        known = set(sys.modules)
        lenience.forget()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = main(["run", "--as-holoscan", str(path), "--", *map(str, arguments)])
        finally:
            uninstall()
            for name in set(sys.modules) - known:
                if not HAS_CUPY and (name.startswith("cupy") or name == "headrace.tensor.libraries.cupy"):
                    del sys.modules[name]
    return Ended(status, out.getvalue().splitlines(), err.getvalue(), folder)
