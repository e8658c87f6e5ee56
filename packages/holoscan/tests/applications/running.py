"""Run a program that was written for the Holoscan SDK, in this process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.cli import main
from headrace_holoscan import lenience
from headrace_holoscan.alias import uninstall
from tests.harness.libraries import fresh_registry
from tests.harness.logs import logging_of_a_program

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
STAND_INS = {
    name: HERE / "stand_ins" / f"of_{name}"
    for name in ("cupy", "monai")
    if importlib.util.find_spec(name) is None
}


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
    """Run a program as ``headrace run PROGRAM -- ARGUMENTS``.

    CuPy and the MONAI Deploy App SDK are the real ones where they are installed, and otherwise stand-ins.

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
        if "cupy" in STAND_INS:
            fresh_registry(patch)
        for place in STAND_INS.values():
            patch.syspath_prepend(str(place))
        known = set(sys.modules)
        lenience.forget()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
                warnings.simplefilter("default")  # as in a program: a warning is no error
                status = main(["run", str(path), "--", *map(str, arguments)])
        finally:
            uninstall()
            for name in set(sys.modules) - known:
                library = name.removeprefix("headrace.tensor.libraries.").partition(".")[0]
                if library in STAND_INS:
                    del sys.modules[name]
    return Ended(status, out.getvalue().splitlines(), err.getvalue(), folder)
