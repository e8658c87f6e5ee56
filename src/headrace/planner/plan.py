"""A plan: which operators work on which slice of the GPU, share a stream, or are one captured segment; in a file.

`headrace plan` writes it, and people read and edit it. What it says is declared at the end of compose, with the
names that a program uses, so a plan can do nothing that a program could not say itself. It is checked first: the
device, the operators and the flows have to be those that it was made for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.brief import brief
from headrace.core.errors import ConfigError, GraphError, absent, choices
from headrace.gpu import PartitionError

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator

_KEYS = ("device", "operators", "slices", "shared_streams", "segments", "goals")


@dataclass(frozen=True)
class Plan:
    """What `headrace plan` decided for a program on a device.

    Attributes
    ----------
    device, sm_count
        The device that it was made for.
    operators
        The operators of the graph, each with those that it sends to.
    slices
        The operators of each slice, and its SMs: ``{"control": (16, ["sense", "decide"])}``.
    shared_streams, segments
        Operators that share a stream, and operators that are captured together.
    goals
        What it was made to reach, and what of it was predicted: ``{"control: p99 < 500us": 380000.0}``.
    expected
        The median time on the device of each operator in nanoseconds, for those that have one.
    """

    device: str
    sm_count: int
    operators: Mapping[str, Sequence[str]]
    slices: Mapping[str, tuple[int, Sequence[str]]] = field(default_factory=dict)
    shared_streams: Sequence[Sequence[str]] = field(default_factory=list)
    segments: Sequence[Sequence[str]] = field(default_factory=list)
    goals: Mapping[str, float] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan; raise ConfigError, which names the file and the place, for what is not one."""
    from headrace.core.config import load_yaml

    what = f"plan {os.fspath(path)!r}"
    try:
        text = Path(path).read_text(encoding="utf8")
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}; `headrace plan` writes one") from None
    try:
        return _plan(load_yaml(text, what), what)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from None


def apply_plan(plan: Plan, fragment: Composition, what: str = "the plan") -> None:
    """Declare what a plan says, in compose; raise GraphError if it was made for something else."""
    _check_graph(plan, fragment, what)
    _check_device(plan, what)
    find = fragment.graph.find
    placed = [name for _, names in plan.slices.values() for name in names]
    check_undivided(fragment.graph, fragment._headrace.green_contexts, placed, what)
    replicated = [name for name in placed if find(name)._headrace.replication.options is not None]
    if replicated:
        raise GraphError(f"{what} puts {choices(replicated)} on a slice, and workers= replicates it")
    try:
        _declare(plan, fragment)
    except (GraphError, PartitionError) as error:
        raise GraphError(f"{what}: {error}") from error


def _declare(plan: Plan, fragment: Composition) -> None:
    find = fragment.graph.find
    if plan.slices:
        from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool

        sizes = {name: sms for name, (sms, _) in plan.slices.items()}
        pool = CudaGreenContextPool(fragment, sms_per_partition=sizes, min_sm_size=1, name="planned_slices")
        fragment._headrace.green_contexts = pool if _leaves_some(pool) else None
        for name, (_, names) in plan.slices.items():
            part = CudaGreenContext(fragment, pool, name, name=f"planned_{name}")
            streams = CudaStreamPool(
                fragment, reserved_size=0, cuda_green_context=part, name=f"streams_of_{name}"
            )
            for each in names:
                find(each).add_arg(streams)
    for row in plan.shared_streams:
        fragment.share_stream(*map(find, row))
    for row in plan.segments:
        fragment._headrace.composition.capture(*map(find, row))  # type: ignore[attr-defined]


def check_undivided(graph: Graph, default: object, placed: Sequence[str], what: str) -> None:
    """Raise GraphError if the program itself says where operators work that `what` puts on slices.

    `default` is the pool of slices for operators without one, if the program has it.
    """
    own = [name for name in placed if _has_source(graph.find(name))]
    if own:
        raise GraphError(
            f"{what} puts {choices(own)} on a slice, and the program gives them pools or slices of their own; "
            "declare these in one place"
        )
    if placed and default is not None:
        raise GraphError(
            f"{what} divides the device, and the program has a default green context pool, which divides it, "
            "too; declare the slices in one place"
        )


def flows_of(graph: Graph) -> dict[str, list[str]]:
    """Return the operators of a composed graph, each with those that it sends to."""
    return {
        operator.name: list(dict.fromkeys(flow.target.name for flow in operator._headrace.outgoing))
        for operator in graph
    }


def write_plan(plan: Plan, reasons: Mapping[str, str], head: Iterable[str] = ()) -> str:
    """Return the text of a plan, with comments.

    `reasons` are those of slices, shared streams and segments, by the name of the slice or the first operator.
    """
    lines = [*(f"# {line}".rstrip() for line in head)]
    lines += [f"device: {{name: {_text(plan.device)}, sms: {plan.sm_count}}}"]
    lines += ["", "# What the plan was made to reach, and what is expected of it."]
    lines += ["goals:" if plan.goals else "goals: {}"]
    lines += [f"  {_text(goal)}: {value:.1f}" for goal, value in plan.goals.items()]
    lines += ["", "# SMs that only these operators use. All others share what is left."]
    lines += ["slices:" if plan.slices else "slices: {}"]
    for name, (sms, names) in plan.slices.items():
        lines += [*_comment(reasons, name), f"  {_text(name)}: {{sms: {sms}, operators: {_list(names)}}}"]
    for key, rows, text in (
        (
            "shared_streams",
            plan.shared_streams,
            "Operators that share a stream, which saves an event and a wait.",
        ),
        ("segments", plan.segments, "Operators that are captured and replayed as one launch."),
    ):
        lines += ["", f"# {text}", f"{key}:" if rows else f"{key}: []"]
        for row in rows:
            lines += [*_comment(reasons, row[0]), f"  - {_list(row)}"]
    lines += ["", "# The graph that it was made for, and the median time on the device in microseconds."]
    lines += ["operators:"]
    for name, behind in plan.operators.items():
        expected = plan.expected.get(name)
        us = "" if expected is None else f", us: {expected / 1e3:.6g}"
        lines += [f"  {_text(name)}: {{sends_to: {_list(behind)}{us}}}"]
    return "\n".join(lines) + "\n"


