"""Measuring: what the model needs to know, from runs of the program itself.

Some runs are as declared. They give the times on the host, the rates and how irregular they are, and which of
the operators have work on the device. Another one keeps the first inputs of each of these, and tells copies
from kernels. Then, for each size of a slice that the device offers, they run there alone (`Alone`): each
computes inputs that it had in the program, without the flows between them, and all on one stream. Their work
follows one another, so each time is that of an operator that is alone on these SMs. Chains that may be captured
run there once more, each as one segment.

Sources with work on the device have no inputs to be kept. They run as they are, by their own clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from headrace import gpu
from headrace.capture.declaration import chains_of, why_not_in_group
from headrace.core.condition import ticks_of
from headrace.core.errors import GraphError, choices
from headrace.core.graph import Graph, is_source
from headrace.observe import PortRecorder, Watcher
from headrace.planner.alone import KEPT, TIMES, Alone, KeptInputs, inputs_of
from headrace.planner.measured import NOTHING, Curve, Measured, OperatorTimes, Times
from headrace.planner.model import Layout
from headrace.planner.observing import Copies, Observed, Tries
from headrace.planner.plan import Plan, check_undivided, flows_of
from headrace.planner.targets import Target

if TYPE_CHECKING:
    from headrace.core.operator import Operator

Report = Callable[[str], None]
LONGEST = timedelta(seconds=1)
"""How long operators run alone on a slice."""
TRIES = 3
"""How often a program runs as declared, and with a plan."""


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


def observe_often(
    fragment: Program, plan: Plan | None, targets: Sequence[Target], limits: Mapping[str, Any]
) -> Tries:
    """Observe several runs; one, if its time is virtual."""
    runs = [observe(fragment, plan, targets, limits)]
    while len(runs) < TRIES and not runs[0].is_virtual:
        runs.append(observe(fragment, plan, targets, limits))
    return Tries(runs)


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
    # The operators of which the program itself says with which others they are launched.
    launched_together = [one.name for segment in fragment._headrace.segments for one in segment.operators]
    limits = limits_of(graph, frames)
    declared = observe_often(fragment, None, targets, limits)
    with_work = [
        operator.name for operator in graph if declared.has_work(operator.name) or operator.capturable is True
    ]
    check_undivided(graph, fragment._headrace.green_contexts, with_work, "a plan")
    kept, copies = _inputs(fragment, inputs_of(graph, with_work), limits_of(graph, min(frames, KEPT)))
    if with_work and copies.unknown:
        report(f"  copies are not told from kernels: these are {copies.unknown}")
    units = [(name,) for name in with_work]
    captured = _chains(graph, with_work, launched_together, targets)
    curves: dict[tuple[str, ...], dict[int, Times]] = {
        unit: {sm.sm_count: declared.device(unit[0]) or NOTHING} for unit in units
    }
    of_segments: dict[tuple[str, ...], dict[int, Times]] = {}
    launches: dict[tuple[str, ...], Times] = {}
    for size in (*sizes, sm.sm_count) if with_work else ():
        report(f"on {size} SMs")
        alone = _observe_alone(fragment, graph, units, kept, size, sm.sm_count, segments=False)
        for unit in units:
            if (found := alone.device(*unit)) is not None:
                curves[unit][size] = found
        for chain in captured:  # each by itself, since each has a stream of its own
            alone = _observe_alone(fragment, graph, [chain], kept, size, sm.sm_count, segments=True)
            found = alone.device(*chain)
            if found is not None and alone.was_captured(*chain):
                of_segments.setdefault(chain, {})[size] = found
                launches[chain] = alone.host(*chain)
    for (name,) in units:
        if len(curves[name,]) == 1 and sizes:
            report(
                f"  {name!r} did not compute its inputs alone; its times on slices are taken from its waves"
            )
    operators = {
        operator.name: OperatorTimes(
            declared.host(operator.name),
            Curve(curves[operator.name,]) if (operator.name,) in curves else None,
            declared.rate(operator.name),
            _period(operator),
            declared.variation(operator.name),
            copies=copies.of(operator.name),
        )
        for operator in graph
    }
    segments = {
        chain: replace(
            operators[chain[0]],
            host=launches[chain],
            curve=Curve(times),
            copies=sum(operators[name].copies for name in chain),
        )
        for chain, times in of_segments.items()
    }
    return Measured(device.name, sm.sm_count, sizes, operators, flows, segments, launched_together)


def _observe_alone(
    fragment: Program,
    graph: Graph,
    units: Sequence[tuple[str, ...]],
    kept: KeptInputs,
    size: int,
    all_sms: int,
    *,
    segments: bool,
) -> Observed:
    """Return what was seen of operators or chains that ran alone, all on one slice and one stream."""
    names = [name for unit in units for name in unit]
    plan = Plan(
        gpu.Device(0).name,
        all_sms,
        flows_of(graph),
        {"measured": (size, names)} if size < all_sms else {},
        [names] if len(names) > 1 and not segments else [],
        units if segments else [],
    )
    fragment._headrace.replay = Alone(units, kept)
    try:
        return observe(fragment, plan, (), _limits_alone(graph, [unit[0] for unit in units]))
    finally:
        fragment._headrace.replay = None


def _limits_alone(graph: Graph, names: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `run` by which sources among these operators end; players end by themselves.

    After `LONGEST` the run is over for all of them: a kernel that fills the device takes long on a small slice.
    """
    sources = [graph.find(name) for name in names if is_source(graph.find(name))]
    limits = limits_of(sources, KEPT * TIMES) if sources else {}
    return {**limits, "duration": min(limits.get("duration", LONGEST), LONGEST)}


