"""Frames in the memory of a device on their way to another process, by CUDA IPC or through the host.

A **device segment** is memory of a device that another process can map: a pool of its own with one buffer. The
descriptor of the pool travels over the Unix socket, beside the descriptor of the buffer (64 bytes) and the name of
the device. The receiver maps it once and answers whether it can; from then on a frame is named by its place in it,
as a frame in shared memory of the host is. So slots, leases and the bound of the memory are those of `ring` and
`protocol`.

**No stream waits on a device for another process.** A stream that waits for an event of a process that is killed
never completes (tried on an H200), and then its own process has to be killed too. So no event crosses:

- The sender copies a frame into a slot on a stream of its own, which it orders after the work behind the frame. It
  announces the frame when that copy is complete. The receiver may read it on any stream at once.
- The receiver returns a slot when the work of all streams that may have used the frame is complete
  (`gpu.allocation`). The sender may write it on any stream at once.

Both are told by `gpu.when_done`, which waits on a thread. The price is the time from the end of the copy to that
thread (`benchmarks/device_link.py`). Nothing is waited for in between: copies of several frames are under way at
once.

Where a receiver cannot map the memory (no IPC, another device, another kind of device, another user, another host),
the frame is copied to pinned memory of the host and travels as frames of the host do. The receiver copies it to its
device, and the frame can be taken when that copy is complete. The log says so once.

Decided against: waiting on the host for the events of the peer, beside the liveness of the link. It saves nothing,
because the receiver's work cannot be submitted earlier either, and costs an event of each frame: 30 µs to make one
and to import it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from headrace import gpu
from headrace.gpu.allocation import Allocation, StreamUser
from headrace.gpu.backend import active
from headrace.tensor import Tensor
from headrace.tensor.description import compute_layout
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType

_PAYLOAD = 64  # bytes of the descriptor of a buffer


class DeviceBytes:
    """Bytes that a device knows by their address: in its own memory, or in pinned memory of the host."""

    __slots__ = ("address", "nbytes")

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes

    def __getitem__(self, key: slice) -> DeviceBytes:
        start, stop, _ = key.indices(self.nbytes)
        return DeviceBytes(self.address + start, stop - start)

    def __len__(self) -> int:
        return self.nbytes


class DevicePiece(NamedTuple):
    """The memory of a tensor on a device that is to be sent: from its first byte to its last, gaps included."""

    tensor: Tensor
    address: int
    nbytes: int

    @classmethod
    def of(cls, tensor: Tensor) -> DevicePiece:
        """Return the memory of a tensor."""
        if not tensor.size:
            return cls(tensor, tensor.data, 0)
        _, first, end = compute_layout(tensor.shape, tensor.strides, 1, tensor.itemsize)
        return cls(tensor, tensor.data + first, end - first)

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self.tensor.device.device_id


class DeviceSegment:
    """Memory of a device that both processes have mapped.

    Attributes
    ----------
    memory
        Its bytes.
    size
        Their number.
    device_id
        The number of the device in this process.
    description
        What the other process needs beside the descriptor: the name of the device, and where the buffer is.
    """

    __slots__ = ("__weakref__", "_pool", "address", "buffer", "description", "device_id", "memory", "size")
    is_reused = True  # the other process has to let go of it first

    def __init__(self, pool: Any, buffer: Any, device_id: int, description: bytes = b"") -> None:
        self._pool, self.buffer = pool, buffer
        self.device_id = device_id
        self.description = description
        self.address, self.size = int(buffer.handle), int(buffer.size)
        self.memory = DeviceBytes(self.address, self.size)

    @classmethod
    def create(cls, size: int, device_id: int) -> DeviceSegment:
        """Return new memory of a device; what the device or the driver raises says that it has no IPC."""
        with gpu.on_device(device_id):
            device = gpu.Device(device_id)
            options = gpu.DeviceMemoryResourceOptions(ipc_enabled=True)
            pool = gpu.DeviceMemoryResource(device, options)
            stream = device.create_stream()
            buffer = pool.allocate(size, stream=stream)
            stream.sync()  # once: the memory exists before another stream, or another process, uses it
            payload, _ = buffer.ipc_descriptor.__reduce__()[1]
        return cls(pool, buffer, device_id, bytes(payload) + str(device.uuid).encode())

    @classmethod
    def from_peer(cls, descriptor: int, size: int, description: bytes) -> DeviceSegment:
        """Map memory that another process made; any error says that this process cannot.

        What comes from the peer is checked by cuda.core and the driver. The peer is a process of the same run.
        """
        backend = active()
        if not backend.has_devices:
            raise RuntimeError("this process uses no device")
        name = description[_PAYLOAD:].decode()
        found = [device for device in gpu.Device.get_all_devices() if str(device.uuid) == name]
        if not found:
            raise RuntimeError(f"this process does not see the device {name!r}")
        device = found[0]
        with gpu.on_device(device.device_id):
            pool = gpu.DeviceMemoryResource.from_allocation_handle(device, descriptor)
            described = backend.buffer_descriptor(description[:_PAYLOAD], size)
            buffer = gpu.Buffer.from_ipc_descriptor(pool, described, stream=device.create_stream())
        return cls(pool, buffer, device.device_id)

    def fileno(self) -> int:
        """Return the descriptor of its pool, in the process that made it."""
        return int(self._pool.allocation_handle)


class DeviceCopies:
    """The streams on which an end of a link copies, one for each device."""

    def __init__(self) -> None:
        self._streams: dict[int, gpu.StreamHandle] = {}

    def on(self, device_id: int) -> gpu.StreamHandle:
        """Return the stream for a device."""
        if device_id not in self._streams:
            with gpu.on_device(device_id):
                self._streams[device_id] = gpu.StreamHandle(gpu.Device(device_id).create_stream())
        return self._streams[device_id]

    def start(
        self,
        copies: Iterable[tuple[DevicePiece, Any]],
        then: Callable[[Exception | None], object],
    ) -> None:
        """Copy pieces to bytes of a device or arrays of the host, and call a function when all is done.

        Each copy comes after the work behind its tensor. The tensors are kept until then.
        """
        kept = list(copies)
        used: dict[int, gpu.StreamHandle] = {}
        for piece, target in kept:
            with gpu.on_device(piece.device_id):
                stream = used[piece.device_id] = self.on(piece.device_id)
                work = piece.tensor._pending_work
                if work is not None:
                    work.order(stream)
                place = target.address if isinstance(target, DeviceBytes) else _host_place(target)
                if piece.nbytes:
                    stream.backend.copy(stream, place, piece.address, piece.nbytes)
        _when_all_done(used.items(), kept, then)


def _host_place(array: Any) -> Any:
    """Return where an array of the host is, as a backend takes it: an address if it is pinned."""
    return int(array.ctypes.data) if active().is_pinned(array) else array


def _when_all_done(
    streams: Iterable[tuple[int, Any]], kept: list[Any], then: Callable[[Exception | None], object]
) -> None:
    """Call a function when the work on streams so far is complete, and keep objects until then.

    Each stream comes with the number of its device.
    """
    waited = list(streams)
    lock = threading.Lock()
    left = len(waited)
    failed: list[Exception] = []

    def one_done(error: Exception | None) -> None:
        nonlocal left
        with lock:
            left -= 1
            if error is not None:
                failed.append(error)
            is_last = not left
        if is_last:
            kept.clear()
            then(failed[0] if failed else None)

    for device_id, stream in waited:
        with gpu.on_device(device_id):
            gpu.when_done(stream, one_done)


class _Block:
    """Memory of a device while a received frame lies there."""

    __slots__ = ("_buffer", "_end", "_offset", "address", "device_id")

    def __init__(self, buffer: Any, offset: int, device_id: int, end: Callable[[], object]) -> None:
        self._buffer = buffer
        self._offset = offset
        self._end = end
        self.address = int(buffer.handle) + offset
        self.device_id = device_id

    def memory_bytes(self) -> Any:
        """Return the bytes, where the device is simulated."""
        return self._buffer.__simulated_memory__()[self._offset :]

    def view(self, size: int, owner: object) -> Any:
        """Return a buffer on its first bytes."""
        return gpu.Buffer.from_handle(self.address, size, owner=owner)

    def end(self) -> None:
        """Pass the memory to its next user."""
        self._end()


class ReceivedFrames:
    """The pool of received frames: the memory of each goes to its next user when the work on it is complete.

    Parameters
    ----------
    give_back
        Called with the number of a lease whose memory goes back to the sender, by any thread.
    call_soon
        Calls a function on another thread. It is used in finalizers, so it takes no lock.
    """

    def __init__(
        self, give_back: Callable[[int], None], call_soon: Callable[[Callable[[], object]], object]
    ) -> None:
        self._give_back = give_back
        self._call_soon = call_soon

    def collect(self) -> None:
        """Do nothing: another thread records the events as soon as it runs."""

    def receive(self, segment: DeviceSegment, offset: int, length: int, lease: int) -> Allocation:
        """Return the memory of a frame that lies in a segment; it goes back to the sender."""
        block = _Block(segment.buffer, offset, segment.device_id, partial(self._give_back, lease))
        return Allocation(self, block, length, [])

    def own(self, buffer: Any, device_id: int) -> Allocation:
        """Return memory of this process for a frame; it is freed."""
        return Allocation(self, _Block(buffer, 0, device_id, buffer.close), int(buffer.size), [])

    def give_back(self, block: _Block, users: list[StreamUser]) -> None:
        """Let go of a frame's memory; called by finalizers."""
        self._call_soon(lambda: self._finish(block, users))

    def _finish(self, block: _Block, users: list[StreamUser]) -> None:
        """End the use of a block when the streams of its users have completed their work so far."""
        streams: dict[tuple[int, int], Any] = {}
        for user in users:
            for managed in user.streams():
                streams[managed.device_id, int(managed.handle)] = managed
        # A stream is closed at the end of a run, after its work.
        used = [(managed.device_id, managed.handle) for managed in streams.values() if _is_open(managed)]
        if used:
            # If the device has failed, the memory goes back too: nobody can use it any more.
            _when_all_done(used, [], lambda error: block.end())
        else:
            block.end()


