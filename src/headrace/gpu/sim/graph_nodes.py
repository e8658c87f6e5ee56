"""The nodes of a graph, as a program sees them: what was recorded, and in which order.

The classes have the names and properties of cuda.core's. A simulated node cannot be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from headrace.gpu.sim.launch_config import LaunchConfig
from headrace.gpu.sim.memory_pool import Bytes
from headrace.gpu.sim.recorded_node import RecordedNode

if TYPE_CHECKING:
    from headrace.gpu.sim.event import Event
    from headrace.gpu.sim.graph_definition import GraphDefinition
    from headrace.gpu.sim.kernel import Kernel


class CUgraphNodeType(IntEnum):
    """The kinds of nodes, named and numbered as by the driver."""

    CU_GRAPH_NODE_TYPE_KERNEL = 0
    CU_GRAPH_NODE_TYPE_MEMCPY = 1
    CU_GRAPH_NODE_TYPE_MEMSET = 2
    CU_GRAPH_NODE_TYPE_HOST = 3
    CU_GRAPH_NODE_TYPE_EMPTY = 5
    CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6
    CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7
    CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10
    CU_GRAPH_NODE_TYPE_MEM_FREE = 11


class GraphNode:
    """A node of a graph."""

    __slots__ = ("_definition", "_record")
    _type: CUgraphNodeType
    _definition: GraphDefinition
    _record: RecordedNode

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("GraphNode objects cannot be created directly; use GraphDefinition.nodes")

    @staticmethod
    def _of(definition: GraphDefinition, record: RecordedNode) -> GraphNode:
        self = record.kind.__new__(record.kind)
        self._definition = definition
        self._record = record
        return self

    @property
    def type(self) -> CUgraphNodeType:
        """The kind of the node."""
        return self._type

    @property
    def graph(self) -> GraphDefinition:
        """The graph that the node belongs to."""
        return self._definition

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._record.handle

    @property
    def is_valid(self) -> bool:
        """Whether the node and its graph exist."""
        return True

    @property
    def pred(self) -> set[GraphNode]:
        """The nodes that it depends on."""
        return {self._of(self._definition, record) for record in self._record.pred}

    @property
    def succ(self) -> set[GraphNode]:
        """The nodes that depend on it."""
        return {
            self._of(self._definition, record)
            for record in self._definition._records
            if self._record in record.pred
        }

    def __eq__(self, other: object) -> bool:
        return self._record is other._record if isinstance(other, GraphNode) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._record)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} handle={self.handle:#x}>"


class KernelNode(GraphNode):
    """The launch of a kernel."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL

    @property
    def kernel(self) -> Kernel[...]:
        """The kernel."""
        kernel: Kernel[...] = self._record.details["kernel"]
        return kernel

    @property
    def grid(self) -> tuple[int, int, int]:
        """The blocks of the grid in each dimension."""
        return self._launched._grid_in_blocks

    @property
    def block(self) -> tuple[int, int, int]:
        """The threads of a block in each dimension."""
        return self._launched.block

    @property
    def shmem_size(self) -> int:
        """The bytes of dynamic shared memory of a block."""
        return self._launched.shmem_size

    @property
    def config(self) -> LaunchConfig:
        """The configuration of the launch, without clusters."""
        return LaunchConfig(grid=self.grid, block=self.block, shmem_size=self.shmem_size)

    @property
    def _launched(self) -> LaunchConfig:
        config: LaunchConfig = self._record.details["config"]
        return config


class MemcpyNode(GraphNode):
    """A copy."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY

    @property
    def dst(self) -> int:
        """The address that is written."""
        return _address(self._record.details["dst"])

    @property
    def src(self) -> int:
        """The address that is read."""
        return _address(self._record.details["src"])

    @property
    def size(self) -> int:
        """The number of bytes."""
        source: Bytes = self._record.details["src"]
        return source.nbytes


class MemsetNode(GraphNode):
    """The filling of memory with a pattern."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET

    @property
    def dptr(self) -> int:
        """The address that is written."""
        return _address(self._record.details["dst"])

    @property
    def value(self) -> int:
        """The pattern, as an unsigned integer."""
        return int.from_bytes(self._pattern, "little")

    @property
    def element_size(self) -> int:
        """The bytes of the pattern."""
        return len(self._pattern)

    @property
    def width(self) -> int:
        """The number of patterns in a row."""
        target: Bytes = self._record.details["dst"]
        return target.nbytes // len(self._pattern)

    @property
    def height(self) -> int:
        """The number of rows."""
        return 1

    @property
    def pitch(self) -> int:
        """The bytes from row to row; unused, since there is one row."""
        return 0

    @property
    def _pattern(self) -> bytes:
        pattern: bytes = self._record.details["pattern"]
        return pattern


class HostCallbackNode(GraphNode):
    """The call of a function on the host."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_HOST

    @property
    def callback(self) -> Callable[[], object]:
        """The function."""
        function: Callable[[], object] = self._record.details["callback"]
        return function


class EmptyNode(GraphNode):
    """A node without work, which joins others."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY


class _EventNode(GraphNode):
    __slots__ = ()

    @property
    def event(self) -> Event:
        """The event."""
        event: Event = self._record.details["event"]
        return event


class EventRecordNode(_EventNode):
    """The record of an event by every launch of the graph (:func:`headrace.gpu.record_external`)."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EVENT_RECORD


class EventWaitNode(_EventNode):
    """A wait for an event from outside the graph (:func:`headrace.gpu.wait_external`)."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_WAIT_EVENT


class AllocNode(GraphNode):
    """The allocation of memory that belongs to the graph (:class:`headrace.gpu.GraphMemoryResource`)."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC

    @property
    def dptr(self) -> int:
        """The address of the memory."""
        return _address(self._record.details["memory"])

    @property
    def bytesize(self) -> int:
        """The number of bytes."""
        memory: Bytes = self._record.details["memory"]
        return memory.nbytes

    @property
    def device_id(self) -> int:
        """The number of the device that the memory belongs to."""
        return self._record.context.device.index

    @property
    def memory_type(self) -> str:
        """The kind of memory."""
        return "device"

    @property
    def peer_access(self) -> tuple[int, ...]:
        """The numbers of the other devices that can access the memory."""
        return ()


class FreeNode(GraphNode):
    """The release of memory that belongs to the graph."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_FREE

    @property
    def dptr(self) -> int:
        """The address of the memory."""
        return _address(self._record.details["memory"])


def _address(memory: Bytes) -> int:
    return int(memory.ctypes.data)
