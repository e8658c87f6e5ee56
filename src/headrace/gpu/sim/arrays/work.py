"""The work of arrays: on which stream it is queued, and how long its kernels take.

**The stream** is the one that :class:`headrace.gpu.use_stream` or the running operator made current on this thread,
else the default stream of the current device. Without a current device, device 0 becomes it, as in CuPy.

**The time.** Every function launches one kernel. It begins no earlier than the profile's `launch_overhead` after
the call. Its work is the bytes that it reads and writes, and its operations: one for each element, and more for
products of matrices, sorting, transforms and factorizations. It has a block of 256 threads for each 16 KiB. A block
takes as long as its share of the bytes takes at its share of the memory's bandwidth, or as long as its operations
take on its share of an SM, whichever is longer, and no less than 1.5 µs. So a kernel on a slice takes longer by the
SMs that it lacks. Copies between the host and the device occupy the copy engines.

Left out are the time that Python needs for the call in virtual time, caches, the cost of gaps between elements, and
units for one type of element (tensor cores, fewer units for float64).

The memory of arrays: blocks of a pool that the stream which freed them may reuse at once.

So a block goes to the next array of that stream while kernels of other streams may still read it, as with CuPy's
pool. Sizes are multiples of 512 bytes, also as there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.gpu.current import current_stream, use_stream
from headrace.gpu.sim.device import Device
from headrace.gpu.sim.kernel import Kernel, LaunchConfig, launch
from headrace.gpu.sim.machine import current_machine
from headrace.gpu.sim.memory import Buffer, DeviceMemoryResource, allocate_buffer, copy_memory
from headrace.gpu.sim.order import Order
from headrace.gpu.sim.stream import LEGACY_DEFAULT_STREAM, Stream, stream_of

THREADS = 256
BYTES_OF_BLOCK = 16 << 10
SHORTEST_BLOCK = 1.5e-6

View = np.ndarray[Any, Any]


def array_stream() -> Stream:
    """Return the stream on which arrays are computed on this thread."""
    current = current_stream()
    if current_machine().current_context is None:
        Device(0).set_current()
    if current is None or current.backend.runs_cuda:
        return LEGACY_DEFAULT_STREAM
    return stream_of(current)


def device_of(device: Any) -> Device:
    """Return a device that a program names; raise ValueError if it is none."""
    found = Device(device) if isinstance(device, int) else device
    if not isinstance(found, Device):
        raise ValueError(
            f"a device is a Device of headrace.gpu or its number, not {device!r}; array.get() copies to the host"
        )
    return found


@contextmanager
def on_device(device: Any, stream: Any = None) -> Iterator[None]:
    """Work on the current stream if that is one of the device, else on the default stream of the device."""
    here = array_stream().device
    if stream is None:
        wanted = here if device is None else device_of(device)
        if wanted.device_id == here.device_id:
            yield
            return
        stream = Stream._create(wanted._state.primary_context.default_queue)
    with use_stream(stream):
        yield


class _Operand:
    """An array as an argument of a kernel, which need not be contiguous."""

    __slots__ = ("view",)

    def __init__(self, view: View) -> None:
        self.view = view

    def __simulated_memory__(self) -> View:
        return self.view


def run(
    name: str,
    effect: Callable[[], object],
    reads: Sequence[View],
    writes: Sequence[View],
    operations: float | None = None,
) -> None:
    """Launch a kernel on the current stream.

    Parameters
    ----------
    name
        Its name, for traces and errors.
    effect
        What it does, when its last block ends.
    reads, writes
        The arrays that it reads and writes.
    operations
        How many operations it does; by default one for each element.
    """
    for view in writes:
        if not view.flags.writeable:
            raise ValueError(f"{name}: the array is read-only, as one that broadcast_to returned")
    stream = array_stream()
    profile = stream._queue.context.device.profile
    if operations is None:
        operations = max((view.size for view in (*reads, *writes)), default=0)
    size = sum(map(_touched, (*reads, *writes)))
    blocks = max(1, -(-size // BYTES_OF_BLOCK))
    on_sm = min(profile.threads_per_sm // THREADS, profile.blocks_per_sm)
    moving = size / blocks * profile.sm_count * on_sm / profile.memory_bandwidth
    computing = operations / blocks * on_sm / profile.operations_per_sm
    ordered = Order(name, stream, reads, writes).around(effect)
    kernel = Kernel(name, max(SHORTEST_BLOCK, moving, computing), lambda *_: ordered())
    launch(stream, LaunchConfig(grid=blocks, block=THREADS), kernel, *map(_Operand, (*reads, *writes)))


def _touched(view: View) -> int:
    """Return the bytes of a view; an element that it repeats counts once."""
    sizes = zip(view.shape, view.strides, strict=True)
    return int(view.itemsize * math.prod(extent for extent, stride in sizes if stride or not extent))


def to_device(target: View, values: View) -> None:
    """Copy from the host; the values have been read when this returns."""
    stream = array_stream()
    ordered = Order("copy from the host", stream, (), (target,))
    copied = np.array(values, dtype=target.dtype)
    device = stream._queue.context.device
    copy_memory(stream, target, copied, device, None, around=ordered.around)


def to_host(source: View) -> View:
    """Copy to the host, and wait for the stream."""
    stream = array_stream()
    ordered = Order("copy to the host", stream, (source,), ())
    target = np.empty(source.shape, source.dtype)
    copy_memory(stream, target, source, None, stream._queue.context.device, around=ordered.around)
    stream.sync()
    return target


def wait_for(handle: int) -> None:
    """Order the current stream after the work of another, given by its handle."""
    _order(Stream.from_handle(handle), array_stream())


def order(handle: int) -> None:
    """Order another stream, given by its handle, after the work of the current one."""
    if handle == 0:
        raise BufferError("stream 0 is not valid in DLPack: 1 is the default stream")
    _order(array_stream(), Stream.from_handle(handle))


def _order(earlier: Stream, later: Stream) -> None:
    if earlier.handle != later.handle:
        later.wait(earlier.record())


def views_in(values: Iterable[Any]) -> list[View]:
    """Return the NumPy arrays among some values, and in the lists and tuples among them."""
    found: list[View] = []
    for value in values:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += views_in(value)
    return found


_UNIT = 512


def allocate(size: int) -> Any:
    """Return memory for use on the current stream."""
    size = max(-(-size // _UNIT), 1) * _UNIT
    if _thread.pool is not None:
        return _thread.pool.take(size)
    queue = array_stream()._queue
    device = queue.context.device
    return allocate_buffer(device, size, queue, DeviceMemoryResource(device.index))


class PrivatePool:
    """A pool for work that is recorded: what it has handed out stays allocated, and goes to nobody else."""

    def __init__(self) -> None:
        self._unused: dict[int, list[Buffer]] = {}

    def take(self, size: int) -> _Block:
        """Return memory."""
        unused = self._unused.setdefault(size, [])
        if unused:
            return _Block(self, unused.pop())
        context = array_stream()._queue.context
        resource = DeviceMemoryResource(context.device.index)
        return _Block(self, allocate_buffer(context.device, size, context.default_queue, resource))

    def give_back(self, buffer: Buffer) -> None:
        """Take back memory; called from a finalizer."""
        self._unused[buffer.size].append(buffer)


class _Block:
    """Memory of a private pool in use."""

    __slots__ = ("__weakref__", "_buffer", "_pool")

    def __init__(self, pool: PrivatePool, buffer: Buffer) -> None:
        self._pool, self._buffer = pool, buffer

    @property
    def handle(self) -> int:
        """The address."""
        return self._buffer.handle

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._buffer.device_id

    def __simulated_memory__(self) -> Any:
        return self._buffer.__simulated_memory__()

    def __del__(self) -> None:
        self._pool.give_back(self._buffer)


class Borrowed:
    """Memory of somebody else, for one array and its views.

    Attributes
    ----------
    owner
        What keeps the memory.
    handle, device_id
        Its address and its device.
    """

    __slots__ = ("__weakref__", "device_id", "handle", "owner")

    def __init__(self, owner: object, handle: int, device_id: int) -> None:
        self.owner, self.handle, self.device_id = owner, handle, device_id


class _Thread(threading.local):
    pool: PrivatePool | None = None


_thread = _Thread()


@contextmanager
def using_pool(pool: PrivatePool) -> Iterator[None]:
    """Let this thread allocate from a private pool."""
    earlier, _thread.pool = _thread.pool, pool
    try:
        yield
    finally:
        _thread.pool = earlier
