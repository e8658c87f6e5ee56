"""The search: every way to give the operators of targets slices of the offered sizes, and the best of them.

The operators on the way of a target get a slice together, or work on what is left. An operator on the way of
several targets is with those of the tightest one. All combinations of sizes are tried: a device offers few. Each is
tried with the segments that are worth it, and without any. The best layout is the one whose smallest margin is the
largest, in hundredths; of equal ones, the one that leaves the most SMs, of these one with segments, and then the
first. So the same measurements give the same plan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.planner.measured import Measured
from headrace.planner.model import MOST_LOAD, Layout, load, margin, worth_capturing
from headrace.planner.targets import Target

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
