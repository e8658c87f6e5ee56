"""The memory of arrays: blocks of a pool that the stream which freed them may reuse at once.

So a block goes to the next array of that stream while kernels of other streams may still read it, as with CuPy's
pool. Sizes are multiples of 512 bytes, also as there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.gpu.sim.arrays.work import array_stream
from headrace.gpu.sim.memory import Buffer, DeviceMemoryResource, allocate_buffer

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
