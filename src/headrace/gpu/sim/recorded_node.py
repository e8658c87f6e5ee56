"""Recorded nodes: the driver's state of the nodes of graphs.

The objects that a program sees (:class:`~headrace.gpu.sim.graph_nodes.GraphNode`) are views of it. A recorded node
refers to the nodes before it and never to later ones or to its graph, so a graph that nobody uses any more is freed
at once, with everything that its nodes refer to.

A node runs in the context of the stream that it was recorded on, and so on the SMs of that context, whichever
stream the graph is launched on. It does not keep the allocations that it uses: it refers to their bytes, as a
kernel does that was launched. :meth:`RecordedNode.check_memory` finds those that were freed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.memory_pool import AddressSpan, Bytes, Span
from headrace.gpu.sim.operations import Operation

if TYPE_CHECKING:
    from headrace.gpu.sim.device_state import ContextState
    from headrace.gpu.sim.graph_nodes import GraphNode

Nodes = frozenset["RecordedNode"]


class RecordedNode:
    """One node of a graph.

    Attributes
    ----------
    kind : type
        The class of its views.
    operation : Operation
        What it does; each launch performs a copy of it.
    pred : frozenset of RecordedNode
        The nodes that it depends on.
    details : dict
        What its views show.
    """

    __slots__ = ("context", "details", "handle", "kind", "operation", "pred", "priority", "spans")

    def __init__(
        self,
        context: ContextState,
        priority: int,
        kind: type[GraphNode],
        operation: Operation,
        pred: Nodes,
        memory: Iterable[Bytes],
        details: dict[str, Any],
    ) -> None:
        machine = context.device.machine
        memory = list(memory)
        self.context = context
        self.priority = priority
        self.handle = machine.new_handle()
        self.kind = kind
        self.operation = operation
        self.pred = pred
        self.spans: list[Span | AddressSpan] = [
            span for device in machine.devices for span in device.memory.spans(memory)
        ]
        self.details = details

    def check_memory(self) -> None:
        """Raise an error if memory that the node uses was freed after it was recorded; the lock is held."""
        for span in self.spans:
            if not span.is_allocated():
                raise CUDAError(
                    f"CUDA_ERROR_ILLEGAL_ADDRESS: {self} uses {span.memory.size} bytes that were freed after it "
                    "was recorded; a graph does not keep buffers alive, so keep them for as long as it is launched"
                )

    def __str__(self) -> str:
        kernel = self.details.get("kernel")
        return f"a {self.kind.__name__}" + (f" of kernel {kernel.name!r}" if kernel else "")


def with_ancestors(nodes: Iterable[RecordedNode]) -> set[RecordedNode]:
    """Return these nodes and every node that they depend on."""
    found: set[RecordedNode] = set()
    unseen = list(nodes)
    while unseen:
        node = unseen.pop()
        if node not in found:
            found.add(node)
            unseen += node.pred
    return found