def _is_open(managed: Any) -> bool:
    with suppress(Exception):  # it has no handle any more
        return int(managed.handle) <= 1 or bool(int(managed.stream.handle))
    return False


def tensor_in(memory: Allocation, element: DLDataType, shape: tuple[int, ...], strides: Any) -> Tensor:
    """Return a tensor whose first byte is that of an allocation on a device."""
    steps, first, _ = compute_layout(shape, strides, 1, element.itemsize)
    where = DLDevice(DLDeviceType.CUDA, memory._block.device_id)
    return Tensor._at((memory.address - first, shape, steps, element, where, False), memory)


class Uploads:
    """Copies of received frames from the host to the first device of this process; `pool` is that of the frames."""

    def __init__(self, pool: ReceivedFrames) -> None:
        self._pool = pool
        self._stream = DeviceCopies().on(0)
        self._kept: list[Any] = []

    def add(
        self, memory: np.ndarray[Any, Any], element: DLDataType, shape: tuple[int, ...], strides: Any
    ) -> Tensor:
        """Return a tensor on the device whose bytes are being copied from an array of bytes."""
        stream = self._stream
        with gpu.on_device(0):
            buffer = gpu.Device(0).allocate(max(memory.nbytes, 1), stream=stream.stream)
            tensor = tensor_in(self._pool.own(buffer, 0), element, shape, strides)
            if memory.nbytes:
                stream.backend.copy(stream, int(buffer.handle), _host_place(memory), memory.nbytes)
        self._kept.append(memory)
        return tensor

    def then(self, function: Callable[[Exception | None], object]) -> bool:
        """Call a function when the copies since the last call are complete; return False if there were none."""
        kept, self._kept = self._kept, []
        if kept:
            _when_all_done([(0, self._stream)], kept, function)
        return bool(kept)
