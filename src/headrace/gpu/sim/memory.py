"""Buffers of a simulated device: bytes that NumPy holds, copied in stream order."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.gpu.sim.capture import refuse_unsafe
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.graph_nodes import AllocNode, FreeNode, GraphNode, MemcpyNode, MemsetNode
from headrace.gpu.sim.machine import existing_machine
from headrace.gpu.sim.memory_pool import AddressSpan, Bytes, MemoryPool
from headrace.gpu.sim.operations import CopyEngine, DoNothing, Transfer
from headrace.gpu.sim.stream_queues import StreamQueue

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.device_state import DeviceState
    from headrace.gpu.sim.graph_builder import GraphBuilder
    from headrace.gpu.sim.recorded_node import RecordedNode
    from headrace.gpu.sim.stream import Stream

# DLPack's device types for device memory, pinned host memory and managed memory.
_CUDA, _CUDA_HOST, _CUDA_MANAGED = 2, 3, 13


class MemoryResource:
    """A source of buffers."""

    is_device_accessible = True
    is_host_accessible = False
    device_id = -1


class DeviceMemoryResource(MemoryResource):
    """The memory of a simulated device, named by its number or by its Device."""

    def __init__(self, device_id: int | Device) -> None:
        from headrace.gpu.sim.device import Device  # a cycle: the device has memory

        self._device = Device(device_id)._state
        self.device_id = self._device.index

    def allocate(self, size: int, *, stream: Stream | GraphBuilder) -> Buffer:
        """Allocate a buffer for use on that stream."""
        return _allocate(self._device, size, stream._queue, self)


class LegacyPinnedMemoryResource(MemoryResource):
    """Pinned host memory, which simulated devices can access."""

    is_host_accessible = True

    def allocate(self, size: int, *, stream: Stream | GraphBuilder | None = None) -> Buffer:
        """Allocate a buffer that the host can read through DLPack."""
        _refuse_unsafe("allocating memory of the host")
        return Buffer._create(np.zeros(_checked(size), np.uint8), None, None, self)


class ManagedMemoryResource(MemoryResource):
    """Memory that the host and simulated devices can access; its pages are not simulated."""

    is_host_accessible = True

    def allocate(self, size: int, *, stream: Stream | GraphBuilder | None = None) -> Buffer:
        """Allocate a buffer that the host can read through DLPack."""
        _refuse_unsafe("allocating memory of the host")
        return Buffer._create(np.zeros(_checked(size), np.uint8), None, None, self)


class GraphMemoryResource(MemoryResource):
    """Memory that belongs to a graph: an allocation on a capturing stream is a node of the graph.

    The simulated memory exists as long as the graph or the buffer, whichever is longer.
    """

    def __init__(self, device_id: int | Device) -> None:
        from headrace.gpu.sim.device import Device  # a cycle, as above

        self._device = Device(device_id)._state
        self.device_id = self._device.index

    def allocate(self, size: int, *, stream: Stream | GraphBuilder) -> Buffer:
        """Allocate a buffer for the graph that a stream records; closing it on such a stream frees it there."""
        queue = stream._queue
        with queue.timeline.lock:
            if queue.capture is None:
                raise RuntimeError("GraphMemoryResource allocates memory only on a stream that captures")
            queue.capture.check()
            memory = self._device.memory.allocate(_checked(size), queue)
            owner = _GraphMemory(self._device.memory, memory, queue)
            queue.capture.add(queue, AllocNode, DoNothing(), memory=memory, owner=owner)
        buffer = Buffer._create(memory, self._device, queue, self)
        buffer._owner = owner
        return buffer


class _GraphMemory:
    """Keeps memory allocated while its graph or a buffer refers to this object."""

    __slots__ = ("_memory", "_pool", "_queue")

    def __init__(self, pool: MemoryPool, memory: Bytes, queue: StreamQueue) -> None:
        self._pool = pool
        self._memory = memory
        self._queue = queue

    def __del__(self) -> None:
        self._pool.free(self._memory, self._queue)


class Buffer:
    """A block of simulated memory."""

    __slots__ = ("_device", "_memory", "_owner", "_queue", "_resource")
    _device: DeviceState | None
    _queue: StreamQueue | None
    _memory: Bytes | None
    _resource: MemoryResource
    _owner: object

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "Buffer objects cannot be created directly; use Device.allocate or a memory resource"
        )

    @classmethod
    def _create(
        cls, memory: Bytes, device: DeviceState | None, queue: StreamQueue | None, resource: MemoryResource
    ) -> Buffer:
        self = cls.__new__(cls)
        self._memory = memory
        self._device = device
        self._queue = queue
        self._resource = resource
        self._owner = None
        return self

    def _view(self, size: int, owner: object, start: int = 0) -> Buffer:
        """Return a buffer on some bytes of this one, which frees nothing and keeps its owner alive."""
        view = Buffer._create(self._open()[start : start + size], self._device, None, self._resource)
        view._owner = owner
        return view

    @property
    def handle(self) -> int:
        """The address, or 0 if closed."""
        return 0 if self._memory is None else int(self._memory.ctypes.data)

    @property
    def size(self) -> int:
        """The size in bytes, or 0 if closed."""
        return 0 if self._memory is None else self._memory.size

    @property
    def device_id(self) -> int:
        """The number of the device that the memory belongs to, or -1 for host memory."""
        return self._resource.device_id

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._memory is None

    @property
    def is_device_accessible(self) -> bool:
        """Whether kernels can access it."""
        return self._resource.is_device_accessible

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host can access it."""
        return self._resource.is_host_accessible

    @property
    def memory_resource(self) -> MemoryResource:
        """The memory resource that allocated it."""
        return self._resource

    def copy_to(self, dst: Buffer | None = None, *, stream: Stream | GraphBuilder) -> Buffer:
        """Copy into another buffer (by default a new one) in stream order; return that buffer."""
        source = self._open()
        if dst is None:
            if self._device is None:
                raise ValueError("copy_to needs a destination: the source is not a device buffer")
            dst = _allocate(self._device, source.size, stream._queue, self._resource)
        target = dst._open()
        if source.size != target.size:
            raise ValueError(
                f"a copy needs buffers of the same size, got source {source.size} and destination {target.size}"
            )
        copy_memory(stream, target, source, dst._device is not None, self._device is not None)
        return dst

    def copy_from(self, src: Buffer, *, stream: Stream | GraphBuilder) -> None:
        """Copy from another buffer in stream order."""
        src.copy_to(self, stream=stream)

    def fill(self, value: int | bytes, *, stream: Stream | GraphBuilder) -> None:
        """Fill with a pattern of 1, 2 or 4 bytes in stream order."""
        target = self._open()
        if isinstance(value, int):
            if not 0 <= value < 256:
                raise OverflowError(f"an int fill value must be within [0, 256), got {value}")
            value = bytes([value])
        pattern = np.frombuffer(value, np.uint8)
        if pattern.size not in (1, 2, 4):
            raise ValueError(f"a fill pattern must be 1, 2 or 4 bytes long, got {pattern.size}")
        if target.size % pattern.size:
            raise ValueError(
                f"{target.size} bytes are not a multiple of the {pattern.size}-byte fill pattern"
            )
        whole = target.reshape(-1, pattern.size)
        engine = stream._queue.context.device.within_device
        effect = partial(np.copyto, whole, pattern)
        _transfer(stream, engine, effect, MemsetNode, dst=target, pattern=pattern.tobytes())

    def close(self, stream: Stream | GraphBuilder | None = None) -> None:
        """Free the memory in stream order (by default of the stream it was allocated on)."""
        memory, queue = self._memory, self._queue if stream is None else stream._queue
        self._memory = None
        if memory is None or self._device is None or queue is None:
            return
        if not isinstance(self._resource, GraphMemoryResource):
            self._device.memory.free(memory, queue)
            return
        with queue.timeline.lock:
            if queue.capture is not None:
                queue.capture.add(queue, FreeNode, DoNothing(), memory=memory)
        self._owner = None

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is None:
            return
        if isinstance(self._resource, GraphMemoryResource):
            return  # recording a node would take the lock; the memory goes with the graph
        self.close()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        memory = self._open()
        if self._device is not None:
            raise BufferError("the host cannot read device memory; copy it to pinned memory first")
        return memory.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._device is not None:
            return (_CUDA, self._device.index)
        return (_CUDA_MANAGED if isinstance(self._resource, ManagedMemoryResource) else _CUDA_HOST, 0)

    def __repr__(self) -> str:
        return f"<Buffer handle={self.handle:#x} size={self.size}>"

    def _open(self) -> Bytes:
        if self._memory is None:
            raise RuntimeError("this buffer has been closed")
        return self._memory


