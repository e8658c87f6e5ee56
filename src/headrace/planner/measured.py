"""What was measured of a program: times of its operators by SMs, rates, what they do to each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Times:
    """The median and the 99th percentile of a time, in nanoseconds."""

    p50: float
    p99: float

    def scaled(self, factor: float) -> Times:
        """Return both, times a factor."""
        return Times(self.p50 * factor, self.p99 * factor)


NOTHING = Times(0, 0)


class Curve:
    """How long the work of one compute takes on the device, by the number of SMs that it may use.

    More SMs never make it slower: where a measurement says so, that is noise, and the smallest time on as many SMs
    or fewer holds. Between two measured numbers of SMs the time is that of the smaller one.
    """

    def __init__(self, measured: Mapping[int, Times]) -> None:
        if not measured:
            raise ValueError("a curve needs at least one measured number of SMs")
        self._times: dict[int, Times] = {}
        best = None
        for count, times in sorted(measured.items()):
            best = times if best is None else Times(min(best.p50, times.p50), min(best.p99, times.p99))
            self._times[count] = best

    def __iter__(self) -> Iterator[tuple[int, Times]]:
        return iter(self._times.items())

    def at(self, sms: int) -> Times:
        """Return the times on a number of SMs; on fewer than were measured, work is spread over more waves."""
        fitting = [times for count, times in self._times.items() if count <= sms]
        if fitting:
            return fitting[-1]
        smallest, times = next(iter(self._times.items()))
        return times.scaled(smallest / sms)


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """What was measured of one operator.

    Attributes
    ----------
    host
        The time of its compute on the host.
    curve
        That of its work on the device by SMs; None if it has none.
    rate
        Its computes per second in the program as declared.
    period
        That of its `PeriodicCondition` in nanoseconds; None for an operator without one.
    variation
        The squared coefficient of variation of the intervals between its computes: 0 for a clock, about 1 for
        arrivals at random.
    inflation
        How much longer its work takes while all slices are busy, as a factor: they share bandwidth and cache.
    copies
        How much of the time on the device copies take, in nanoseconds: engines of the device copy, and no SM is
        occupied meanwhile. 0 where copies cannot be told from kernels.
    """

    host: Times
    curve: Curve | None
    rate: float
    period: float | None = None
    variation: float = 0.0
    inflation: float = 1.0
    copies: float = 0.0

    def device(self, sms: int) -> Times:
        """Return the times on the device on a number of SMs, while the others are busy."""
        return NOTHING if self.curve is None else self.curve.at(sms).scaled(self.inflation)

    def kernels(self, sms: int) -> Times:
        """Return the times in which SMs are occupied."""
        times = self.device(sms)
        return Times(max(0.0, times.p50 - self.copies), max(0.0, times.p99 - self.copies))

    def is_launch_bound(self, sms: int) -> bool:
        """Whether the host needs as long to launch its work as the device to do it."""
        return self.curve is not None and self.host.p50 >= self.device(sms).p50


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of a program on a device.

    Attributes
    ----------
    device, sm_count
        The name of the device, and its number of SMs.
    sizes
        The sizes of slices that it offers, ascending.
    operators
        The operators by name, in the order of the graph.
    flows
        Who sends to whom.
    segments
        Chains of operators that may be captured, each with what was measured of it as one segment. No chain goes on
        behind an operator that a goal names.
    declared
        The operators that the program itself has captured, or lets share streams.
    """

    device: str
    sm_count: int
    sizes: Sequence[int]
    operators: Mapping[str, OperatorTimes]
    flows: Sequence[tuple[str, str]]
    segments: Mapping[tuple[str, ...], OperatorTimes] = field(default_factory=dict)
    declared: Collection[str] = ()
    _captured: dict[tuple[tuple[str, ...], ...], Measured] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )

    def with_segments(self, chains: Sequence[tuple[str, ...]]) -> Measured:
        """Return the program in which each of these chains is one operator, with the name of its last.

        Chains that are operators already stay it.
        """
        key = tuple(chain for chain in chains if chain in self.segments)
        if key not in self._captured:
            self._captured[key] = self._merged(key) if key else self
        return self._captured[key]

    def _merged(self, chains: Sequence[tuple[str, ...]]) -> Measured:
        of = {name: chain[-1] for chain in chains for name in chain}
        whole = {chain[-1]: self.segments[chain] for chain in chains}
        operators = {
            name: whole.get(name, one) for name, one in self.operators.items() if of.get(name, name) == name
        }
        flows = [(of.get(source, source), of.get(target, target)) for source, target in self.flows]
        return replace(
            self,
            operators=operators,
            flows=[(source, target) for source, target in flows if source != target],
            segments={},
        )

    def behind(self, name: str) -> list[str]:
        """Return the operators that receive from one."""
        return list(dict.fromkeys(target for source, target in self.flows if source == name))

    def before(self, name: str) -> list[str]:
        """Return the operators that send to one."""
        return list(dict.fromkeys(source for source, target in self.flows if target == name))

    def paths(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the ways of frames through operators in this order; from the sources on, if there is only one.

        A loop is gone through once.
        """
        ends = [names[-1]]
        starts = set(self._sources_of(names[0]) if len(names) == 1 else names[:1])
        found: list[tuple[str, ...]] = []
        way: list[str] = []

        def follow(name: str) -> None:
            way.append(name)
            if name in ends:
                if _in_order(way, names):
                    found.append(tuple(way))
            else:
                for after in self.behind(name):
                    if after not in way:
                        follow(after)
            way.pop()

        for start in self.operators:
            if start in starts:
                follow(start)
        return found

    def _sources_of(self, name: str) -> list[str]:
        """Return the operators without anything before them from which an operator can be reached."""
        return [each for each in reachable([name], self.before) if not self.before(each)] or [name]


def reachable(names: Iterable[str], of: Callable[[str], Iterable[str]]) -> list[str]:
    """Return names, and all that can be reached from them."""
    found = dict.fromkeys(names)
    waiting = list(found)
    while waiting:
        for other in of(waiting.pop()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def _in_order(way: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether a way passes the names in their order."""
    rest = iter(way)
    return all(name in rest for name in names)
