"""Alone: operators run by themselves, each fed with the inputs that it received in the whole program.

`KeptInputs` keeps the first messages that each operator receives, as a carrier of a recorder. `Alone` is the replay
of a run: it leaves of a composed graph only the units that are measured, without the flows between them. A unit is
an operator, or a chain of operators that is captured as one segment. In front of each is a player of its inputs. A
unit without inputs runs as in the program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.core.graph import Flow
from headrace.core.ports import IOSpec
from headrace.observe import Carrier, RecordedMessage, RecordedPort
from headrace.observe.recordings.carriers import MessageList
from headrace.observe.recordings.replaying import Entry, Playback, Player

if TYPE_CHECKING:
    from headrace.core.operator import Operator

KEPT = 32
"""The inputs that are kept of an operator, in computes."""
TIMES = 4
"""How often they are played, so that there are enough computes for a 99th percentile."""


class KeptInputs(Carrier):
    """The messages that operators received in their first computes, in memory."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[RecordedMessage]] = defaultdict(list)
        self._steps: defaultdict[str, set[int]] = defaultdict(set)

    def carry(self, message: RecordedMessage) -> None:
        """Keep a message, if its operator has not enough."""
        name = message.port.operator
        steps = self._steps[name]
        if message.step in steps or len(steps) < KEPT:
            steps.add(message.step)
            self._of[name].append(message)

    def of(self, name: str) -> list[RecordedMessage]:
        """Return the messages of an operator, in steps with no more than one for each port."""
        counts: defaultdict[tuple[RecordedPort, int], int] = defaultdict(int)
        placed: list[tuple[int, int, RecordedMessage]] = []
        for message in self._of[name]:
            key = message.port, message.step
            placed.append((message.step, counts[key], message))
            counts[key] += 1
        steps = {step: number for number, step in enumerate(sorted({one[:2] for one in placed}))}
        found = [replace(message, step=steps[step, turn]) for step, turn, message in placed]
        return sorted(found, key=lambda message: message.step)


class Alone:
    """Runs units alone: the replay of a fragment (`headrace.observe.replay`) while they are measured."""

    def __init__(self, units: Sequence[Sequence[str]], kept: KeptInputs) -> None:
        self._units = units
        self._kept = kept

    def prepare(self, fragment: Any) -> set[str]:
        """Leave the units in a composed graph, each behind a player; return the names of the other operators."""
        graph = fragment.graph
        names = set(graph.names)
        operators: list[Operator] = []
        flows: list[Flow] = []
        for unit in self._units:
            members = [graph.find(name) for name in unit]
            if members[0]._headrace.incoming:
                inputs, connections = self._player(members[0])
                operators.append(inputs)
                flows += connections
            operators += members
            flows += [flow for flow in graph.flows if flow.source in members and flow.target in members]
        graph.rebuild(operators, flows)
        for pool in fragment._headrace.thread_pools:
            pool.assignments = [one for one in pool.assignments if one.operator in graph]
        units = {frozenset(unit) for unit in self._units}
        fragment._headrace.segments = [
            segment
            for segment in fragment._headrace.segments
            if frozenset(operator.name for operator in segment.operators) in units
        ]
        return names - {name for unit in self._units for name in unit}

    def _player(self, operator: Operator) -> tuple[Player, list[Flow]]:
        """Return what plays the inputs of an operator, and the flows to it: one for each that the program has."""
        numbers: defaultdict[str, int] = defaultdict(int)
        outputs: dict[RecordedPort, str] = {}
        flows: list[tuple[str, str]] = []
        for flow in operator._headrace.incoming:
            if operator.spec.every_input[flow.input].is_execution:
                continue
            many = operator.spec.every_input[flow.input].is_receivers
            index = numbers[flow.input] if many else None
            numbers[flow.input] += 1
            output = outputs.setdefault(
                RecordedPort(operator.name, flow.input, False, index), f"out{len(outputs)}"
            )
            if (output, flow.input) not in flows:
                flows.append((output, flow.input))
        messages = self._kept.of(operator.name)
        entries = [Entry(0, outputs[message.port], number) for number, message in enumerate(messages)]
        player = _Inputs(
            operator.fragment,
            {},
            Playback(MessageList(messages), is_paced=False),
            entries * TIMES,
            name=f"inputs_of_{operator.name}",
            replaced=operator,
            names=list(outputs.values()),
        )
        # Inputs wait for room, whatever becomes of them in the program: each of them is to be computed.
        policy = IOSpec.QueuePolicy.FAULT
        return player, [Flow(player, output, operator, name, None, policy) for output, name in flows]


class _Inputs(Player):
    """Plays the inputs of an operator; all that it received in one compute is emitted together."""

    def __init__(self, *arguments: Any, names: Sequence[str], **keywords: Any) -> None:
        self._names = names
        super().__init__(*arguments, **keywords)

    def setup(self, spec: Any) -> None:
        """Declare an output for each connection."""
        for name in self._names:
            spec.output(name)


def inputs_of(graph: Any, names: Sequence[str]) -> list[str]:
    """Return the connected inputs of operators, as patterns of ports."""
    return [
        name
        for operator in map(graph.find, names)
        for name in dict.fromkeys(
            f"{operator.name}.{flow.input}"
            for flow in operator._headrace.incoming
            if not operator.spec.every_input[flow.input].is_execution
        )
    ]
