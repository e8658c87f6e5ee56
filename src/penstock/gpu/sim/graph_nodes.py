"""The nodes of a graph: recorded work that a launch of the graph performs.

A node runs in the context of the stream that it was recorded on, and so on the SMs of that context, whichever
stream the graph is launched on. It does not keep the buffers alive that it uses; :meth:`GraphNode._check_memory`
finds nodes whose memory was freed after they were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.fences import Fence
from penstock.gpu.sim.launch_config import LaunchConfig
from penstock.gpu.sim.memory_pool import Bytes, Span
from penstock.gpu.sim.operations import DoNothing, Operation, SignalFence, WaitForFence

if TYPE_CHECKING:
    from penstock.gpu.sim.device_state import ContextState
    from penstock.gpu.sim.event import Event
    from penstock.gpu.sim.graph_definition import GraphDefinition
    from penstock.gpu.sim.kernel import Kernel
    from penstock.gpu.sim.stream_queues import StreamQueue
    from penstock.gpu.sim.timeline import Timeline


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

    __slots__ = ("_context", "_definition", "_handle", "_operation", "_pred", "_priority", "_spans", "_succ")
    _type: CUgraphNodeType
    _takes_time = True  # whether the device needs time to begin it after the nodes that it depends on

    _context: ContextState
    _definition: GraphDefinition | None
    _handle: int
    _operation: Operation
    _pred: frozenset[GraphNode]
    _priority: int
    _spans: list[Span]
    _succ: list[GraphNode]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("GraphNode objects cannot be created directly; capture a stream's work")

    @classmethod
    def _create(cls, queue: StreamQueue, operation: Operation, memory: Sequence[Bytes] = ()) -> Any:
        """Return a node of that operation, which uses that memory, not yet in a graph; the lock is held."""
        self = cls.__new__(cls)
        machine = queue.context.device.machine
        self._context = queue.context
        self._priority = queue.priority
        self._handle = machine.new_handle()
        self._operation = operation
        self._spans = [span for device in machine.devices for span in device.memory.spans(memory)]
        self._definition = None
        self._pred = frozenset()
        self._succ = []
        return self

    def _place(self, after: frozenset[GraphNode]) -> None:
        """Make the node depend on others."""
        self._pred = after
        for node in after:
            node._succ.append(self)

    def _prepare(self, timeline: Timeline) -> Operation:
        """Return the operation of one launch; the lock is held."""
        return self._operation.for_replay()

    def _check_memory(self) -> None:
        """Raise an error if memory that the node uses was freed after it was recorded; the lock is held."""
        for span in self._spans:
            if not span.is_allocated():
                raise CUDAError(
                    f"CUDA_ERROR_ILLEGAL_ADDRESS: {self!r} uses {span.memory.size} bytes that were freed after it "
                    "was recorded; a graph does not keep buffers alive, so keep them as long as the graph is "
                    "launched"
                )

    @property
    def type(self) -> CUgraphNodeType:
        """The kind of the node."""
        return self._type

    @property
    def graph(self) -> GraphDefinition:
        """The graph that the node belongs to."""
        assert self._definition is not None
        return self._definition

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._handle

    @property
    def is_valid(self) -> bool:
        """Whether the node and its graph exist."""
        return True

    @property
    def pred(self) -> frozenset[GraphNode]:
        """The nodes that it depends on. A simulated node's cannot be changed."""
        return self._pred

    @property
    def succ(self) -> frozenset[GraphNode]:
        """The nodes that depend on it. A simulated node's cannot be changed."""
        return frozenset(self._succ)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} handle={self._handle:#x}>"


class KernelNode(GraphNode):
    """The launch of a kernel."""

    __slots__ = ("_config", "_kernel")
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    _config: LaunchConfig
    _kernel: Kernel[...]

    @property
    def kernel(self) -> Kernel[...]:
        """The kernel."""
        return self._kernel

    @property
    def grid(self) -> tuple[int, int, int]:
        """The blocks of the grid in each dimension."""
        return self._config._grid_in_blocks

    @property
    def block(self) -> tuple[int, int, int]:
        """The threads of a block in each dimension."""
        return self._config.block

    @property
    def shmem_size(self) -> int:
        """The bytes of dynamic shared memory of a block."""
        return self._config.shmem_size

    @property
    def config(self) -> LaunchConfig:
        """The configuration of the launch."""
        return LaunchConfig(grid=self.grid, block=self.block, shmem_size=self.shmem_size)

    def __repr__(self) -> str:
        return f"<KernelNode handle={self._handle:#x} kernel={self._kernel.name!r}>"


class MemcpyNode(GraphNode):
    """A copy."""

    __slots__ = ("_dst", "_src")
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMCPY
    _dst: Bytes
    _src: Bytes

    @property
    def dst(self) -> int:
        """The address that is written."""
        return int(self._dst.ctypes.data)

    @property
    def src(self) -> int:
        """The address that is read."""
        return int(self._src.ctypes.data)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self._src.nbytes


class MemsetNode(GraphNode):
    """The filling of memory with a pattern."""

    __slots__ = ("_dst", "_pattern")
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEMSET
    _dst: Bytes
    _pattern: bytes

    @property
    def dptr(self) -> int:
        """The address that is written."""
        return int(self._dst.ctypes.data)

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
        return self._dst.nbytes // len(self._pattern)

    @property
    def height(self) -> int:
        """The number of rows."""
        return 1

    @property
    def pitch(self) -> int:
        """The bytes from row to row; unused, since there is one row."""
        return 0


class HostCallbackNode(GraphNode):
    """The call of a function on the host."""

    __slots__ = ("_callback",)
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_HOST
    _callback: Callable[[], object]

    @property
    def callback(self) -> Callable[[], object]:
        """The function."""
        return self._callback


class EmptyNode(GraphNode):
    """A node without work, which joins others."""

    __slots__ = ()
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EMPTY
    _takes_time = False


class EventRecordNode(GraphNode):
    """The record of an event by every launch of the graph (:func:`penstock.gpu.record_external`)."""

    __slots__ = ("_event",)
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_EVENT_RECORD
    _takes_time = False
    _event: Event

    @property
    def event(self) -> Event:
        """The event that is recorded."""
        return self._event

    def _prepare(self, timeline: Timeline) -> Operation:
        self._event._check()
        fence = Fence(timeline)
        self._event._set_fence(fence)
        return SignalFence(fence)


class EventWaitNode(GraphNode):
    """A wait for an event from outside the graph (:func:`penstock.gpu.wait_external`)."""

    __slots__ = ("_event",)
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_WAIT_EVENT
    _takes_time = False
    _event: Event

    @property
    def event(self) -> Event:
        """The event that is waited for."""
        return self._event

    def _prepare(self, timeline: Timeline) -> Operation:
        self._event._check()
        fence = self._event._fence
        return DoNothing() if fence is None else WaitForFence(fence)


class AllocNode(GraphNode):
    """The allocation of memory that belongs to the graph."""

    __slots__ = ("_memory",)
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC
    _takes_time = False
    _memory: Bytes

    @property
    def dptr(self) -> int:
        """The address of the memory."""
        return int(self._memory.ctypes.data)

    @property
    def bytesize(self) -> int:
        """The number of bytes."""
        return self._memory.nbytes

    @property
    def device_id(self) -> int:
        """The number of the device that the memory belongs to."""
        return self._context.device.index

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

    __slots__ = ("_memory",)
    _type = CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_FREE
    _takes_time = False
    _memory: Bytes

    @property
    def dptr(self) -> int:
        """The address of the memory."""
        return int(self._memory.ctypes.data)
