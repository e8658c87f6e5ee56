"""Launch: how the process of a part runs the same program as the driver."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from headrace.cli.program import Program
from headrace.core.errors import GraphError


@dataclass(frozen=True, slots=True)
class Launch:
    """A program and its arguments."""

    program: Program
    arguments: tuple[str, ...]
    as_holoscan: bool = False

    @classmethod
    def of_this_process(cls) -> Launch:
        """Return how the program of this process was started; raise if it cannot be started again."""
        aliases = sys.modules.get("headrace.compat.holoscan.alias")
        as_holoscan = aliases is not None and any(isinstance(each, aliases._Finder) for each in sys.meta_path)
        if Program.executed is not None:  # by `headrace run`
            program, arguments = Program.executed
            return cls(program, tuple(arguments), as_holoscan)
        return cls(_main_program(), tuple(sys.argv[1:]), as_holoscan)


def _main_program() -> Program:
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        name = spec.name
        return Program(name.removesuffix(".__main__"))
    file = getattr(main, "__file__", None)
    if file is None or not os.path.exists(file):
        raise GraphError(
            "run(processes=True): each process runs the program anew, so the program must be a file or a module; "
            "this one was typed into an interpreter or a notebook. Save it as plant.py, and call headrace run "
            "plant.py --processes"
        )
    return Program(file)
