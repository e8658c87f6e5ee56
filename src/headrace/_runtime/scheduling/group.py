"""Group: several operators that are scheduled as one.

To the scheduler a group is one node, which waits for a message at each input from outside. Its members are nodes as
well, with contexts, streams and queues, but they are not scheduled: when the node runs, each member computes after
those that it receives from (`compute`). A member that has not received all of its messages does not compute. What
it has received stays where it is, and `go_on` goes on with it.

What a group does in place of these computes is up to its `Runner`, which whoever starts the run hands in with a
`GroupPlan`. The runtime knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.contexts.input import InputContext
from headrace._runtime.contexts.output import OutputContext
from headrace._runtime.messages.queue import Queue
from headrace._runtime.scheduling.node import Node
from headrace._runtime.scheduling.notes import note
from headrace._runtime.scheduling.resume import Ending
from headrace._runtime.streams.node_streams import NodeStreams
from headrace.core.operator import Operator
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace.core.composition import Composition as Fragment

_FAULT = IOSpec.QueuePolicy.FAULT


class Runner(Protocol):
    """What runs a group."""

    def prime(self) -> None:
        """Prepare for the first frame: set the compute of the group's node."""

    def end(self, op_input: Any, op_output: Any, context: Any) -> Iterator[None]:
        """Let the members end (`Group.end`)."""

    def count_messages(self) -> None:
        """Count the messages that the members would have sent; the run is over."""

    def finish(self) -> None:
        """Release everything; the device has finished."""


@dataclass(frozen=True)
class GroupPlan:
    """A group that a run is to have.

    Attributes
    ----------
    name, operators
        Its name and its operators, each after those that it receives from.
    make_runner
        Creates what runs the group.
    """

    name: str
    operators: Sequence[Operator]
    make_runner: Callable[[Group], Runner]


class Boundary(NamedTuple):
    """A port of a member at which messages enter or leave the group."""

    node: Node
    port: str
    queue: Queue | None = None
    """The queue from which the member itself receives; for inputs."""

    @property
    def name(self) -> str:
        """The port, as the group names it."""
        return f"{self.node.name}.{self.port}"


