"""ReadAhead: the next items of an iterator, made on a thread of their own, a few ahead of their use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from itertools import islice
from typing import Generic, TypeVar

from headrace import waits

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Runs a generator on a thread, up to `depth` items ahead of who takes them.

    An exception of the generator is raised to who takes the item that it failed to make. `close` ends the thread,
    wherever it is, and closes the generator on it.

    Parameters
    ----------
    items
        The generator. It runs, and is closed, on the thread alone.
    depth
        The number of items that may wait.
    announce
        Called from the thread whenever an item has been added, or no more will come.
    name
        The name of the thread.
    """

    def __init__(
        self,
        items: Generator[T, None, None],
        depth: int,
        announce: Callable[[], object] | None = None,
        name: str = "read ahead",
    ) -> None:
        if depth < 1:
            raise ValueError(f"at least one item must be read ahead, not {depth}")
        self._items = items
        self._depth = depth
        self._announce = announce or (lambda: None)
        self._waiting: deque[T] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closing = False
        self._changed = threading.Condition()
        # A daemon: a program that ends without closing must not hang on a thread that waits for room.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def has(self, count: int = 1) -> bool:
        """Return whether `count` items wait, or all that will ever come do."""
        with self._changed:
            return self._has(count)

    @property
    def is_finished(self) -> bool:
        """Whether nothing waits and nothing will come, not even an exception."""
        with self._changed:
            return self._ended and not self._waiting and self._error is None

    def wait(self, count: int = 1) -> None:
        """Wait until `count` items wait, or all that will ever come do."""
        with self._changed:
            waits.wait_for(self._changed, lambda: self._has(count))

    def peek(self, count: int = 1) -> list[T]:
        """Return the next items, up to `count` of those that wait, and leave them there."""
        with self._changed:
            return list(islice(self._waiting, count))

    def take(self, count: int = 1) -> list[T]:
        """Return the next `count` items, or those that are left, after waiting for them.

        Raises
        ------
        BaseException
            The error of the generator, once everything before it has been taken.
        """
        with self._changed:
            waits.wait_for(self._changed, lambda: self._has(count))
            taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            error = self._error if not taken else None
            if error is not None:
                self._error = None
            self._changed.notify_all()
        if error is not None:
            raise error
        return taken

    def close(self) -> None:
        """End the thread and wait for it; may be called more than once."""
        with self._changed:
            self._closing = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            waits.join(self._thread)

    def _has(self, count: int) -> bool:
        return self._ended or self._closing or len(self._waiting) >= min(count, self._depth)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for item in self._items:
                if not self._add(item):
                    break
                del item  # or the thread would hold it until the next one is made
        except BaseException as raised:
            error = raised
        try:
            self._items.close()
        except BaseException as raised:
            error = error or raised
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()
        self._announce()

    def _add(self, item: T) -> bool:
        """Add an item when there is room; return False if there never will be."""
        with self._changed:
            waits.wait_for(self._changed, lambda: self._closing or len(self._waiting) < self._depth)
            if self._closing:
                return False
            self._waiting.append(item)
            self._changed.notify_all()
        self._announce()
        return True
