"""What a compute has in its variables, for an operator that asks for its first stream late (`NodeStreams`).

It is read from the frames of the functions that led here, from the innermost out. Those of `penstock.runtime` are
passed over, as many as there are: compiled, they have none. The walk ends where a run calls down into them: those
modules are never compiled, so that the end is there in either build, and whatever a compute is written in.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

__all__ = ["variables_of_compute"]

_PACKAGE = "penstock."
_OURS = "penstock.runtime."
_ENDS = ("penstock.schedulers.", "penstock.runtime.lifecycle", "penstock.runtime.threads")


def variables_of_compute() -> list[dict[str, Any]]:
    """Return the variables of the program's functions that led here, and of their modules, up to the scheduler."""
    found: list[dict[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_ENDS):
            break
        if not module.startswith(_OURS):
            found.append(dict(frame.f_locals))
            if not module.startswith(_PACKAGE) and all(frame.f_globals is not known for known in found):
                found.append(frame.f_globals)
        frame = frame.f_back
    return found
