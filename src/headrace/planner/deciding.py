"""Deciding: from what was measured to a plan, tried on the device, and corrected until it says what happens.

The three best layouts of the model are simulated, and the one with the largest smallest margin there is run on the
device. What is measured then corrects the model: work takes longer while all slices are busy, and what the model
leaves out of a target's figure is taken to stay. The search is repeated with that, until the figures that were
predicted and measured differ by no more than `AGREE`, or `ROUNDS` plans were tried. Then the report says that they
differ. Of the plans that were tried, the one whose smallest measured margin is the largest is the decision.

The search: every way to give the operators of targets slices of the offered sizes, and the best of them.

The operators on the way of a target get a slice together, or work on what is left. An operator on the way of
several targets is with those of the tightest one. All combinations of sizes are tried: a device offers few. Each is
tried with the segments that are worth it, and without any. The best layout is the one whose smallest margin is the
largest, in hundredths; of equal ones, the one that leaves the most SMs, of these one with segments, and then the
first. So the same measurements give the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from headrace.core.errors import GraphError
from headrace.planner.measured import Measured
from headrace.planner.measuring import Program, inflated, limits_of, measure, observe_often, what_fits
from headrace.planner.model import (
    MOST_LOAD,
    Layout,
    launch_bound_rows,
    load,
    margin,
    predict,
    worth_capturing,
)
from headrace.planner.observing import Tries
from headrace.planner.plan import Plan
from headrace.planner.targets import Target, shown_time

Simulate: TypeAlias = "Callable[[Measured, Sequence[Plan], Sequence[Target], int], list[list[float | None]]]"
AGREE = 0.2
"""By how much of itself a measured figure may differ from the predicted one."""
ROUNDS = 3
"""How many plans are tried at most. What the model cannot say when it was corrected twice it does not know."""


@dataclass(frozen=True)
class Figure:
    """A target with its figure in a plan: as predicted, simulated and measured; None where it is not known."""

    target: Target
    predicted: float
    simulated: float | None = None
    measured: float | None = None

    @property
    def agrees(self) -> bool:
        """Whether the measured figure is the predicted one, within a fifth."""
        return self.measured is not None and abs(self.measured - self.predicted) <= AGREE * self.measured

    @property
    def is_met(self) -> bool | None:
        """Whether the target was met when the plan ran; None if that is not known."""
        return None if self.measured is None else self.target.is_met(self.measured)


@dataclass(frozen=True)
class Decision:
    """A plan, and why it was chosen.

    Attributes
    ----------
    plan, layout
        What was decided: as it is declared, and as the model sees it.
    measured
        What is known of the program, after the corrections.
    figures
        The figure of each target.
    next_best
        The plan that would have been next, with its figures; None if there is no other.
    reasons
        Why slices, shared streams and segments are what they are, by name.
    impossible
        The targets that are missed even alone on the whole device, with by how much of the bound.
    """

    plan: Plan
    layout: Layout
    measured: Measured
    figures: Sequence[Figure]
    next_best: tuple[Plan, Sequence[Figure]] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[Target, float] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether every measured figure is the predicted one, within a fifth."""
        return all(figure.agrees for figure in self.figures)

    @property
    def least(self) -> float:
        """The smallest margin that was measured; without a figure, a goal is missed by all of its bound."""
        return min(-1.0 if one.measured is None else one.target.margin(one.measured) for one in self.figures)


def make_plan(
    fragment: Program,
    targets: Sequence[Target],
    simulate: Simulate,
    *,
    frames: int = 200,
    report: Callable[[str], None] = lambda line: None,
) -> Decision:
    """Measure a program on the current device, and decide on a plan that reaches the targets.

    Parameters
    ----------
    fragment
        The application; it runs several times.
    targets
        What the plan has to reach.
    simulate
        Returns the figure of each target for each plan, on the simulated device.
    frames
        The ticks of the slowest clock in each of these runs, or the computes of sources without one.
    report
        Called with a line for each step.
    """
    from headrace import gpu

    if not targets:
        raise ValueError("a plan needs a goal, such as 'control: p99 < 500us'")
    measured = measure(fragment, targets, frames, report)
    fits = what_fits(gpu.Device(0))
    limits = limits_of(fragment.graph, frames)
    scale = dict.fromkeys(targets, 1.0)
    tried: list[Decision] = []
    while True:
        decision = decide(measured, targets, fits, simulate, scale, frames)
        report(f"trying: {describe(decision.plan)}")
        observed = observe_often(fragment, decision.plan, targets, limits)
        figures = [replace(figure, measured=observed.figure(figure.target)) for figure in decision.figures]
        for figure in figures:
            report(f"  {compared(figure)}")
        decision = replace(decision, figures=figures, plan=_with_times(decision.plan, observed))
        tried.append(decision)
        if decision.agrees or len(tried) == ROUNDS:
            return max(reversed(tried), key=lambda each: each.least)
        measured = inflated(measured, observed, decision.layout)
        for figure in figures:
            bare = predict(measured, decision.layout, figure.target).value
            if figure.measured and bare:
                scale[figure.target] = figure.measured / bare


