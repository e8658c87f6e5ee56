"""BlockStore: the blocks of memory of one kind that an allocator has, in use and idle.

`headrace.gpu.allocation` says when a block comes back, and why at that moment. Here is what happens to it next:

- An event is recorded on each stream that may work on it (`collect`). The block is idle from then on.
- It goes to the next user that asks for its size. The user's stream waits for these events on the device; where the
  user is the host, the host waits. Nothing waits where the same stream uses the block again.
- A user gets the block that its own stream used last, if there is one; else the one that has been idle longest, if
  the device is done with it; else a new one, within the limit; else that oldest one, and its stream waits.
- Where idle blocks of other sizes stand in the way of a new one, the oldest are freed.

New blocks of stream-ordered memory are allocated, and old ones freed, on a stream of the store's own. So a new
block has an event to wait for like one that was used before, and freeing waits on the device for the last use.

`_lock` guards all of it but `_returned`, to which finalizers append without it. Nothing waits for the device with
the lock held: in the virtual time of a simulated device, a thread that waits for the lock keeps time from passing.

**Reservations.** An operator whose condition found memory must still find it when it runs, whoever else allocates
in between. So the condition reserves it for the thread that is about to run the operator, and what the operator
allocates on that thread is taken from the reservation first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from headrace import gpu, waits
from headrace._runtime import ManagedStream, create_event
from headrace.gpu.allocation import Allocation, StreamUser
from headrace.gpu.backend import active, is_chosen
from headrace.resources.memory_block import Block, Key, StreamUse
from headrace.resources.memory_sources import MemorySource

EVERYTHING = 1 << 62
"""A limit that no machine reaches."""


class Exhausted(Exception):
    """There is not as much memory left as was asked for."""


class BlockStore:
    """The blocks of one kind of memory.

    Parameters
    ----------
    source
        Makes the source of the memory, when it is first needed.
    device_id
        The device.
    on_return
        Called when a block comes back, by any thread and in finalizers.
    limit
        The bytes that there may be in all, in use and idle.
    keep
        The bytes that may be idle; None for as many as have been in use at once.
    """

    def __init__(
        self,
        source: Callable[[], MemorySource],
        device_id: int,
        on_return: Callable[[], None],
        limit: int = EVERYTHING,
        keep: int | None = EVERYTHING,
    ) -> None:
        self.limit = limit
        self._make_source = source
        self._device_id = device_id
        self._on_return = on_return
        self._keep = keep
        self._lock = threading.Lock()
        self._source: MemorySource | None = None
        self._own: ManagedStream | None = None
        # One for each finalizer that frees blocks now, in the order of the store's own stream. Any thread appends.
        self._freeing: list[None] = []
        self._returned: deque[tuple[Block, list[StreamUser]]] = deque()
        self._idle: list[Block] = []  # the one that has been idle longest first
        self._idle_bytes = 0
        # The blocks in use. The garbage collector finalizes everything in a cycle of garbage, also what comes back:
        # the buffer of a block that is only referred to by its allocation would be closed.
        self._in_use: set[Block] = set()
        self._bytes_in_use = 0
        self._blocks_in_use = 0
        self._peak = 0
        self._reservations: dict[object, tuple[int, int]] = {}  # by whom: the thread, and the bytes
        self._is_released = False

    # What can be seen.

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit but the machine's."""
        return self.limit == EVERYTHING

    @property
    def in_use(self) -> tuple[int, int]:
        """The bytes and the blocks that are in use."""
        with self._lock:
            self._collect()
            return self._bytes_in_use, self._blocks_in_use

    @property
    def size(self) -> int:
        """The bytes that there are, in use and idle."""
        with self._lock:
            self._collect()
            return self._bytes_in_use + self._idle_bytes

    def left(self) -> int:
        """Return how many bytes may be allocated by this thread."""
        with self._lock:
            self._collect()
            return self._left(threading.get_ident())

    def open(self) -> MemorySource:
        """Return the source of the memory, made where this is the first use of it."""
        source = self._source
        if source is not None and self._blocks_in_use:
            return source  # which stays as long as a block is in use
        with self._lock:
            return self._open()

    # Blocks.

    def prepare(self, size: int, count: int) -> None:
        """Make idle blocks of a size until there are so many, in use and idle."""
        with self._lock:
            missing = count - self._blocks_in_use - len(self._idle)
            self._open()
            for _ in range(missing):
                self._add_idle(self._make(size))

    def warm(self, size: int) -> None:
        """Make the source hold memory of a size, by allocating and freeing as much once."""
        if not size:
            return
        with self._lock:
            self._open()
            if self._own is None:
                return  # it is allocated at once, and would be given back at once
            if self._bytes_in_use or self._idle_bytes:
                return  # it has some
            block = self._make(size)
        self._free(block)

    def take(self, size: int, wanted: int, user: StreamUse | None, is_host: bool = False) -> Allocation:
        """Take a block of a size for a stream or, without one or where `is_host`, for the host.

        Of the block, `wanted` bytes are used.

        Raises Exhausted where there is no more.
        """
        managed = None if user is None or is_host else user.managed
        thread = threading.get_ident()
        block: Block | None = None
        victims: list[Block] = []
        with self._lock:
            self._is_released = False
            self._open()
            self._collect()
            if size > self._left(thread):
                raise Exhausted
            block = self._choose(size, None if managed is None or user is None else user.key)
            if block is None:
                victims = self._take_idle(self._bytes_in_use + self._idle_bytes + size - self.limit)
            victims += self._take_idle(self._idle_bytes - (self._peak if self._keep is None else self._keep))
            if self._reservations:
                self._use_reservation(thread, size)
            self._bytes_in_use += size
            self._blocks_in_use += 1
            self._peak = max(self._peak, self._bytes_in_use)
        try:
            while victims:
                self._free(victims[-1])
                victims.pop()
            if block is None:
                with self._lock:
                    block = self._make(size)
            block.order(managed)
        except BaseException:
            with self._lock:
                self._bytes_in_use -= size
                self._blocks_in_use -= 1
                for unused in victims if block is None else (*victims, block):
                    self._add_idle(unused)
            raise
        self._in_use.add(block)
        return Allocation(self, block, wanted, [] if user is None else [user])

    @waits.shielded
    def give_back(self, block: Block, users: list[StreamUser]) -> None:
        """Take back a block; called from a finalizer."""
        self._returned.append((block, users))
        # All that came back: others may have users whose streams an event has to be recorded on.
        if (_may_submit() or not any(users for _, users in tuple(self._returned))) and self._lock.acquire(
            blocking=False
        ):
            try:
                self._collect()
            finally:
                self._lock.release()
            if self._is_released:
                self._free_late()
        self._on_return()

    def collect(self) -> None:
        """Record the events of the blocks that came back."""
        with self._lock:
            self._collect()

    def release(self) -> None:
        """Free what is idle; what is in use is freed as it comes back."""
        with self._lock:
            self._is_released = True
            self._collect()
            idle = self._take_idle(EVERYTHING)
        errors: list[Exception] = []
        for block in idle:
            try:
                self._free(block)
            except Exception as error:  # of a device that failed: the others are freed all the same
                errors.append(error)
        with self._lock:
            if not self._blocks_in_use and self._is_released and not self._freeing:
                self._close()
        if errors:
            raise errors[0]

    def __del__(self) -> None:
        # Or the memory would be freed before the work on it.
        with suppress(Exception):
            if self._idle_bytes and _may_submit():
                self.release()

    # Reservations.

    def can_reserve(self, size: int) -> bool:
        """Return whether so many bytes may be reserved."""
        with self._lock:
            return size <= self._left()

    def reserve(self, token: object, size: int) -> bool:
        """Reserve bytes for this thread, unless there are too few; what was reserved before is released."""
        with self._lock:
            self._reservations.pop(token, None)
            if size > self._left():
                return False
            self._reservations[token] = (threading.get_ident(), size)
            return True

    def unreserve(self, token: object) -> bool:
        """Release a reservation, and return whether anything of it was left."""
        with self._lock:
            return self._reservations.pop(token, (0, 0))[1] > 0

    # Inside, with the lock held.

    def _left(self, thread: int | None = None) -> int:
        """Return the bytes that nobody uses and no other thread reserved; what came back need not be collected."""
        left = self.limit - self._bytes_in_use
        for other, size in self._reservations.values():
            if other != thread:
                left -= size
        return left + sum(block.size for block, _ in tuple(self._returned))

    def _use_reservation(self, thread: int, size: int) -> None:
        for token, (other, reserved) in self._reservations.items():
            if other == thread:
                used = min(size, reserved)
                self._reservations[token] = (other, reserved - used)
                size -= used

    def _open(self) -> MemorySource:
        if self._source is None:
            self._source = self._make_source()
        if self._own is None and self._source.is_stream_ordered:
            with gpu.on_device(self._device_id):
                stream: Any = gpu.Device(self._device_id).create_stream()
            self._own = ManagedStream(stream, self._device_id, partial(create_event, self._device_id))
        return self._source

    def _close(self) -> None:
        """Close the store's own stream: nothing is in use or idle."""
        self._source = None
        own, self._own = self._own, None
        if own is not None:
            own.stream.close()

    def _collect(self) -> None:
        while self._returned:
            block, users = self._returned.popleft()
            block.record(users)
            self._bytes_in_use -= block.size
            self._blocks_in_use -= 1
            self._in_use.discard(block)
            self._add_idle(block)

    def _add_idle(self, block: Block) -> None:
        self._idle.append(block)
        self._idle_bytes += block.size

    def _remove_idle(self, block: Block) -> Block:
        self._idle.remove(block)
        self._idle_bytes -= block.size
        return block

    def _choose(self, size: int, key: Key | None) -> Block | None:
        """Take an idle block that is there for a stream at once, or any if there may be no new one."""
        idle = [block for block in self._idle if block.size == size]
        if not idle:
            return None
        if key is not None:
            for block in reversed(idle):
                if block.user is None or block.user == key:  # no other stream works on it
                    return self._remove_idle(block)
        # The device is asked last, since that takes a call of the driver for each stream.
        if self._bytes_in_use + self._idle_bytes + size <= self.limit and not idle[0].is_complete():
            return None
        return self._remove_idle(idle[0])

    def _take_idle(self, excess: int) -> list[Block]:
        """Take so many bytes of idle blocks, those that have been idle longest."""
        taken: list[Block] = []
        while self._idle and excess > 0:
            taken.append(self._remove_idle(self._idle[0]))
            excess -= taken[-1].size
        return taken

    def _make(self, size: int) -> Block:
        source, own = self._open(), self._own
        if own is None:
            return Block(source.allocate(size, None), size)
        block = Block(source.allocate(size, own.stream), size)
        block.record([StreamUse(own)])
        return block

    # Inside, without the lock.

    def _free(self, block: Block) -> None:
        """Free a block after all work on it."""
        source, own = self._source, self._own
        assert source is not None
        block.order(own)
        source.free(block.buffer, None if own is None else own.stream)

    def _free_late(self) -> None:
        """Free what came back after the release, in a finalizer, unless the host would have to wait for it."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            taken = [
                self._remove_idle(block)
                for block in list(self._idle)
                if (self._own is not None and block.has_events) or block.is_complete()
            ]
            self._freeing.append(None)
        finally:
            self._lock.release()
        try:
            for block in taken:
                self._free(block)
        finally:
            self._freeing.pop()


def _may_submit() -> bool:
    """Return whether work may be submitted now; a process without a device need not choose one to be told so."""
    return not is_chosen() or active().may_submit()
