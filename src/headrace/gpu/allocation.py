"""Allocation: memory of a pool while somebody uses it, and how it comes back.

A pool hands out blocks of memory again and again. A block may go to its next user only after the work of all that
used it before. There are three kinds of users: the stream that the block was allocated for, which writes it; the
streams of the operators that received it; and streams that the program names itself (`record_stream`). All of them
are noted here, in the object that stands for the use of a block from its allocation to its end.

**The end of a use is the end of this object.** Every tensor, view and export refers to it, so it ends with the last
of them. Nothing needs to be searched or checked for that: Python's reference count tells. The block is back in the
pool at that moment. The work of its users may still run then. So the pool records an event on each of their
streams, and the stream of the next user waits for these events on the device. A next user on the host waits itself.

Decided against: keeping a block out of the pool until the device has finished its work, as `_runtime.streams` does
with memory of other libraries. The runtime learns that when the reader runs the next time. A producer that waits
for the block would then wait for a reader that waits for the producer.

**Finalizers.** Python may run ``__del__`` at any line of any thread, also of one that holds a lock. So it takes no
lock: it appends the block to what was returned and tells whoever waits for memory. The events are recorded right
away if that is possible, else by whoever uses the pool next. They come later in their streams then, which is safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import ref


class StreamUser(Protocol):
    """Somebody whose streams may work on a block."""

    def streams(self) -> Iterable[Any]:
        """Return the streams (`ManagedStream`) that may work on it now."""


class Pool(Protocol):
    """What an allocation returns to."""

    def give_back(self, block: Any, users: list[StreamUser]) -> None:
        """Take back a block; called from a finalizer, so it takes no lock."""

    def collect(self) -> None:
        """Record the events of the blocks that came back."""


class Allocation:
    """A block of memory in use; the block returns to its pool when this object goes.

    Parameters
    ----------
    pool
        The pool to return to.
    block
        The block: anything with `address`, `memory_bytes` and `view`.
    size
        The number of bytes that were asked for.
    users
        Those whose streams may work on it: first of all the stream that it was allocated for.
    """

    __slots__ = ("__weakref__", "_block", "address", "pool", "size", "users")

    def __init__(self, pool: Pool, block: Any, size: int, users: list[StreamUser]) -> None:
        self.pool = pool
        self._block = block
        self.users = users
        self.size = size
        self.address: int = block.address
        in_use[self.address] = ref(self)

    def add_user(self, user: StreamUser) -> None:
        """Note that streams may work on it; may be called from any thread."""
        if user not in self.users:  # at worst it is there twice
            self.users.append(user)

    @property
    def buffer(self) -> Any:
        """A buffer of `headrace.gpu` on this memory, for ``launch`` and copies; it keeps the allocation."""
        return self._block.view(self.size, self)

    def __simulated_memory__(self) -> Any:
        """Return the bytes, for a simulated kernel."""
        return self._block.memory_bytes()[: self.size]

    def __del__(self) -> None:
        # Not `suppress`, which costs as much as the rest: every frame of every allocator ends here.
        try:
            in_use.pop(self.address, None)
            self.pool.give_back(self._block, self.users)
        except (AttributeError, ImportError):  # where __init__ failed, and at the end of the interpreter
            pass

    def __repr__(self) -> str:
        return f"<Allocation of {self.size} bytes at {self.address:#x}>"


in_use: dict[int, ref[Allocation]] = {}
"""The allocations that are in use, by address. Exports to other libraries keep an allocation in ways that cannot be
followed; their memory begins where the allocation does."""


def allocation_at(address: int) -> Allocation | None:
    """Return the allocation in use whose memory begins at an address, or None."""
    found = in_use.get(address)
    return None if found is None else found()


class _Thread(threading.local):
    """What is so for one thread."""

    kept: list[Allocation] | None = None


_thread = _Thread()


@contextmanager
def keeping_allocations(kept: list[Allocation]) -> Iterator[None]:
    """Keep everything that this thread allocates from pools meanwhile, in new memory beyond their limits.

    For work that is being recorded: it runs later, again and again, so its memory must not go to anybody else, and
    no pool should be the smaller for it. And a stream that is captured cannot wait for work outside of the capture.
    """
    earlier, _thread.kept = _thread.kept, kept
    try:
        yield
    finally:
        _thread.kept = earlier


def kept_allocations() -> list[Allocation] | None:
    """Return the list of this thread in which allocations are kept, or None."""
    return _thread.kept
