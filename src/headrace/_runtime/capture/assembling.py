"""Assembling segments: which of them a run records, and how their nodes and queues hang together."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.border import Border
from headrace._runtime.capture.captured_segment import CapturedSegment
from headrace._runtime.capture.member_context import MemberContext
from headrace._runtime.capture.member_node import MemberNode
from headrace._runtime.capture.nodes import PartOperator
from headrace._runtime.capture.part import Part
from headrace._runtime.capture.slots import SlotAvailable
from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.contexts.input import InputContext
from headrace._runtime.contexts.output import OutputContext
from headrace._runtime.messages.queue import Queue
from headrace._runtime.scheduling.node import Node
from headrace._runtime.streams.node_streams import NodeStreams
from headrace._runtime.streams.run_streams import source_of
from headrace.core.ports import IOSpec
from headrace.core.segment import CaptureError, CaptureRefused, Segment, capture_mode, why_not_captured
from headrace.gpu.backend import active

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace.core.fragment import Fragment
    from headrace.core.operator import Operator

__all__ = ["SegmentAssembly", "plan_segments"]

_FAULT = IOSpec.QueuePolicy.FAULT


def plan_segments(fragment: Fragment) -> list[Segment]:
    """Return the segments that a run records; warn about those that it cannot, whose operators run as usual."""
    mode = capture_mode()
    planned: list[Segment] = []
    for segment in fragment.segments:
        segment.state, segment.reason = "composed", ""
        if mode == "off" or not active().has_devices:
            segment.state = "off"
            continue
        why = _why_not(segment)
        if not why:
            planned.append(segment)
            continue
        segment.state, segment.reason = "eager", why
        text = f"segment {segment.name!r} is not recorded, and its operators run as without it: {why}"
        if segment.options.strict or mode == "strict":
            raise CaptureError(text)
        warnings.warn(CaptureRefused(text), stacklevel=2)
    return planned


def _why_not(segment: Segment) -> str:
    members = set(segment.operators)
    for operator in segment.operators:
        why = why_not_captured(operator)
        if why:
            return f"operator {operator.name!r}: {why}"
        for name in operator.spec.inputs:
            flows = [flow for flow in operator._incoming if flow.input == name]
            inner = [flow for flow in flows if flow.source in members]
            if inner and len(flows) > 1:
                return f"operator {operator.name!r}: several flows lead to input {name!r}"
            for flow in flows:
                sent = flow.source.spec.outputs[flow.output].policy
                policy = flow.policy or operator.spec.inputs[name].policy or sent
                if flow in inner and ((flow.size or 1) > 1 or policy not in (None, _FAULT)):
                    return (
                        f"{flow} has a size or a policy of its own, and messages do not wait inside a segment"
                    )
    devices = {source.dev_id for operator in segment.operators if (source := source_of(operator)) is not None}
    if len(devices) > 1:
        return f"its operators are on the devices {', '.join(map(str, sorted(devices)))}"
    return ""


class SegmentAssembly:
    """Creates the nodes of one segment."""

    def __init__(self, engine: Engine, segment: Segment) -> None:
        self.engine = engine
        self.segment = segment
        self.operators = _in_order(segment)
        names = self._border_names()
        fragment = segment.operators[0].fragment
        operator = PartOperator(fragment, segment.name, *names)
        self.node = Node(engine, operator)
        operator._node = None
        self.members: list[Any] = []
        self._slot_available: SlotAvailable | None = None
        if segment.options.outputs == "ring":
            self._slot_available = SlotAvailable(
                fragment, segment.options.slots, name=f"slots of {segment.name}"
            )
            operator.add_arg(self._slot_available)
        mode = capture_mode()
        self._verifies = mode == "verify"
        self._is_strict = segment.options.strict or mode == "strict"

    def make_member(self, operator: Operator) -> MemberNode:
        """Create the node of one of its operators."""
        node = MemberNode(self.engine, operator)
        node.scheduled = self.node
        self.members.append(node)
        return node

    def connect(self) -> None:
        """Make the node of the segment the consumer and the producer of the queues at its border."""
        node = self.node
        inside = set(self.members)
        seen: dict[Queue, None] = {}
        for member in self.members:
            for name, queues in member.input_queues.items():
                if any(
                    flow.source._node not in inside
                    for flow in member.operator._incoming
                    if flow.input == name
                ):
                    node.input_queues[f"{member.name}.{name}"] = queues
                    for queue in queues:
                        queue.consumer = node
            for name, queues in member.output_queues.items():
                behind = tuple(queue for queue in queues if queue.consumer not in inside)
                if behind and any(
                    isinstance(queue.consumer, Node) for queue in behind if _is_connected(queue)
                ):
                    node.output_queues[f"{member.name}.{name}"] = behind
                    seen.update(dict.fromkeys(behind))
        node.inputs = tuple(queue for queues in node.input_queues.values() for queue in queues)
        node.outputs = tuple(seen)
        for queue in node.outputs:
            queue.feeders = [node if feeder in inside else feeder for feeder in queue.feeders]
        for member in self.members:
            for queue in member.outputs:
                if queue.consumer in inside:
                    queue.feeders = []

    def complete(self, streams: RunStreams) -> CapturedSegment:
        """Create the contexts of its nodes, and what records it."""
        node = self.node
        _complete(node, streams)
        node.input.ports.clear()  # the part takes the messages
        order = {operator: number for number, operator in enumerate(self.operators)}
        self.members.sort(key=lambda member: order[member.operator])
        for member in self.members:
            outer = member.input_queues
            handed = {
                name: (Queue(member, name, 1, _FAULT),)
                if f"{member.name}.{name}" in node.input_queues
                else queues
                for name, queues in outer.items()
            }
            # What it receives from; its accounts are about the queues that others send to.
            member.input_queues = handed
            member.input = InputContext(member)
            member.input_queues = outer
            member.output = OutputContext(member)
            member.context = MemberContext(member)
            member.streams = NodeStreams(streams, member)
        return CapturedSegment(
            self.segment, node, self.members, self._is_strict, partial(self._make_part, streams)
        )

    def _make_part(self, streams: RunStreams, members: list[Any], segment: CapturedSegment) -> Part:
        """Create a part of some of its operators."""
        inside = set(members)
        inputs, outputs = self._borders(members)
        inner: dict[tuple[Node, str], list[tuple[Node, str]]] = {}
        for member in members:
            for flow in member.operator._outgoing:
                target: Any = flow.target._node
                if target in inside:
                    inner.setdefault((member, flow.output), []).append((target, flow.input))
        operator = PartOperator(
            self.segment.operators[0].fragment,
            f"{self.segment.name} (recorded)",
            [border.name for border in inputs],
            [border.name for border in outputs],
        )
        operator.enable_metadata(True)  # each of its operators says for itself what it does with metadata
        limits = [one for member in members if (one := member.operator.max_in_flight) is not None]
        operator.max_in_flight = min(limits, default=None)
        node = Node(self.engine, operator)
        operator.metadata.node = node
        node.input_queues = {border.name: queues for border, queues in inputs.items()}
        node.output_queues = {border.name: queues for border, queues in outputs.items()}
        _complete(node, streams)
        part = Part(
            node,
            members,
            list(inputs),
            list(outputs),
            inner,
            self.segment.options,
            self._verifies,
            segment,
            self._slot_available,
        )
        for member in members:
            member.replayed = partial(_sum_of_replayed, member.replayed, part)
        return part

    def _borders(
        self, members: list[Any]
    ) -> tuple[dict[Border, tuple[Queue, ...]], dict[Border, tuple[Queue, ...]]]:
        """Return where messages enter and leave some of the operators, and the queues there."""
        inside = set(members)
        inputs: dict[Border, tuple[Queue, ...]] = {}
        outputs: dict[Border, tuple[Queue, ...]] = {}
        for member in members:
            for port in member.input.ports:
                flows = [flow for flow in member.operator._incoming if flow.input == port.name]
                if any(flow.source._node not in inside for flow in flows):
                    border = Border(member, port.name, port.queues[0])
                    # From another part of the segment, or from outside.
                    inputs[border] = self.node.input_queues.get(border.name, port.queues)
            for name, queues in member.output_queues.items():
                behind = tuple(
                    queue for queue in queues if _is_connected(queue) and queue.consumer not in inside
                )
                if behind:
                    outputs[Border(member, name)] = behind
        return inputs, outputs

    def _border_names(self) -> tuple[list[str], list[str]]:
        members = set(self.segment.operators)
        inputs: dict[str, None] = {}
        outputs: dict[str, None] = {}
        for operator in self.segment.operators:
            for flow in operator._incoming:
                if flow.source not in members:
                    inputs[f"{operator.name}.{flow.input}"] = None
            for flow in operator._outgoing:
                if flow.target not in members:
                    outputs[f"{operator.name}.{flow.output}"] = None
        return list(inputs), list(outputs)


def _sum_of_replayed(earlier: Callable[[], int], part: Part) -> int:
    return earlier() + part.replayed


def _complete(node: Node, streams: RunStreams) -> None:
    node.input = InputContext(node)
    node.output = OutputContext(node)
    node.context = ExecutionContext(node)
    node.streams = NodeStreams(streams, node)


def _is_connected(queue: Queue) -> bool:
    return getattr(queue, "consumer", None) is not None


def _in_order(segment: Segment) -> list[Operator]:
    """Return the operators of a segment, each after those that it receives from."""
    left = list(segment.operators)
    ordered: list[Operator] = []
    while left:
        ready = [
            operator
            for operator in left
            if not any(flow.source in left and flow.source is not operator for flow in operator._incoming)
        ]
        ordered += ready
        left = [operator for operator in left if operator not in ready]
    return ordered
