"""Replaying: a run in which some operators are replaced by the messages that they emitted in an earlier run."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.core.errors import GraphError, choices, noting
from headrace.core.graph import Graph, check_group
from headrace.observe.recordings.carriers import MessageList, MessageSource, RecordedMessage, RecordedPort
from headrace.observe.recordings.player import Entry, Playback, Player
from headrace.observe.recordings.ports import matches

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator

_PACES = ("recorded", "fast")
Source: TypeAlias = str | os.PathLike[str] | Sequence[RecordedMessage] | MessageSource


def replay(
    fragment: Composition,
    source: Source,
    pace: str = "recorded",
    *,
    ports: Iterable[str] | None = None,
    pickle: bool = False,
    strict: bool = True,
) -> None:
    """Play a recording in every later run of a fragment.

    Each operator whose outputs were recorded is replaced by a player, which emits the recorded messages with their
    timestamps and metadata at the same outputs, in the same order. The operator itself does not run, nor does any
    operator that only feeds replaced ones. All others run as always.

    Tensors that were on a device are placed on the device again, or on the host if there is none.

    Parameters
    ----------
    fragment
        The application or fragment; its graph must have the recorded operators.
    source
        The recording, which :class:`PortRecorder` made; or the messages themselves, in a list or in another source.
    pace
        ``"recorded"``: each message at its time of the run's clock, counted from the first message; ``"fast"``: as
        soon as there is room.
    ports
        Patterns of the recorded ports to play, such as ``"camera.out"``; all outputs unless given.
    pickle
        Whether pickled objects in the file are loaded. That runs code which the file names, so the file must be
        trusted.
    strict
        Whether a damaged file is an error. Otherwise it is played up to the damage, with a warning.

    Raises
    ------
    RecordingError
        If the file is not a recording, or is damaged.
    GraphError
        At the beginning of the run, if the graph does not have the recorded outputs.
    """
    fragment._headrace.replay = Replay(source, pace, ports, pickle, strict)


@dataclass(eq=False)
class Replay:
    """The replay of a recording in the runs of a fragment; takes the arguments of :func:`replay`."""

    source: Source
    pace: str = "recorded"
    ports: Iterable[str] | None = None
    pickle: bool = False
    strict: bool = True

    def __post_init__(self) -> None:
        if self.pace not in _PACES:
            raise ValueError(f"the pace of a replay must be one of {choices(_PACES)}, not {self.pace!r}")
        if self.ports is not None:
            self.ports = [self.ports] if isinstance(self.ports, str) else list(self.ports)
        self._played(self._open(warns=False))  # an error here and not in the run; a warning when it runs

    def prepare(self, fragment: Composition) -> set[str]:
        """Replace the recorded operators in the graph that `compose` has made.

        Returns the names of the operators that are left out, because they only feed replaced ones.
        """
        source = self._open()
        graph = fragment.graph
        played = self._played(source)
        entries: defaultdict[str, list[Entry]] = defaultdict(list)
        for number, (port, time) in enumerate(source.outline()):
            if port in played:
                entries[port.operator].append(Entry(time, port.port, number))
        outputs: defaultdict[Operator, set[str]] = defaultdict(set)
        for port in played:
            with noting(f"raised for the {source.name}, which has messages of {port.operator!r}"):
                operator = graph.find(port.operator)
            outputs[operator].add(port.port)
        playback = Playback(source, self.pace == "recorded")
        players: dict[Operator, Operator] = {}
        for operator, recorded in outputs.items():
            # An output that emitted nothing, and that nobody listens to, is no reason to replace an operator.
            is_connected = any(flow.output in recorded for flow in operator._headrace.outgoing)
            if is_connected or operator.name in entries:
                self._check_outputs(operator, source, recorded)
                player = players[operator] = Player(
                    operator.fragment,
                    operator.spec.every_output,
                    playback,
                    entries[operator.name],
                    name=operator.name,
                    replaced=operator,
                )
                player.name = operator.name  # which has that of its fragment already
        names = {operator.name for operator in graph}
        _rewire(fragment, players)
        return names - {operator.name for operator in fragment.graph}

    def _open(self, warns: bool = True) -> MessageSource:
        source = self.source
        if isinstance(source, (str, os.PathLike)):
            from headrace.observe.recordings.recording import Recording  # needs mcap

            return Recording(source, pickle=self.pickle, strict=self.strict, _warns=warns)
        return source if isinstance(source, MessageSource) else MessageList(source)

    def _played(self, source: MessageSource) -> list[RecordedPort]:
        patterns = self.ports
        outputs = [port for port in source.ports if port.is_output]
        played = [
            port
            for port in outputs
            if patterns is None or any(matches(one, port.operator, port.port) for one in patterns)
        ]
        if not played:
            has = f"the outputs {choices([port.name for port in outputs])}" if outputs else "no outputs"
            wanted = "" if patterns is None else f" named {', '.join(patterns)}"
            raise GraphError(f"the {source.name} has nothing{wanted} to play: it has {has}")
        return played

    def _check_outputs(self, operator: Operator, source: MessageSource, recorded: set[str]) -> None:
        where = f"operator {operator.name!r} cannot be replaced by the {source.name}"
        for name in recorded:
            if name not in operator.spec.every_output:
                raise GraphError(
                    f"{where}: it has no output {name!r}; it has {choices(operator.spec.every_output, name)}"
                )
        for flow in operator._headrace.outgoing:
            if flow.output not in recorded:
                raise GraphError(
                    f"{where}: its output {flow.output!r} is connected and was not recorded; record it, too"
                )


def _rewire(fragment: Composition, players: dict[Operator, Operator]) -> None:
    """Put players in the place of operators, and leave out the operators that only feed them."""
    graph = fragment.graph
    gone = set(players)
    idle = set(players)
    while idle:
        idle = {
            operator
            for operator in set(graph) - gone
            if operator._headrace.outgoing
            and all(flow.target in gone for flow in operator._headrace.outgoing)
        }
        gone |= idle
    flows = {
        flow: replace(flow, source=players.get(flow.source, flow.source))
        for flow in graph.flows
        if flow.target not in gone
    }
    rewired = Graph()
    rewired.subgraphs = graph.subgraphs
    for operator in graph:
        left = players.get(operator) or (None if operator in gone else operator)
        if left is not None:
            left._headrace.outgoing = [flows[flow] for flow in operator._headrace.outgoing if flow in flows]
            left._headrace.incoming = [flows[flow] for flow in operator._headrace.incoming if flow in flows]
            rewired.add(left)
    rewired.flows = list(flows.values())
    fragment._headrace.graph = rewired
    for pool in fragment._headrace.thread_pools:
        for assignment in pool.assignments:
            assignment.operator = players.get(assignment.operator, assignment.operator)
        pool.assignments = [one for one in pool.assignments if one.operator in rewired]
    fragment._headrace.segments = [
        segment for segment in fragment._headrace.segments if _is_left(segment, rewired)
    ]


def _is_left(segment: Any, graph: Graph) -> bool:
    """Leave operators that are not in the graph any more out of a segment; return whether it can be captured."""
    left = tuple(operator for operator in segment.operators if operator in graph)
    if left == segment.operators:
        return True
    segment.state, segment.reason = "off", "a recording is played in place of its operators"
    if not left:
        return False
    try:
        check_group(segment.name, left)
    except GraphError:  # what is left is in two pieces
        return False
    segment.operators = left
    return True
