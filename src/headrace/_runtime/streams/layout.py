"""The layout of streams: which operator works on which stream, as the program declares it.

Every operator has one stream. The layout follows from the composed graph alone, so it is the same on every host
and in every run, and it can be shown without a device (`headrace graph`, `headrace info PROGRAM`). Nothing moves
in a run: an operator that joins one takes a stream of its own, or the one that its program shares.

An operator has, in this order:

1. the default stream of its device, if it says ``spec.default_stream()``;
2. a stream of its own, if it is part of a captured segment: the segment orders its members itself;
3. the stream that it shares by ``share_stream(...)``;
4. what ``stream_per`` of its fragment says: a stream of its own (``"operator"``), that of its branch, or that of
   all operators of the program that take their streams from the same pool or slice (``"program"``).

A pool with a limit (`CudaStreamPool.max_size`) lends that many streams: further operators take them in turn, and
share.

A branch is a chain in which every operator receives from one operator alone, which sends to it alone: every fork
and every join begins another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace._runtime.streams.stream_source import slice_of, streams_from
from headrace.core.errors import GraphError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from headrace._runtime.streams.stream_source import StreamSource
    from headrace.core.composition import Composition
    from headrace.core.graph import Graph
    from headrace.core.operator import Operator

STREAM_PER = ("operator", "branch", "program")
"""What `Composition.stream_per` may be."""


@dataclass(slots=True, eq=False)
class PlannedStream:
    """One stream of a program, before it is made.

    Attributes
    ----------
    number
        Its number in the layout, from 1.
    source
        The pool or slice that it comes from; None for the default of the fragment.
    kind
        ``"own"``, ``"branch"``, ``"share"``, ``"program"`` or ``"default"``.
    operators
        Those that work on it, in the order of the graph.
    """

    number: int
    source: StreamSource | None
    kind: str
    operators: list[Operator] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What drawings and tables call it."""
        return "default stream" if self.kind == "default" else f"stream {self.number}"

    @property
    def origin(self) -> str:
        """Where it comes from, in words: a pool, a slice, or a device."""
        share = slice_of(self.operators[0])
        if self.source is None or self.kind == "default":
            where = "any SM"
        elif share is not None:
            where = f"slice {share}"
        else:
            where = f"pool {self.source.name!r}"
        device = 0 if self.source is None else self.source.dev_id
        return f"{where}, device {device}"

    @property
    def is_shared(self) -> bool:
        """Whether several operators work on it, or may if others join the run."""
        is_limited = self.source is not None and self.source.limit > 0
        return len(self.operators) > 1 or is_limited or self.kind in ("share", "program", "default")


class StreamLayout:
    """The streams of a program, in the order in which they are made."""

    def __init__(self, graph: Graph, captured: Collection[Operator] = ()) -> None:
        self._captured = captured
        self._by_key: dict[Any, PlannedStream] = {}
        self._by_operator: dict[Operator, PlannedStream] = {}
        self._count = 0
        before = _continued(graph)
        for operator in graph:
            self._add(operator, before)

    def __iter__(self) -> Iterator[PlannedStream]:
        return iter(dict.fromkeys(self._by_key.values()))

    def of(self, operator: Operator) -> PlannedStream:
        """Return the stream of an operator; one that has joined the run is added."""
        return self._by_operator.get(operator) or self._add(operator, {})

    def _add(self, operator: Operator, before: dict[Operator, Operator]) -> PlannedStream:
        key = self._key(operator)
        if key[0] == "branch":
            key = ("branch", self._head(operator, before))
        planned = self._by_key.get(key)
        if planned is None:
            planned = self._by_key[key] = self._plan(key[0], streams_from(operator))
        planned.operators.append(operator)
        self._by_operator[operator] = planned
        return planned

    def _plan(self, kind: str, source: StreamSource | None) -> PlannedStream:
        """Return another stream, or one that a limited pool lends in turn."""
        limit = 0 if source is None or kind == "default" else source.limit
        lent = [each for each in self._by_key.values() if each.source is source and each.kind != "default"]
        if limit and len(lent) >= limit:
            return lent[len(lent) % limit]
        self._count += 1
        return PlannedStream(self._count, source, kind)

    def _key(self, operator: Operator) -> tuple[Any, ...]:
        """Return what an operator has in common with those that share its stream."""
        source = streams_from(operator)
        share = share_of(operator)
        if operator.spec.is_on_default_stream:
            return ("default", 0 if source is None else source.dev_id)
        if operator in self._captured:
            return ("own", operator)
        if share is not None:
            return ("share", share)
        per = stream_per(operator)
        return {"operator": ("own", operator), "branch": ("branch", source), "program": ("program", source)}[
            per
        ]

    def _head(self, operator: Operator, before: dict[Operator, Operator]) -> Operator:
        """Return the first operator of a branch; in a circle, that which is first in the graph."""
        key, chain = self._key(operator), {operator: None}
        while (earlier := before.get(operator)) is not None and self._key(earlier) == key:
            if earlier in chain:
                return min(chain, key=list(before).index)
            chain[earlier] = None
            operator = earlier
        return operator


def stream_per(operator: Operator) -> str:
    """Return what `stream_per` says for an operator."""
    per: str = operator.fragment._headrace.stream_per
    if per not in STREAM_PER:
        raise GraphError(
            f"{operator.fragment.name!r}: stream_per must be 'operator' (a stream for each), 'branch' (one for a "
            f"chain of operators) or 'program' (one for all operators), not {per!r}"
        )
    return per


def share_of(operator: Operator) -> tuple[Operator, ...] | None:
    """Return the operators that `share_stream` names together with an operator, or with the one it replicates."""
    declared = operator._headrace.declared
    for share in operator.fragment._headrace.stream_shares:
        if declared in share:
            return share
    return None


def captured_operators(segments: Iterable[Any]) -> set[Operator]:
    """Return the operators of captured segments."""
    return {operator for segment in segments for operator in segment.operators}


def check_layout(fragment: Composition) -> None:
    """Raise if operators cannot have the streams that the program declares."""
    captured = captured_operators(fragment._headrace.segments)
    for operator in fragment.graph:
        stream_per(operator)
        share = share_of(operator)
        if share is None:
            continue
        where = f"share_stream: operator {operator.name!r}"
        if operator.spec.is_on_default_stream:
            raise GraphError(
                f"{where} says spec.default_stream(), and has one stream: leave one of the two out"
            )
        if operator in captured:
            raise GraphError(
                f"{where} is part of a captured segment, which works on a stream of its own; leave it out of one "
                "of the two"
            )
        if streams_from(operator) is not streams_from(share[0]):
            raise GraphError(
                f"{where} takes its stream from another pool or slice than {share[0].name!r}; a stream belongs to "
                "one of them: give both the same one"
            )


def _continued(graph: Graph) -> dict[Operator, Operator]:
    """Return, for each operator, the only one that it receives from, if that one sends to it alone."""
    before: dict[Operator, set[Operator]] = {operator: set() for operator in graph}
    after: dict[Operator, set[Operator]] = {operator: set() for operator in graph}
    for flow in graph.flows:
        before[flow.target].add(flow.source)
        after[flow.source].add(flow.target)
    found: dict[Operator, Operator] = {}
    for operator, sources in before.items():
        if len(sources) == 1:
            (source,) = sources
            if source is not operator and len(after[source]) == 1:
                found[operator] = source
    return found