def host_view(buffer: Any) -> Bytes:
    """Return a view of the bytes of a simulated buffer or tensor at this moment, as a debugger would show them."""
    found = memory_of(buffer)
    if found is None:
        raise TypeError(
            f"host_view takes a buffer or a tensor of a simulated device, not {type(buffer).__name__}"
        )
    return found


def memory_of(argument: Any) -> Bytes | None:
    """Return the bytes of a buffer, or of an object with ``__simulated_memory__``; else None."""
    if isinstance(argument, Buffer):
        return argument._open()
    find = getattr(type(argument), "__simulated_memory__", None)
    if find is None:
        return None
    memory: Bytes = find(argument)
    return memory


def _allocate(device: DeviceState, size: int, queue: StreamQueue, resource: MemoryResource) -> Buffer:
    with queue.timeline.lock:
        if queue.capture is not None:
            raise RuntimeError(
                "memory of a pool cannot be allocated on a capturing stream; allocate it before the capture, or "
                "use GraphMemoryResource"
            )
        memory = device.memory.allocate(_checked(size), queue)
    return Buffer._create(memory, device, queue, resource)


def copy_memory(
    stream: Stream | GraphBuilder,
    target: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    to_device: bool,
    from_device: bool,
) -> None:
    """Copy an array to another in stream order, by the copy engine between the memories that they are in."""
    device = stream._queue.context.device
    engine = {
        (False, False): device.to_host,
        (False, True): device.to_device,
        (True, False): device.to_host,
        (True, True): device.within_device,
    }[from_device, to_device]
    _transfer(stream, engine, partial(np.copyto, target, source), MemcpyNode, dst=target, src=source)