def _comment(reasons: Mapping[str, str], name: str) -> list[str]:
    return [f"  # {reasons[name]}"] if name in reasons else []


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, names))}]"


def _text(value: str) -> str:
    import json

    plain = value.replace("_", "").replace("-", "").isalnum() and not value[0].isdigit()
    is_word = plain and value.lower() not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    return value if is_word else json.dumps(value, ensure_ascii=False)


# Reading.


def _plan(content: Any, what: str) -> Plan:
    _mapping(content, what, _KEYS)
    device = _mapping(content.get("device"), f"{what}: device", ("name", "sms"))
    operators: dict[str, list[str]] = {}
    expected: dict[str, float] = {}
    for name, entry in _mapping(content.get("operators"), f"{what}: operators").items():
        where = f"{what}: operators: {name}"
        _mapping(entry, where, ("sends_to", "us"))
        operators[name] = _names(entry.get("sends_to", []), f"{where}: sends_to")
        if "us" in entry:
            expected[name] = _number(entry["us"], f"{where}: us") * 1e3
    slices: dict[str, tuple[int, list[str]]] = {}
    for name, entry in _mapping(content.get("slices") or {}, f"{what}: slices").items():
        where = f"{what}: slices: {name}"
        _mapping(entry, where, ("sms", "operators"))
        slices[name] = (
            _sms(entry.get("sms"), f"{where}: sms"),
            _names(entry.get("operators"), f"{where}: operators"),
        )
    rows = {
        key: [_names(row, f"{what}: {key}") for row in _sequence(content.get(key) or [], f"{what}: {key}")]
        for key in ("shared_streams", "segments")
    }
    named = [name for _, names in slices.values() for name in names]
    for kind, names in (
        ("slices", named),
        *((key, [name for row in rows[key] for name in row]) for key in rows),
    ):
        for name in names:
            if name not in operators:
                raise ValueError(f"{what}: {kind}: {absent('the plan', 'operator', name, operators)}")
            if names.count(name) > 1:
                raise ValueError(f"{what}: {kind}: operator {name!r} appears twice")
    goals = {
        goal: _number(value, f"{what}: goals: {goal}")
        for goal, value in _mapping(content.get("goals") or {}, f"{what}: goals").items()
    }
    return Plan(
        str(device.get("name")),
        _sms(device.get("sms"), f"{what}: device: sms"),
        operators,
        slices,
        rows["shared_streams"],
        rows["segments"],
        goals,
        expected,
    )


def _mapping(value: Any, what: str, keys: Sequence[str] = ()) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"{what} must be a mapping of names, not {brief(value)}")
    for key in value:
        if keys and key not in keys:
            raise ValueError(f"{what}: there is no {key!r}; there are {choices(keys, key)}")
    return value


def _sequence(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{what} must be a list, not {brief(value)}")
    return value


def _names(value: Any, what: str) -> list[str]:
    for name in _sequence(value, what):
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a list of names of operators, not {brief(value)}")
    return list(value)


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number, not {brief(value)}")
    return float(value)


def _sms(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TypeError(f"{what} must be a number of SMs, 1 or more, not {brief(value)}")
    return value


# Checking.


def _check_graph(plan: Plan, fragment: Composition, what: str) -> None:
    graph = flows_of(fragment.graph)
    known = set(plan.operators)
    differences = [
        *(f"operator {name!r} is not in the program" for name in plan.operators if name not in graph),
        *(f"operator {name!r} is not in the plan" for name in graph if name not in known),
        *(
            f"{name!r} sends to {choices(graph[name])}, and not to {choices(plan.operators[name])}"
            for name in graph
            if name in known and sorted(graph[name]) != sorted(plan.operators[name])
        ),
    ]
    if differences:
        raise GraphError(
            f"{what} was made for another graph: {'; '.join(differences)}; run `headrace plan` again"
        )


def _check_device(plan: Plan, what: str) -> None:
    from headrace import gpu
    from headrace.gpu.backend import active

    if not active().has_devices:
        return  # nothing is divided, and streams are none
    device = gpu.Device(0)
    found = (device.name, device.resources.sm.sm_count)
    if found != (plan.device, plan.sm_count):
        raise GraphError(
            f"{what} was made for {plan.device} with {plan.sm_count} SMs, and this is {found[0]} with {found[1]}; "
            "run `headrace plan` here"
        )


def _has_source(operator: Operator) -> bool:
    from headrace._runtime import source_of

    return source_of(operator) is not None


def _leaves_some(pool: Any) -> bool:
    """Return whether the slices leave SMs, on which operators without a slice work."""
    from headrace.gpu.backend import active

    return not active().has_devices or len(pool.plan) > len(pool.names)
