"""Where the examples and the benchmarks are: in the checkout, or beside the package where a wheel was installed.

How a missing library is installed: the one place that knows, for every error that tells it.

headrace is not on a package index yet. Where it is installed, pip takes the extra from what is there and never
looks for the name; in a checkout the name would lead to whoever has it on an index.
"""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def in_checkout() -> bool:
    """Return whether this package is the one of a checkout."""
    return _PACKAGE.parent.name == "src" and (_CHECKOUT / "pyproject.toml").is_file()


def bundled(folder: str) -> Path:
    """Return the folder ``examples`` or ``benchmarks``; FileNotFoundError where neither is."""
    found = (_CHECKOUT if in_checkout() else _PACKAGE / "_bundled") / folder
    if not found.is_dir():
        raise FileNotFoundError(f"this installation of headrace has no {folder}: {found} is missing")
    return found


def environment() -> dict[str, str]:
    """Return the variables for a program that imports from there, with this package before any other."""
    here = [str(bundled("benchmarks").parent), str(_PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, here))}


def installing(*extras: str) -> str:
    """Return the command that installs extras, for the end of an error message."""
    wanted = f"[{','.join(extras)}]"
    return (
        f"pip install '.{wanted}' in a checkout of headrace"
        if in_checkout()
        else f"pip install 'headrace{wanted}'"
    )