def decide(
    measured: Measured,
    targets: Sequence[Target],
    fits: Fits,
    simulate: Simulate,
    scale: Mapping[Target, float],
    frames: int,
) -> Decision:
    """Return the plan for what was measured; the same for the same measurements."""
    alone = Layout({}, measured.sm_count, {})
    impossible = {
        target: target.margin(value)
        for target in targets
        if not target.is_met(value := _alone(measured, alone, target) * scale[target])
    }
    best = best_layouts(measured, targets, fits, scale)
    if not best:
        raise GraphError(
            "no layout keeps up with the rates that the program has as declared; none was planned"
        )
    predicted = [
        {target: predict(measured, each.layout, target).value * scale[target] for target in targets}
        for each in best
    ]
    plans = [plan_of(measured, each.layout, values) for each, values in zip(best, predicted, strict=True)]
    simulated = simulate(measured, plans, targets, frames)
    order = sorted(range(len(best)), key=lambda index: -_least(targets, simulated[index], best[index]))
    figures = [
        [
            Figure(target, predicted[index][target], value)
            for target, value in zip(targets, simulated[index], strict=True)
        ]
        for index in order
    ]
    plan, layout = plans[order[0]], best[order[0]].layout
    other = (plans[order[1]], figures[1]) if len(order) > 1 else None
    return Decision(
        plan, layout, measured, figures[0], other, _reasons(measured, plan, figures[0]), impossible
    )


def plan_of(measured: Measured, layout: Layout, predicted: Mapping[Target, float]) -> Plan:
    """Return the plan of a layout, with what launch-bound rows share."""
    return Plan(
        measured.device,
        measured.sm_count,
        {name: measured.behind(name) for name in measured.operators},
        {
            name: (sms, [each for each, place in layout.places.items() if place == name])
            for name, sms in layout.slices.items()
        },
        launch_bound_rows(measured, layout),
        layout.segments,
        {str(target): value for target, value in predicted.items()},
    )


def describe(plan: Plan) -> str:
    """Return the slices of a plan in a few words."""
    slices = [f"{name} on {sms} SMs" for name, (sms, _) in plan.slices.items()] or ["no slices"]
    ends = ["...".join(dict.fromkeys((chain[0], chain[-1]))) for chain in plan.segments]
    return ", ".join([*slices, *(f"{each} captured" for each in ends)])


def _with_times(plan: Plan, observed: Tries) -> Plan:
    """Return a plan that expects the times on the device of the runs with it."""
    found = {name: observed.device(name) for name in plan.operators}
    return replace(plan, expected={name: times.p50 for name, times in found.items() if times is not None})


def _alone(measured: Measured, layout: Layout, target: Target) -> float:
    """Return a target's figure if nothing else ran."""
    own = {name for way in measured.paths(target.names) for name in way}
    only = Measured(
        measured.device,
        measured.sm_count,
        measured.sizes,
        {name: one for name, one in measured.operators.items() if name in own},
        [flow for flow in measured.flows if own.issuperset(flow)],
    )
    return predict(only, layout, target).value


def _least(targets: Sequence[Target], found: Sequence[float | None], candidate: Candidate) -> float:
    """Return the smallest margin in a simulation; that of the model where it says nothing."""
    margins = zip(targets, found, candidate.margins, strict=True)
    return round(min(known if value is None else target.margin(value) for target, value, known in margins), 2)


def compared(figure: Figure) -> str:
    """Return a target with its predicted and its measured figure."""
    target = figure.target
    found = "too few frames reached its end" if figure.measured is None else target.shown(figure.measured)
    return f"{target}: predicted {target.shown(figure.predicted)}, measured {found}"


