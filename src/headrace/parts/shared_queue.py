"""SharedQueue: which messages of a queue are those of one link, if other links or operators add to it as well.

A credit goes back for each message of the link that was taken. The length of the queue does not tell that, since it
counts the messages of the others. So every message that is added has a number, and those of the link are noted.
Messages leave in the order in which they came: such a queue drops none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class SharedQueue:
    """What one link has added to a queue; made before anything is added.

    The numbers are noted by the threads that add, with the lock of the queue held.
    """

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._count = 0
        self._own: deque[int] = deque()
        self._thread = 0  # that adds a message of the link
        before: Callable[[], int] = queue._now

        def note() -> int:
            self._count += 1
            if threading.get_ident() == self._thread:
                self._own.append(self._count)
            return before()

        queue.note_arrivals(note)

    def add(self, add: Callable[..., None], *arguments: Any) -> None:
        """Call what adds a message of the link."""
        self._thread = threading.get_ident()
        try:
            add(*arguments)
        finally:
            self._thread = 0

    @property
    def waiting(self) -> int:
        """How many messages of the link wait in the queue."""
        with self._queue.lock:
            taken = self._count - len(self._queue)
        while self._own and self._own[0] <= taken:
            self._own.popleft()
        return len(self._own)