class Group:
    """Operators that are scheduled as one.

    Attributes
    ----------
    node
        The node that is scheduled.
    members
        The nodes of the operators, each after those that it receives from.
    inputs, outputs
        Where messages enter and leave.
    inner
        The inputs inside the group that the messages of each output go to.
    has_left
        Whether messages are left inside, because a member did not receive at all of its inputs.
    """

    def __init__(self, engine: Engine, plan: GroupPlan) -> None:
        self.plan = plan
        self.name = plan.name
        self.operators = plan.operators
        inside = set(plan.operators)
        incoming = [
            flow for one in plan.operators for flow in one._headrace.incoming if flow.source not in inside
        ]
        outgoing = [
            flow for one in plan.operators for flow in one._headrace.outgoing if flow.target not in inside
        ]
        operator = GroupOperator(
            plan.operators[0].fragment._headrace.whole,
            plan.name,
            dict.fromkeys(f"{flow.target.name}.{flow.input}" for flow in incoming),
            dict.fromkeys(f"{flow.source.name}.{flow.output}" for flow in outgoing),
        )
        operator._headrace.incoming, operator._headrace.outgoing = incoming, outgoing
        operator.enable_metadata(True)  # each member says for itself what it does with metadata
        limits = [one._headrace.max_in_flight for one in plan.operators]
        operator.max_in_flight = min((limit for limit in limits if limit is not None), default=None)
        operator.parallel = any(one._headrace.parallel for one in plan.operators)
        self.node = Node(engine, operator)
        operator.metadata.node = self.node
        self.members: list[Any] = []
        self.inputs: list[Boundary] = []
        self.outputs: list[Boundary] = []
        self.inner: dict[tuple[Node, str], list[tuple[Node, str]]] = {}
        self.runner: Runner
        self.has_left = False
        # The queues that each member receives from, and those that it sends to inside the group.
        self._before: dict[Node, list[Queue]] = {}
        self._behind: dict[Node, list[Queue]] = {}

    # Before the run.

    def make_member(self, operator: Operator) -> Node:
        """Create the node of one of its operators."""
        node = Node(self.node.engine, operator)
        node.scheduled = self.node
        self.members.append(node)
        return node

    def connect(self) -> None:
        """Make the group's node the consumer and the producer of the queues at its boundary."""
        node = self.node
        order = {operator: number for number, operator in enumerate(self.operators)}
        self.members.sort(key=lambda member: order[member.operator])
        inside = set(self.members)
        for member in self.members:
            for name, queues in member.input_queues.items():
                if f"{member.name}.{name}" in node.operator.spec.every_input:
                    node.input_queues[f"{member.name}.{name}"] = queues
                    for queue in queues:
                        queue.consumer = node
            for name, queues in member.output_queues.items():
                if f"{member.name}.{name}" in node.operator.spec.every_output:
                    behind = tuple([queue for queue in queues if queue.consumer not in inside])
                    node.output_queues[f"{member.name}.{name}"] = behind
            for flow in member.operator._headrace.outgoing:
                target: Any = flow.target._headrace.node
                if target in inside:
                    self.inner.setdefault((member, flow.output), []).append((target, flow.input))
        node.inputs = tuple(queue for queues in node.input_queues.values() for queue in queues)
        node.outputs = tuple(dict.fromkeys(q for queues in node.output_queues.values() for q in queues))
        for queue in node.outputs:
            queue.feeders = [node if feeder in inside else feeder for feeder in queue.feeders]
        for member in self.members:
            for queue in member.outputs:
                if queue.consumer in inside:
                    queue.feeders = []

    def complete(self, streams: RunStreams) -> None:
        """Create the contexts and the streams of its nodes, and what runs it."""
        node = self.node
        node.input, node.output = InputContext(node), OutputContext(node)
        node.context = ExecutionContext(node)
        node.streams = NodeStreams(streams, node, None)
        for member in self.members:
            outer = member.input_queues
            # What it receives from; its accounts are about the queues that others send to.
            member.input_queues = {
                name: (Queue(member, name, 1, _FAULT),)
                if f"{member.name}.{name}" in node.input_queues
                else queues
                for name, queues in outer.items()
            }
            member.input = InputContext(member)
            member.input_queues = outer
            member.output = OutputContext(member)
            member.context = ExecutionContext(member)
            member.streams = NodeStreams(streams, member, streams.layout.of(member.operator))
            self._before[member] = [queue for port in member.input.ports for queue in port.queues]
            self._behind[member] = [
                queue
                for queues in member.output_queues.values()
                for queue in queues
                if queue.consumer in self.members
            ]
            for port in member.input.ports:
                if f"{member.name}.{port.name}" in node.input_queues:
                    self.inputs.append(Boundary(member, port.name, port.queues[0]))
            for name in member.output_queues:
                if f"{member.name}.{name}" in node.output_queues:
                    self.outputs.append(Boundary(member, name))
        self.runner = self.plan.make_runner(self)

    def prime(self) -> None:
        """Prepare for the first frame: the outputs lead where those of the members do."""
        for boundary in self.outputs:
            # The same queues, behind whatever counts and times the messages of the member.
            port = boundary.node.output.ports[boundary.port]
            behind = boundary.node.output_queues[boundary.port]
            wanted = self.node.output_queues[boundary.name]
            self.node.output.ports[boundary.name].connect(
                tuple([port.queues[place] for place, queue in enumerate(behind) if queue in wanted])
            )
        self.runner.prime()
        if any(member.ending is not None for member in self.members):
            self.node.ending = Ending(self.node, self.node.compute, self.runner.end, is_of_group=True)

    # Each frame.

    @property
    def waiting(self) -> str:
        """The name of the member at which messages were left; an empty text if there is none."""
        return next((node.name for node in self.members if any(self._before[node])), "")

    def compute(self, items: list[Any]) -> None:
        """Let a frame pass: every member computes that has received its messages."""
        for boundary, item in zip(self.inputs, items, strict=True):
            assert boundary.queue is not None
            boundary.queue.append(item)
        items.clear()
        item = None
        self._compute_each()

    def go_on(self, takes: list[Callable[[], Any]]) -> bool:
        """Go on with messages that were left inside; take only what there is room for.

        Returns whether there was anything to do.
        """
        has_taken = False
        for boundary, take in zip(self.inputs, takes, strict=True):
            if not boundary.queue:
                try:
                    item = take()
                except IndexError:
                    continue
                assert boundary.queue is not None
                boundary.queue.append(item)
                has_taken = True
                del item
        return self._compute_each() or has_taken

    def end(self, takes: list[Callable[[], Any]]) -> Iterator[None]:
        """Let the members end, each after those that it receives from; yield where room is needed again."""
        if self.has_left or any(map(len, self.node.inputs)):
            self.go_on(takes)
        for node in self.members:
            for queue in node.inputs:
                queue.has_ended = True
            while node.ending is not None and not node.ending.is_done:
                yield
                node.ending.is_on = True
                node.compute(node.input, node.output, node.context)
                node.remaining -= 1
                node.granted -= 1  # it was no compute
                if node.has_details:
                    node.clear_details()
                self._compute_each()

    def _compute_each(self) -> bool:
        """Let every member compute that has its messages and room for its own; return whether any did."""
        has_computed = False
        for node in self.members:
            if (
                node.stop_requested
                or any(len(queue) < queue.min_size for queue in self._before[node])
                or any(len(queue) >= queue.limit for queue in self._behind[node])
            ):
                continue
            has_computed = True
            try:
                node.compute(node.input, node.output, node.context)
            except BaseException as error:
                note(error, "compute", node.operator)
                raise
            node.remaining -= 1
            if node.has_details:
                node.clear_details()
        self.has_left = any(map(any, self._before.values()))
        return has_computed

    def clear(self) -> None:
        """Release messages that were left inside."""
        for queues in self._before.values():
            for queue in queues:
                queue.clear()


class GroupOperator(Operator):
    """Stands for the operators of a group; its ports are those at which messages enter and leave."""

    def __init__(
        self, fragment: Fragment, name: str, inputs: dict[str, None], outputs: dict[str, None]
    ) -> None:
        self._names = (inputs, outputs)
        super().__init__(fragment, name=name)

    def setup(self, spec: Any) -> None:
        """Declare the ports."""
        inputs, outputs = self._names
        for name in inputs:
            spec.input(name)
        for name in outputs:
            spec.output(name)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Do nothing: the run replaces it."""
