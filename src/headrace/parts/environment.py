"""The environment of the process of a part: its GPUs, its cores, and files of its own.

Every option of ``headrace run`` is a variable, which the process inherits. A file that each process would write
gets the name of the part: ``trace.json`` becomes ``trace.edge.json``. What belongs to a whole program is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from headrace.core.errors import GraphError

_FILES = (
    "HEADRACE_TRACK",
    "HEADRACE_TRACE",
    "HEADRACE_RECORD",
    "HOLOSCAN_FLOW_TRACKING_LOG_FILE",
    "HOLOSCAN_GXF_JOB_STATISTICS_PATH",
)
_SERVERS = ("HEADRACE_DASHBOARD", "HEADRACE_METRICS")


def check_options(environment: Mapping[str, str]) -> None:
    """Raise for an option that means nothing for a program in several processes."""
    if environment.get("HEADRACE_REPLAY"):
        raise GraphError(
            "HEADRACE_REPLAY: a recording is replayed in one process; leave out --processes, or --replay"
        )
    for name in _SERVERS:
        given = environment.get(name, "")
        port = given.rpartition(":")[2] if ":" in given else "0"
        if port != "0":
            raise GraphError(
                f"{name}={given}: each process serves a page of its own, so they cannot share a port; leave out "
                "the port, and each one prints its address"
            )


def environment_of(
    part: str,
    environment: Mapping[str, str],
    gpus: Sequence[int] | None,
    ports: Mapping[str, Sequence[tuple[str, str]]],
) -> dict[str, str]:
    """Return the variables of the process of a part.

    Parameters
    ----------
    gpus
        The GPUs of the driver that it may use; None for all.
    ports
        The operators and ports of each part.
    """
    found = dict(environment)
    for name in ("HEADRACE_LOG", "HEADRACE_RECORD_PORTS"):
        if found.get(name) and not (chosen := _patterns(found[name], part, ports)):
            del found[name]
            found.pop("HEADRACE_RECORD" if name == "HEADRACE_RECORD_PORTS" else "", None)
        elif found.get(name):
            found[name] = ",".join(chosen)
    for name in _FILES:
        value = found.get(name, "")
        if PurePath(value).suffix or (value and name != "HEADRACE_TRACK"):
            found[name] = _own_file(value, part)
    found["HEADRACE_PART"] = part
    found["HEADRACE_PROGRESS"] = "0"  # one terminal has room for one line
    if gpus is not None:
        visible = [each.strip() for each in found.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
        found["CUDA_VISIBLE_DEVICES"] = ",".join(visible[each] if visible else str(each) for each in gpus)
        found["HEADRACE_SIM_DEVICES"] = str(max(len(gpus), 1))
        if not gpus:
            found["HEADRACE_DEVICE"] = "none"
    return found


def _patterns(text: str, part: str, ports: Mapping[str, Sequence[tuple[str, str]]]) -> list[str]:
    """Return the patterns that name ports of a part; the first part gets those that name none, and says so."""
    from headrace.observe.recordings.ports import matches, parse_patterns

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