def memory_at(device: DeviceState, address: int, size: int) -> Bytes:
    """Return the bytes of a device at an address, as a copy between two addresses uses them; the lock is held."""
    for each in (device, *device.machine.devices):
        found = each.memory.find(address, size)
        if found is not None:
            return found
    raise CUDAError(f"CUDA_ERROR_INVALID_VALUE: there are no {size} bytes of device memory at {address:#x}")


def copy_between(stream: Stream, target: int, source: int, size: int) -> None:
    """Copy from one address of a device to another in stream order."""
    queue = stream._queue
    with queue.timeline.lock:
        written = memory_at(queue.context.device, target, size)
        read = memory_at(queue.context.device, source, size)
    copy_memory(stream, written, read, True, True)


def recorded_copy(node: RecordedNode, target: int, source: int, size: int) -> RecordedNode:
    """Return a recorded copy with other addresses; the lock is held."""
    device = node.context.device
    written, read = memory_at(device, target, size), memory_at(device, source, size)
    engine = device.within_device
    changed = copy(node)
    changed.operation = Transfer(
        engine, period=engine.period(size), overhead=0, effect=partial(np.copyto, written, read)
    )
    changed.spans = [AddressSpan(device.memory, written), AddressSpan(device.memory, read)]
    changed.details = {"dst": written, "src": read}
    return changed


def _transfer(
    stream: Stream | GraphBuilder,
    engine: CopyEngine,
    effect: Callable[[], object],
    kind: type[GraphNode],
    *,
    dst: np.ndarray[Any, Any],
    **details: Any,
) -> None:
    queue = stream._queue
    device = queue.context.device
    device.machine.check()
    period = engine.period(dst.nbytes)
    operation = Transfer(engine, period=period, overhead=device.launch_overhead, effect=effect)
    with queue.timeline.lock:
        if queue.capture is None:
            queue.submit(operation)
        else:
            used = [found for found in (dst, details.get("src")) if found is not None]
            queue.capture.add(queue, kind, operation, used, dst=dst, **details)


def _checked(size: int) -> int:
    if size < 0:
        raise OverflowError(f"the size of a buffer must not be negative, got {size}")
    return size


def _refuse_unsafe(what: str) -> None:
    machine = existing_machine()
    if machine is not None and machine.captures:
        with machine.timeline.lock:
            refuse_unsafe(machine, what)
