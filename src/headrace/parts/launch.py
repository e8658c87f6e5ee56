"""Launch: how the process of a part runs the same program as the driver."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import GraphError


@dataclass(frozen=True, slots=True)
class Launch:
    """A program: a file or a module, the application class that the command names, and the arguments."""

    name: str
    class_name: str
    arguments: tuple[str, ...]
    is_module: bool = False
    """Whether the name is that of a module, also if there is a file or a folder of that name."""

    @classmethod
    def of(cls, program: tuple[str, str, tuple[str, ...]] | None) -> Launch:
        """Return how to start what the command executes, or what the interpreter was started with (None)."""
        if program is not None:
            return cls(*program)
        main: Any = sys.modules["__main__"]
        spec, arguments = getattr(main, "__spec__", None), tuple(sys.argv[1:])
        if spec is not None and spec.name != "__main__":  # python -m; a folder has a specification, too
            return cls(spec.name, "", arguments, is_module=True)
        return cls(_file_of(main), "", arguments)


def _file_of(main: Any) -> str:
    file = getattr(main, "__file__", None)
    if file is None or not os.path.exists(file):
        raise GraphError(
            "run(processes=True): each process executes the program anew, so it must be a file or a module; "
            "this one was typed into an interpreter or a notebook, or is in an archive. Save it as plant.py, "
            "and call headrace run plant.py --processes"
        )
    return str(file)