def _chains(
    graph: Graph, with_work: Sequence[str], declared: Sequence[str], targets: Sequence[Target]
) -> list[tuple[str, ...]]:
    """Return the longest chains that may be captured; none goes on behind an operator that a target names."""
    named = {name for target in targets for name in target.names}
    may_join = [
        operator
        for operator in map(graph.find, with_work)
        if operator.capturable is True
        and operator._headrace.incoming
        and operator.name not in declared
        and not why_not_in_group(operator)
    ]
    alone = {operator.name: (operator.name,) for operator in may_join}
    found: dict[tuple[str, ...], None] = {}
    for chain in chains_of(may_join):
        part: list[str] = []
        for operator in chain:
            alone.pop(operator.name)
            part.append(operator.name)
            if operator.name in named or operator is chain[-1]:
                found[tuple(part)] = None
                part = []
    return [*found, *alone.values()]


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


def limits_of(operators: Iterable[Operator], frames: int) -> dict[str, Any]:
    """Return the arguments of `run` by which the slowest clock ticks so often; sources without one are counted."""
    periods = [period for operator in operators if is_source(operator) and (period := _period(operator))]
    if not periods:
        return {"max_messages": frames}
    return {"duration": timedelta(microseconds=frames * max(periods) / 1e3)}


def _inputs(fragment: Program, ports: Sequence[str], limits: Mapping[str, Any]) -> tuple[KeptInputs, Copies]:
    """Return what operators received first in a run, at these inputs, and how much they copied."""
    kept, copies = KeptInputs(), Copies()
    watchers: list[Watcher] = [copies]
    if ports:
        watchers.append(PortRecorder(kept, ports, pickle=True))
    fragment._headrace.watchers.extend(watchers)
    try:
        fragment.run(**limits)
    finally:
        for watcher in watchers:
            fragment._headrace.watchers.remove(watcher)
    return kept, copies


def inflated(measured: Measured, observed: Tries, layout: Layout) -> Measured:
    """Return what was measured, with how much longer work took while all slices were busy."""

    def slower(one: OperatorTimes, *names: str) -> OperatorTimes:
        found = observed.device(*names)
        if one.curve is None or found is None:
            return one
        alone = one.curve.at(layout.sms_of(names[-1])).p50
        return replace(one, inflation=max(1.0, found.p50 / alone) if alone else 1.0)

    captured = {name for chain in layout.segments for name in chain}
    operators = {
        name: one if name in captured else slower(one, name) for name, one in measured.operators.items()
    }
    segments = {
        chain: slower(one, *chain) if chain in layout.segments else one
        for chain, one in measured.segments.items()
    }
    return replace(measured, operators=operators, segments=segments)


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
        if not target.is_rate and not graph.before(target.names[-1]):
            raise GraphError(
                f"goal {str(target)!r}: a latency is that of frames from a source on, and no flow leads to "
                f"{target.names[-1]!r}; name an operator behind it, or a rate"
            )
