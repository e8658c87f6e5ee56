"""What the process of a part is started with: the program, its variables, GPUs and cores, and files of its own.

Every option of ``headrace run`` is a variable, which the process inherits, but for those that the driver takes care
of for all parts. A file that each process would write gets the name of the part: ``run.mcap`` becomes
``run.edge.mcap``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from headrace.core.errors import GraphError
from headrace.core.run_files import PART_RESTARTS

SPANNING = (
    "HEADRACE_TRACK",
    "HEADRACE_TRACE",
    "HEADRACE_METRICS",
    "HEADRACE_OTEL",
)
"""The variables that ask the driver to watch all parts, and nobody else."""
DASHBOARD = "HEADRACE_DASHBOARD"
BLAS_SPIN = "OPENBLAS_THREAD_TIMEOUT", "16"
"""The variable for the threads of NumPy's OpenBLAS, which spin after each call, and when NumPy is imported.

They do so for 2**26 ticks, up to a tenth of a second, unless this says otherwise. Processes that share cores would
take them from each other.
"""


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


def environment_of(
    part: str,
    environment: Mapping[str, str],
    ports: Mapping[str, Sequence[tuple[str, str]]],
    restarts: int = 0,
) -> dict[str, str]:
    """Return the variables of the process of a part.

    Parameters
    ----------
    environment
        Those of the driver.
    ports
        The operators and ports of each part.
    restarts
        How often the part was started again.
    """
    found = dict(environment)
    for name in ("HEADRACE_LOG", "HEADRACE_RECORD_PORTS"):
        if found.get(name):
            found[name] = ",".join(_patterns(found[name], part, ports))
            if not found[name] and name == "HEADRACE_RECORD_PORTS":  # there is nothing to record
                found["HEADRACE_RECORD"] = ""
    if found.get("HEADRACE_RECORD"):
        found["HEADRACE_RECORD"] = _own_file(found["HEADRACE_RECORD"], part)
    if ":" in found.get(DASHBOARD, ""):  # the port is that of the driver's page
        found[DASHBOARD] = f"{found[DASHBOARD].rpartition(':')[0]}:0"
    found["HEADRACE_PART"], found[PART_RESTARTS] = part, str(restarts)
    found["HEADRACE_PROGRESS"] = "0"  # one terminal has room for one line
    return found


def visible(environment: Mapping[str, str], gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that show a process these GPUs alone."""
    seen = [each.strip() for each in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    found = {
        "CUDA_VISIBLE_DEVICES": ",".join(seen[each] if seen else str(each) for each in gpus),
        "HEADRACE_SIM_DEVICES": str(max(len(gpus), 1)),
    }
    if not gpus:
        found["HEADRACE_DEVICE"] = "none"
    return found


def gpus_for(wanted: Iterable[int | Sequence[int] | None]) -> list[int]:
    """Return the numbers of the GPUs of this host, if somebody wants some."""
    if all(each is None for each in wanted):
        return []
    from headrace import gpu

    return list(range(len(gpu.Device.get_all_devices())))


def _patterns(text: str, part: str, ports: Mapping[str, Sequence[tuple[str, str]]]) -> list[str]:
    """Return the patterns that name ports of a part; the first part gets those that name none, and says so."""
    from headrace.observe.recordings.carriers import matches, parse_patterns

    def names(pattern: str, part: str) -> bool:
        return any(matches(pattern, *port) for port in ports[part])

    return [
        pattern
        for pattern in parse_patterns(text)
        if names(pattern, part)
        or (part == next(iter(ports)) and not any(names(pattern, each) for each in ports))
    ]


def _own_file(name: str, part: str) -> str:
    path = PurePath(name)
    suffixes = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    return f"{name.removesuffix(suffixes)}.{part}{suffixes}"


def assign(
    what: str, wanted: Mapping[str, int | Sequence[int] | None], there: Sequence[int]
) -> dict[str, Any]:
    """Assign to each part the GPUs or cores that it asks for by number or by a count; None for what asks for none.

    Those that are named may be shared. Those that are counted are not: each part gets its own, of the rest.
    """
    named = {each for asked in wanted.values() if isinstance(asked, Sequence) for each in asked}
    free = [each for each in there if each not in named]
    found: dict[str, Any] = {}
    for part, asked in wanted.items():
        if asked is None:
            found[part] = None
            continue
        if isinstance(asked, Sequence):
            missing = [each for each in asked if each not in there]
            if missing:
                raise GraphError(
                    f"fragment {part!r} asks for {what}={list(asked)}, and there is no {missing[0]}; there are "
                    f"{list(there)}"
                )
            found[part] = list(asked)
            continue
        if asked > len(free):
            counts = sum(each for each in wanted.values() if isinstance(each, int))
            raise GraphError(
                f"fragment {part!r} asks for {what}={asked}, and {len(free)} are left of {len(there)}: the "
                f"fragments ask for {counts} of their own; they share those that they name, as in {what}=[0]"
            )
        found[part], free = free[:asked], free[asked:]
    return found
