"""Measuring: what the model needs to know, from runs of the program itself.

One run is as declared. It gives the times on the host, the rates and how irregular they are, and which operators
have work on the device. Then, for each size of a slice that the device offers, the program runs with all of these
operators on one such slice and on one stream: their work follows one another, so each time is that of an operator
that is alone on these SMs. Sources run as they are, so inputs are the program's own.

Inputs are kept: sources without work on the device are recorded in the first run, and played in the others as fast
as there is room, so that every size gets the same frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from headrace import gpu
from headrace.core.condition import ticks_of
from headrace.core.errors import GraphError, choices
from headrace.core.graph import Graph, is_sink, is_source
from headrace.observe import Carrier, PortRecorder, RecordedMessage
from headrace.observe.recordings.replaying import Replay
from headrace.planner.measured import NOTHING, Curve, Measured, OperatorTimes, Times
from headrace.planner.observing import Observed
from headrace.planner.plan import Plan, flows_of
from headrace.planner.targets import Target

Report = Callable[[str], None]


class Program(Protocol):
    """What is planned: an application, or a fragment that runs by itself."""

    _headrace: Any

    @property
    def graph(self) -> Graph:
        """The graph that was composed last."""

    def compose_graph(self) -> Graph:
        """Return the composed graph."""

    def run(self, *, max_messages: int | None = None, duration: timedelta | None = None) -> object:
        """Run for so long, or until each source has computed so often."""

    def use_plan(self, plan: Plan | None) -> None:
        """Use a plan in later runs."""


class _Kept(Carrier):
    """The messages of ports in memory."""

    def __init__(self) -> None:
        self.messages: list[RecordedMessage] = []

    def carry(self, message: RecordedMessage) -> None:
        """Keep a message."""
        self.messages.append(message)


def observe(
    fragment: Program, plan: Plan | None, targets: Sequence[Target], limits: Mapping[str, Any]
) -> Observed:
    """Run a program with a plan, and return what was seen; `limits` are arguments of `run`."""
    observed = Observed(targets)
    watchers = fragment._headrace.watchers
    watchers.append(observed)
    fragment.use_plan(None if plan is None else replace(plan, goals={}, expected={}))
    try:
        fragment.run(**limits)
    finally:
        watchers.remove(observed)
        fragment.use_plan(None)
    return observed


def measure(fragment: Program, targets: Sequence[Target], frames: int, report: Report) -> Measured:
    """Measure a program on the current device; raise GraphError if its targets name what it does not have."""
    graph = fragment.compose_graph()
    replicated = [operator.name for operator in graph if operator._headrace.replication.declared is not None]
    if replicated:
        raise GraphError(
            f"a plan has no operators with workers=, and {choices(replicated)} are made of such ones"
        )
    flows = [(name, target) for name, behind in flows_of(graph).items() for target in behind]
    _check(targets, list(graph.names), flows)
    device = gpu.Device(0)
    sm = device.resources.sm
    sizes = offered_sizes(device)
    report(f"{device.name}, {sm.sm_count} SMs: slices of {', '.join(map(str, sizes))}")
    report("as declared")
    limits = limits_of(graph, frames)
    declared = observe(fragment, None, targets, limits)
    sources = [operator.name for operator in graph if is_source(operator) and not is_sink(operator)]
    with_work = [operator.name for operator in graph if declared.device(operator.name) is not None]
    curves: dict[str, dict[int, Times]] = {name: {sm.sm_count: _known(declared, name)} for name in with_work}
    kept = _inputs(fragment, [name for name in sources if name not in with_work], limits)
    fragment._headrace.replay = Replay(kept, "fast") if kept else None
    try:
        for size in (*sizes, sm.sm_count):
            report(f"on {size} SMs")
            alone = observe(
                fragment, _one_slice(fragment, size, sm.sm_count, with_work), (), {} if kept else limits
            )
            for name in with_work:
                found = alone.device(name)
                if found is not None:
                    curves[name][size] = found
    finally:
        fragment._headrace.replay = None
    operators = {
        operator.name: OperatorTimes(
            declared.host(operator.name),
            Curve(curves[operator.name]) if operator.name in curves else None,
            declared.rate(operator.name),
            _period(operator),
            declared.variation(operator.name),
            is_capturable=bool(operator.capturable),
        )
        for operator in graph
    }
    return Measured(device.name, sm.sm_count, sizes, operators, flows)


def offered_sizes(device: Any) -> list[int]:
    """Return the sizes of slices that a device offers beside a rest, ascending."""
    sm = device.resources.sm
    step = max(1, sm.coscheduled_alignment)
    sizes: dict[int, None] = {}
    for count in range(max(step, sm.min_partition_size), sm.sm_count, step):
        try:
            plan = gpu.partition(device, [count], dry_run=True)
        except gpu.PartitionError:
            continue
        if len(plan) > 1:
            sizes[plan[0].sm_count] = None
    return sorted(sizes)


def what_fits(device: Any) -> Callable[[Sequence[int]], int | None]:
    """Return a function that says how many SMs slices leave; None if the device cannot provide them exactly."""
    known: dict[tuple[int, ...], int | None] = {}

    def fits(counts: Sequence[int]) -> int | None:
        key = tuple(sorted(counts))
        if key not in known:
            try:
                shares = list(gpu.partition(device, list(counts), exact=True, dry_run=True))
                known[key] = shares[-1].sm_count if len(shares) > len(counts) else 0
            except gpu.PartitionError:
                known[key] = None
        return known[key]

    return fits


def limits_of(graph: Graph, frames: int) -> dict[str, Any]:
    """Return the arguments of `run` by which the slowest clock ticks so often; sources without one are counted."""
    periods = [period for operator in graph if is_source(operator) and (period := _period(operator))]
    if not periods:
        return {"max_messages": frames}
    return {"duration": timedelta(microseconds=frames * max(periods) / 1e3)}


def _inputs(fragment: Program, sources: Sequence[str], limits: Mapping[str, Any]) -> list[RecordedMessage]:
    """Return what sources emit in a run."""
    if not sources:
        return []
    kept = _Kept()
    recorder = PortRecorder(kept, [f"{name}.*" for name in sources], pickle=True)
    fragment._headrace.watchers.append(recorder)
    try:
        fragment.run(**limits)
    finally:
        fragment._headrace.watchers.remove(recorder)
    return kept.messages


def inflated(measured: Measured, observed: Observed, sms_of: Callable[[str], int]) -> Measured:
    """Return what was measured, with how much longer work took while all slices were busy."""
    operators = dict(measured.operators)
    for name, one in measured.operators.items():
        found = observed.device(name)
        if one.curve is not None and found is not None:
            alone = one.curve.at(sms_of(name)).p50
            operators[name] = replace(one, inflation=max(1.0, found.p50 / alone) if alone else 1.0)
    return replace(measured, operators=operators)


def _known(observed: Observed, name: str) -> Times:
    return observed.device(name) or NOTHING


def _one_slice(fragment: Program, size: int, all_sms: int, names: list[str]) -> Plan:
    """Return the plan by which these operators work on one slice and one stream."""
    return Plan(
        gpu.Device(0).name,
        all_sms,
        flows_of(fragment.graph),
        {"measured": (size, names)} if size < all_sms and names else {},
        [names] if len(names) > 1 else [],
    )


def _period(operator: Any) -> float | None:
    ticks = ticks_of(operator.conditions.values())
    return None if ticks is None else float(ticks.period)


def _check(targets: Sequence[Target], names: Sequence[str], flows: Sequence[tuple[str, str]]) -> None:
    graph = Measured("", 0, (), dict.fromkeys(names, OperatorTimes(NOTHING, None, 0.0)), flows)
    for target in targets:
        for name in target.names:
            if name not in names:
                raise GraphError(
                    f"goal {str(target)!r}: there is no operator {name!r}; there are {choices(names, name)}"
                )
        if len(target.names) > 1 and graph.before(target.names[0]):
            raise GraphError(
                f"goal {str(target)!r}: frames are followed from a source on, not from {target.names[0]!r}; name "
                f"the last operator alone, or begin with {choices(graph.paths(target.names[:1])[0][:1])}"
            )
        if not graph.paths(target.names):
            raise GraphError(
                f"goal {str(target)!r}: no flow leads from {target.names[0]!r} to {target.names[-1]!r}"
            )
