"""Buffers of a simulated device: bytes that NumPy holds, copied in stream order."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from headrace.gpu.sim.capture import refuse_unsafe
from headrace.gpu.sim.graph import GraphNode, MemcpyNode, MemsetNode
from headrace.gpu.sim.ipc import IPCAllocationHandle, IPCBufferDescriptor, MappedPool, SharedPool
from headrace.gpu.sim.machine import DeviceState, Machine, current_machine, existing_machine
from headrace.gpu.sim.memory_pool import Bytes, MemoryPool, find_in
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.operations import CopyEngine, StreamQueue, Transfer

if TYPE_CHECKING:
    from headrace.gpu.sim.device import Device
    from headrace.gpu.sim.graph import GraphBuilder
    from headrace.gpu.sim.stream import Stream

    AnyStream: TypeAlias = Stream | GraphBuilder

# DLPack's device types for device memory, pinned host memory and managed memory.
_CUDA, _CUDA_HOST, _CUDA_MANAGED = 2, 3, 13


class MemoryResource:
    """A source of buffers."""

    is_device_accessible = True
    is_host_accessible = False
    device_id = -1


class _ResourceOfDevice(MemoryResource):
    def __init__(self, device_id: int | Device) -> None:
        from headrace.gpu.sim.device import Device  # a cycle: the device has memory

        self._device = Device(device_id)._state
        self.device_id = self._device.index


@dataclass
class DeviceMemoryResourceOptions:
    """The options of a memory resource with a pool of its own.

    Attributes
    ----------
    ipc_enabled : bool
        Whether other processes can use its buffers.
    max_size : int
        The most bytes that it allocates; 0 for all of the device.
    """

    ipc_enabled: bool = False
    max_size: int = 0


class DeviceMemoryResource(_ResourceOfDevice):
    """The memory of a simulated device, named by its number or by its Device.

    Without options, it is the pool of the device, and that is so for options without IPC too. With IPC it is a pool
    of its own that lies in shared memory.
    """

    def __init__(
        self,
        device_id: int | Device,
        options: DeviceMemoryResourceOptions | dict[str, Any] | None = None,
    ) -> None:
        super().__init__(device_id)
        self._pool = self._device.memory
        if options is not None:
            chosen = options_of(DeviceMemoryResourceOptions, options, "DeviceMemoryResource")
            if chosen.ipc_enabled:
                lock, most = self._device.machine.timeline.lock, self._device.profile.memory
                self._pool = SharedPool(chosen.max_size or most, lock)
                self._device.shared_pools.add(self._pool)

    @classmethod
    def from_allocation_handle(
        cls, device_id: int | Device, alloc_handle: int | IPCAllocationHandle
    ) -> DeviceMemoryResource:
        """Return the pool of another process, whose buffers can be imported; it allocates none."""
        if isinstance(alloc_handle, IPCAllocationHandle) and alloc_handle.is_closed:
            raise RuntimeError("the IPCAllocationHandle has been closed")
        mapped = cls(device_id)
        mapped._pool = MappedPool(int(alloc_handle), mapped._device.machine.timeline.lock)
        mapped._device.shared_pools.add(mapped._pool)
        return mapped

    @property
    def is_ipc_enabled(self) -> bool:
        """Whether it shares buffers with other processes."""
        return isinstance(self._pool, SharedPool | MappedPool)

    @property
    def is_mapped(self) -> bool:
        """Whether it is the pool of another process."""
        return isinstance(self._pool, MappedPool)

    @property
    def allocation_handle(self) -> IPCAllocationHandle:
        """The file descriptor by which another process imports the pool; it belongs to this object."""
        return _shared(self).handle

    def allocate(self, size: int, *, stream: AnyStream) -> Buffer:
        """Allocate a buffer for use on that stream."""
        return allocate_buffer(self._device, size, stream._queue, self)

    def close(self) -> None:
        """Do nothing more: buffers keep what they need."""


class _ResourceOfHost(MemoryResource):
    is_host_accessible = True
    known: ClassVar[weakref.WeakValueDictionary[int, Bytes]]  # what was allocated, by address

    def allocate(self, size: int, *, stream: AnyStream | None = None) -> Buffer:
        """Allocate a buffer that the host can read through DLPack."""
        machine = existing_machine()
        if machine is not None and machine.captures:
            with machine.timeline.lock:
                refuse_unsafe(machine, "allocating memory of the host")
        memory = np.zeros(_checked(size), np.uint8)
        self.known[int(memory.ctypes.data)] = memory
        return Buffer._create(memory, None, None, self)


class LegacyPinnedMemoryResource(_ResourceOfHost):
    """Pinned host memory, which simulated devices can access."""

    known: ClassVar[weakref.WeakValueDictionary[int, Bytes]] = weakref.WeakValueDictionary()


class ManagedMemoryResource(_ResourceOfHost):
    """Memory that the host and simulated devices can access; its pages are not simulated."""

    known: ClassVar[weakref.WeakValueDictionary[int, Bytes]] = weakref.WeakValueDictionary()


@dataclass(slots=True, eq=False, repr=False)
class Buffer(metaclass=MadeByDriver):
    """A block of simulated memory."""

    __headrace_device__: ClassVar = "sim"
    _made_by: ClassVar = "Device.allocate, a memory resource or from_handle"
    _memory: Bytes | None
    _device: DeviceState | None
    _queue: StreamQueue | None  # in whose order it is freed, or None if it frees nothing of the device
    _resource: MemoryResource
    _owner: object = None
    # The memory resource of a program, and the stream, that free the memory behind a handle.
    _deallocates: tuple[Any, AnyStream | None] | None = None

    @staticmethod
    def from_handle(
        ptr: int, size: int, mr: Any = None, owner: object | None = None, *, stream: AnyStream | None = None
    ) -> Buffer:
        """Return a buffer on memory of the simulated machine that belongs to somebody else.

        Parameters
        ----------
        ptr, size
            The memory, inside of one allocation of a device or of pinned or managed memory.
        mr
            A memory resource of the program. Its ``deallocate(ptr, size, stream=stream)`` is called when the buffer
            is closed or destroyed.
        owner
            An object to keep as long as the buffer. Without either, the buffer refers to the memory and no more.
        stream
            Passed to ``mr.deallocate``.
        """
        if mr is not None and owner is not None:
            raise ValueError("owner and mr cannot be specified together: either keeps the memory")
        device, memory, resource = find_memory(current_machine(), int(ptr), _checked(size))
        return Buffer._create(memory, device, None, resource, owner, None if mr is None else (mr, stream))

    @classmethod
    def from_ipc_descriptor(
        cls, mr: DeviceMemoryResource, ipc_descriptor: IPCBufferDescriptor, *, stream: AnyStream
    ) -> Buffer:
        """Return a buffer of another process, whose pool was imported as `mr`; `stream` is that of its end."""
        if not isinstance(ipc_descriptor, IPCBufferDescriptor):
            raise TypeError(
                f"Argument 'ipc_descriptor' has incorrect type: {type(ipc_descriptor).__name__}, not "
                "IPCBufferDescriptor"
            )
        pool = _shared(mr)
        if not isinstance(pool, MappedPool):
            raise CUDAError("CUDA_ERROR_INVALID_VALUE: a buffer is imported by another process than its own")
        with stream._queue.timeline.lock:
            memory = pool.map(ipc_descriptor._payload, ipc_descriptor.size)
        return Buffer._create(memory, mr._device, stream._queue, mr)

    @property
    def ipc_descriptor(self) -> IPCBufferDescriptor:
        """What another process needs to import the buffer."""
        memory, pool = self._open(), _shared(self._resource)
        if not isinstance(pool, SharedPool):
            raise CUDAError("CUDA_ERROR_INVALID_VALUE: a buffer is exported by its own process")
        return IPCBufferDescriptor._init(pool.describe(memory), memory.size)

    @property
    def is_mapped(self) -> bool:
        """Whether it is a buffer of another process."""
        return isinstance(self._resource, DeviceMemoryResource) and self._resource.is_mapped

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
        return self._resource if self._deallocates is None else self._deallocates[0]

    @property
    def owner(self) -> object:
        """The object that keeps its memory, if the buffer was created from a handle with one."""
        return self._owner

    def copy_to(self, dst: Buffer | None = None, *, stream: AnyStream) -> Buffer:
        """Copy into another buffer (by default a new one) in stream order; return that buffer."""
        source = self._open()
        if dst is None:
            if self._device is None:
                raise ValueError("copy_to needs a destination: the source is not a device buffer")
            dst = allocate_buffer(self._device, source.size, stream._queue, self._resource)
        target = dst._open()
        if source.size != target.size:
            raise ValueError(
                f"a copy needs buffers of the same size, got source {source.size} and destination {target.size}"
            )
        copy_memory(stream, target, source, dst._device, self._device)
        return dst

    def copy_from(self, src: Buffer, *, stream: AnyStream) -> None:
        """Copy from another buffer in stream order."""
        src.copy_to(self, stream=stream)

    def fill(self, value: int | bytes, *, stream: AnyStream) -> None:
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
        _transfer(stream, engine, effect, MemsetNode, target)

    def close(self, stream: AnyStream | None = None) -> None:
        """Free the memory in stream order (by default of the stream it was allocated on)."""
        memory, own, deallocates = self._memory, self._queue, self._deallocates
        self._memory = self._deallocates = None
        if memory is None:
            return
        if deallocates is not None:
            resource, of_creation = deallocates
            resource.deallocate(
                int(memory.ctypes.data), memory.size, stream=of_creation if stream is None else stream
            )
        if self._device is None or own is None:  # nothing is freed: the memory belongs to somebody else
            self._owner = None
            return
        pool_of(self._resource, self._device).free(memory, own if stream is None else stream._queue)

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None:
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

    def __simulated_memory__(self) -> Bytes:
        return self._open()

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
    """Return the bytes of a buffer or another object with ``__simulated_memory__``; else None."""
    find = getattr(type(argument), "__simulated_memory__", None)
    if find is None:
        return None
    memory: Bytes = find(argument)
    return memory


def find_memory(
    machine: Machine, address: int, size: int
) -> tuple[DeviceState | None, Bytes, MemoryResource]:
    """Return the memory at an address: its device if it is on one, its bytes, and a resource of its kind."""
    for kind in (LegacyPinnedMemoryResource, ManagedMemoryResource):
        found = find_in(kind.known, address, size)
        if found is not None:
            return None, found, kind()
    with machine.timeline.lock:
        device, found = _find_on_devices(machine, address, size)
    return device, found, DeviceMemoryResource(device.index)


def _find_on_devices(machine: Machine, address: int, size: int) -> tuple[DeviceState, Bytes]:
    """Return the device memory at an address, and its device; the lock is held."""
    for device in machine.devices:
        for pool in device.pools:
            found = pool.find(address, size)
            if found is not None:
                return device, found
    raise CUDAError(
        f"CUDA_ERROR_INVALID_VALUE: there are no {size} bytes of simulated memory at {address:#x}"
    )


def allocate_buffer(device: DeviceState, size: int, queue: StreamQueue, resource: MemoryResource) -> Buffer:
    """Allocate memory of a device for use on a stream, which must not be capturing."""
    with queue.timeline.lock:
        if queue.capture is not None:
            raise RuntimeError(
                "memory of a pool cannot be allocated on a capturing stream; allocate it before the capture, or "
                "use GraphMemoryResource"
            )
        memory = pool_of(resource, device).allocate(_checked(size), queue)
    return Buffer._create(memory, device, queue, resource)


def pool_of(resource: MemoryResource, device: DeviceState) -> MemoryPool:
    """Return the pool that a resource of a device allocates from."""
    return resource._pool if isinstance(resource, DeviceMemoryResource) else device.memory


def _shared(resource: MemoryResource) -> SharedPool | MappedPool:
    """Return the pool of a resource with IPC; an error if it has none."""
    pool = getattr(resource, "_pool", None)
    if not isinstance(pool, SharedPool | MappedPool):
        raise RuntimeError("Memory resource is not IPC-enabled")
    return pool


def copy_memory(
    stream: AnyStream,
    target: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    to_device: DeviceState | None,
    from_device: DeviceState | None,
    around: Callable[[Callable[[], object]], Callable[[], object]] | None = None,
) -> None:
    """Copy an array to another in stream order, by the copy engine between the memories that they are in.

    `around` returns what is called in the place of the copy's effect.
    """
    device = stream._queue.context.device
    engine = device.to_host
    if to_device is not None:
        engine = device.within_device if from_device is not None else device.to_device
        if from_device not in (None, to_device):
            engine = device.from_peer
    effect: Callable[[], object] = partial(np.copyto, target, source)
    _transfer(stream, engine, effect if around is None else around(effect), MemcpyNode, target, source)


def copy_between(stream: Stream, target: int | Bytes, source: int | Bytes, size: int) -> None:
    """Copy in stream order between memory at addresses and plain memory of the host, which is given as an array.

    Plain memory has been read when this returns, as CUDA promises.
    """
    machine = stream._queue.context.device.machine
    to_device = from_device = None
    if isinstance(target, int):
        to_device, target, _ = find_memory(machine, target, size)
    if isinstance(source, int):
        from_device, source, _ = find_memory(machine, source, size)
    else:
        source = source.copy()
    copy_memory(stream, _flat(target), _flat(source), to_device, from_device)


def _flat(memory: np.ndarray[Any, Any]) -> Bytes:
    return memory.reshape(-1).view(np.uint8)


def copy_of_launch(device: DeviceState, target: int, source: int, size: int) -> Transfer:
    """Return the copy of device memory of one launch of a graph; the lock is held."""
    written, read = (_find_on_devices(device.machine, address, size)[1] for address in (target, source))
    return Transfer(device.within_device, size, partial(np.copyto, written, read))


def _transfer(
    stream: AnyStream,
    engine: CopyEngine,
    effect: Callable[[], object],
    kind: type[GraphNode],
    target: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any] | None = None,
) -> None:
    queue = stream._queue
    device = queue.context.device
    device.machine.check()
    operation = Transfer(engine, target.nbytes, effect, overhead=device.launch_overhead)
    with queue.timeline.lock:
        queue.add(kind, operation, (target, source))


def _checked(size: int) -> int:
    if size < 0:
        raise OverflowError(f"the size of a buffer must not be negative, got {size}")
    return size