def _reasons(measured: Measured, plan: Plan, figures: Sequence[Figure]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for name, (sms, names) in plan.slices.items():
        about = [
            f"{figure.target}: {figure.target.shown(figure.predicted)} expected"
            for figure in figures
            if figure.target.names[-1] == name
        ]
        time = sum(measured.operators[each].device(sms).p50 for each in names)
        whole = sum(measured.operators[each].device(measured.sm_count).p50 for each in names)
        copies = sum(measured.operators[each].copies for each in names)
        copied = f", of which {shown_time(copies)} are copies" if copies else ""
        about += [f"work of {shown_time(time)} a frame{copied}, {shown_time(whole)} on all SMs"]
        reasons[name] = "; ".join(about)
    for row in (*plan.shared_streams, *plan.segments):
        host = sum(measured.operators[each].host.p50 for each in row)
        reason = f"launched in {shown_time(host)} by the host, no less than the device takes"
        segment = measured.segments.get(tuple(row)) if row in plan.segments else None
        reasons[row[0]] = (
            reason if segment is None else f"{reason}; captured in {shown_time(segment.host.p50)}"
        )
    return reasons


Fits = Callable[[Sequence[int]], int | None]
"""How many SMs slices of these sizes leave; None if the device cannot provide them."""


@dataclass(frozen=True)
class Candidate:
    """A layout, and the margin of each target in it."""

    layout: Layout
    margins: tuple[float, ...]

    @property
    def least(self) -> float:
        """The smallest margin."""
        return min(self.margins)


def best_layouts(
    measured: Measured,
    targets: Sequence[Target],
    fits: Fits,
    scale: Mapping[Target, float] | None = None,
    most: int = 3,
) -> list[Candidate]:
    """Return the best layouts, the best one first; the figures of targets are multiplied by `scale`."""
    ranked = sorted(candidates(measured, targets, fits, scale or {}), key=_rank)
    return ranked[:most]


def candidates(
    measured: Measured, targets: Sequence[Target], fits: Fits, scale: Mapping[Target, float]
) -> Iterator[Candidate]:
    """Yield every layout that the device can provide and that keeps up with what is declared."""
    groups = flows_of(measured, targets)
    before = load(measured, Layout({}, measured.sm_count, {}), "")
    for sizes in itertools.product((0, *measured.sizes), repeat=len(groups)):
        chosen = [size for size in sizes if size]
        rest = fits(chosen) if chosen else measured.sm_count
        if rest is None:
            continue
        slices = {name: size for name, size in zip(groups, sizes, strict=True) if size}
        places = {each: name for name in slices for each in groups[name]}
        plain = Layout(slices, rest, places)
        for segments in dict.fromkeys(((), worth_capturing(measured, plain))):
            layout = replace(plain, segments=segments)
            if _keeps_up(measured, layout, before):
                margins = [margin(measured, layout, target, scale.get(target, 1.0)) for target in targets]
                yield Candidate(layout, tuple(margins))


def flows_of(measured: Measured, targets: Sequence[Target]) -> dict[str, list[str]]:
    """Return the operators with work on the device that each target's slice would have, by the slice's name.

    The name is that of the last operator of the target.
    """
    alone = Layout({}, measured.sm_count, {})
    tightest = sorted(targets, key=lambda target: margin(measured, alone, target))
    taken: set[str] = set()
    groups: dict[str, list[str]] = {}
    for target in tightest:
        ways = measured.paths(target.names)
        own = [
            name
            for name in dict.fromkeys(name for way in ways for name in way)
            if name not in taken and measured.operators[name].curve is not None
        ]
        if own:
            taken.update(own)
            groups[target.names[-1]] = own
    return groups


def _keeps_up(measured: Measured, layout: Layout, before: float) -> bool:
    """Return whether what works on the rest has SMs, and is not busier than allowed, or than it was declared."""
    behind = [
        name
        for name, one in measured.operators.items()
        if one.curve is not None and layout.slice_of(name) not in layout.slices
    ]
    if not behind:
        return True
    return layout.rest > 0 and load(measured, layout, "") <= max(MOST_LOAD, before)


def _rank(candidate: Candidate) -> tuple[float, int, int, tuple[tuple[str, int], ...]]:
    layout = candidate.layout
    slices = tuple(sorted(layout.slices.items()))
    return -round(candidate.least, 2), -layout.rest, -len(layout.segments), slices
