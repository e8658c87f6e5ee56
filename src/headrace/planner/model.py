"""The model of a layout: what becomes of latencies and rates if operators get these slices.

A frame passes the operators of a path one after the other. The host launches the work of an operator while the
device still does that of the one before, so the work of each begins when both are done: the work before it, and its
launch. Where flows join, a frame is complete when all of its parts are, so the launches of the other ways, and
their work on the same SMs, come first. To that come three waits:

- **for itself**: an operator computes one frame at a time. Kingman's formula gives the mean wait from its load and
  from how irregular arrivals and times are; waits are taken to be distributed exponentially.
- **for others on its SMs**: their kernels are not interrupted. A frame meets one with the probability that it runs,
  and waits for half of it on average, and for all of the longest one in the worst case.
- **for copies of others**, if it copies, too: likewise, since all slices share the engines that copy.
- **for others on the host**: likewise, since one operator computes at a time.

Medians add up. What is above the median is independent from operator to operator, so the squares of that add up.

A slice that is busy for more than `MOST_LOAD` of the time is refused: queues grow without a bound near 1, and no
measured variation says how fast.

Rows: chains of operators that are launch-bound share a stream, or become a captured segment.

Between operators on one stream there is neither an event nor a wait, and a segment is one launch. Operators whose
work on the device takes longer than its launch keep streams of their own, on which they overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.planner.measured import NOTHING, Measured, OperatorTimes, Times, reachable
from headrace.planner.targets import Target

MOST_LOAD = 0.8
RARE = 0.01
"""What takes up less of the time is met by fewer than one frame in a hundred, so a p99 does not show it."""
REST = ""
"""The name of what no slice was cut from: all SMs of the device, or what slices leave."""


@dataclass(frozen=True)
class Layout:
    """Which operator works on how many SMs.

    Attributes
    ----------
    slices
        The SMs of each slice, by its name.
    rest
        The SMs that no slice has.
    places
        The slice of each operator; those that are not in it work on the rest.
    segments
        The chains that are captured. The model has each as one operator.
    """

    slices: Mapping[str, int]
    rest: int
    places: Mapping[str, str]
    segments: tuple[tuple[str, ...], ...] = ()

    def slice_of(self, name: str) -> str:
        """Return the slice of an operator, or `REST`."""
        return self.places.get(name, REST)

    def sms_of(self, name: str) -> int:
        """Return the number of SMs that an operator works on."""
        return self.slices.get(self.slice_of(name), self.rest)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of one target.

    Attributes
    ----------
    value
        The latency in nanoseconds, or the rate per second.
    path
        The slowest way of its frames.
    load
        That of the busiest SMs on the way.
    capacity
        For a rate, what it would be if its sources had no clock: a rate that its clock gives has a margin, too.
    """

    value: float
    path: tuple[str, ...]
    load: float
    capacity: float = 0.0


def predict(measured: Measured, layout: Layout, target: Target) -> Prediction:
    """Return what a target's figure will be; of several ways of its frames, that of the worst."""
    measured = measured.with_segments(layout.segments)
    found = [_of_path(measured, layout, target, path) for path in measured.paths(target.names)]
    return (min if target.is_rate else max)(found, key=lambda one: one.value)


def margin(measured: Measured, layout: Layout, target: Target, scale: float = 1.0) -> float:
    """Return how far a target is from being missed, as a share of its bound; negative if it will be.

    `scale` is how many times the figure of the model was measured.
    """
    prediction = predict(measured, layout, target)
    found = target.margin(prediction.value * scale)
    if target.is_rate and target.is_met(prediction.value * scale):
        return max(found, target.margin(prediction.capacity))
    if prediction.load > MOST_LOAD and not target.is_rate:
        return min(found, MOST_LOAD / prediction.load - 1)
    return found


def latency(operators: Sequence[OperatorTimes], sms: int) -> float:
    """Return the median of the time for a frame through operators on one slice, without any wait for others."""
    launched = done = 0.0
    for one in operators:
        launched += one.host.p50
        done = max(done, launched) + one.device(sms).p50
    return done


def load(measured: Measured, layout: Layout, name: str) -> float:
    """Return the share of the time in which the SMs of a slice are busy."""
    measured = measured.with_segments(layout.segments)
    sms = layout.slices.get(name, layout.rest)
    return sum(
        one.rate * one.kernels(sms).p50 / 1e9
        for each, one in measured.operators.items()
        if one.curve is not None and layout.slice_of(each) == name
    )


def _of_path(measured: Measured, layout: Layout, target: Target, path: tuple[str, ...]) -> Prediction:
    busiest = max(load(measured, layout, layout.slice_of(name)) for name in path)
    if target.is_rate:
        rate, capacity = _rates(measured, layout, path)
        return Prediction(rate, path, busiest, capacity)
    return Prediction(getattr(_latency(measured, layout, path), target.figure), path, busiest)


def _latency(measured: Measured, layout: Layout, path: Sequence[str]) -> Times:
    beside = [name for name in reachable(path, measured.before) if name not in path]
    places = {layout.slice_of(name) for name in path}
    launched = sum(measured.operators[name].host.p50 for name in beside)
    done = sum(
        measured.operators[name].device(layout.sms_of(name)).p50
        for name in beside
        if layout.slice_of(name) in places
    )
    squares = 0.0
    for name in path:
        one = measured.operators[name]
        device = one.device(layout.sms_of(name))
        waits = _waits(measured, layout, name, (*path, *beside))
        launched += one.host.p50
        done = max(done, launched) + device.p50 + sum(wait.p50 for wait in waits)
        for times in (one.host, device, *waits):
            squares += (times.p99 - times.p50) ** 2
    return Times(done, done + math.sqrt(squares))


def _waits(measured: Measured, layout: Layout, name: str, own: Sequence[str]) -> list[Times]:
    """Return the waits of a frame at an operator: for its last frame, for kernels, copies and computes of others.

    `own` are the operators that work on the frame.
    """
    one = measured.operators[name]
    device = one.device(layout.sms_of(name))
    others = [other for each, other in measured.operators.items() if each not in own]
    beside = [
        (other.rate, other.kernels(layout.sms_of(name)))
        for each, other in measured.operators.items()
        if each not in own and other.curve is not None and layout.slice_of(each) == layout.slice_of(name)
    ]
    return [
        _own_wait(one, device),
        _foreign_wait(beside) if one.curve is not None else NOTHING,
        _foreign_wait([(each.rate, Times(each.copies, each.copies)) for each in others if one.copies]),
        _foreign_wait([(other.rate, other.host) for other in others]),
    ]


def _own_wait(one: OperatorTimes, device: Times) -> Times:
    service = device if device.p50 > one.host.p50 else one.host
    busy = min(one.rate * service.p50 / 1e9, 0.99)
    deviation = (service.p99 - service.p50) / 2.33 / service.p50 if service.p50 else 0.0
    mean = busy / (1 - busy) * (one.variation + deviation**2) / 2 * service.p50
    return Times(*(mean * max(0.0, math.log(times * busy)) if busy else 0.0 for times in (2, 100)))


def _foreign_wait(others: Sequence[tuple[float, Times]]) -> Times:
    """Return the wait for work that is not interrupted, of `(per second, how long)`."""
    busy = sum(rate * times.p50 / 1e9 for rate, times in others)
    mean = sum(rate * times.p50 / 1e9 * times.p50 / 2 for rate, times in others)
    longest = max((times.p99 for _, times in others), default=0.0)
    return Times(min(mean, longest), longest if busy > RARE else mean)


def _rates(measured: Measured, layout: Layout, path: Sequence[str]) -> tuple[float, float]:
    """Return the computes per second of the last operator of a path, and those that its narrowest place allows."""
    longest = max(
        max(one.host.p50, one.device(layout.sms_of(name)).p50)
        for name in path
        for one in (measured.operators[name],)
    )
    capacity = 1e9 / longest if longest else math.inf
    clocks = [1e9 / period for name in path if (period := measured.operators[name].period)]
    return min([capacity, *clocks]), capacity


def launch_bound_rows(measured: Measured, layout: Layout) -> list[list[str]]:
    """Return the chains of two or more launch-bound operators on one slice, in the order of the graph.

    Operators of segments are in none of them, nor are those of which the program itself says how they are launched.
    """
    taken = {name for chain in layout.segments for name in chain}.union(measured.declared)
    rows: list[list[str]] = []
    for name, one in measured.operators.items():
        if name in taken or not one.is_launch_bound(layout.sms_of(name)):
            continue
        before = measured.before(name)
        row = next((row for row in rows if before == [row[-1]]), None)
        if row is not None and measured.behind(row[-1]) == [name] and _are_together(layout, (row[-1], name)):
            row.append(name)
        else:
            rows.append([name])
    return [row for row in rows if len(row) > 1]


def worth_capturing(measured: Measured, layout: Layout) -> tuple[tuple[str, ...], ...]:
    """Return the chains of a layout that are on one slice, launch-bound, and faster as a segment, as measured."""
    found = []
    for chain, whole in measured.segments.items():
        if not _are_together(layout, chain):
            continue
        sms = layout.sms_of(chain[0])
        parts = [measured.operators[name] for name in chain]
        is_bound = sum(one.host.p50 for one in parts) >= sum(one.device(sms).p50 for one in parts)
        if is_bound and latency([whole], sms) < latency(parts, sms):
            found.append(chain)
    return tuple(found)


def _are_together(layout: Layout, names: tuple[str, ...]) -> bool:
    return len({layout.slice_of(name) for name in names}) == 1
