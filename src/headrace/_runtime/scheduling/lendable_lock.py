"""LendableLock: the lock of the engine, which its holder may lend while it computes.

A worker that runs short computes one after the other would release the lock before each compute and acquire it
after. That costs a tenth of a step (0.17 µs of 1.8 in `benchmarks.chain`). So the worker keeps the lock and only
leaves a token in `lent`. Any thread that needs the lock meanwhile takes the token, and holds the lock from then on,
although the worker never released it. After its compute the worker takes its token back, and if there is none, it
acquires the lock like everybody else. Appending to a list and popping from it are atomic and cost half as much.

A token is the node that computes. A worker may find the token of another worker that has lent the lock since. It
holds the lock then, too: it makes no difference which token it took, as `running` shows.

Between two computes the holder of the lock does not lend it. A thread that needs the lock then sets `is_wanted`,
which the holder sees before its next compute (`make_way`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace import waits

if TYPE_CHECKING:
    from headrace._runtime.scheduling.node import Node

PATIENCE = 1e-3
"""The seconds after which a thread looks again whether the holder of the lock has lent it."""


class LendableLock:
    """A lock that its holder may lend.

    Parameters
    ----------
    make_holder_look
        Makes the holder of the lock look at `is_wanted`.

    Attributes
    ----------
    lent
        The node that computes while its worker lends the lock; empty if the lock is not lent. The worker appends
        it, and whoever pops it holds the lock.
    running
        How many nodes compute without lending the lock. A thread that takes the token of a node counts it here. Its
        worker, which finds no token when it is back, stops counting it. If it finds the token of another node, the
        number stays the same: one compute is over, and another has lost its token. Changed under the lock.
    is_wanted
        Whether a thread waits for the lock.
    """

    __slots__ = ("_lock", "_make_holder_look", "_turn", "is_wanted", "lent", "running")

    def __init__(self, make_holder_look: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        # Held by the one thread that waits for `_lock` next.
        self._turn = threading.Lock()
        self._make_holder_look = make_holder_look
        self.lent: deque[Node] = deque()
        self.running = 0
        self.is_wanted = False

    def acquire(self) -> None:
        """Wait for the lock, or take it from a worker that has lent it."""
        if not self.try_acquire():
            with self._turn:
                self.is_wanted = True
                # The holder may have begun to compute, and that may take long.
                while not self.try_acquire():
                    self._make_holder_look()
                    if self._lock.acquire(timeout=PATIENCE):
                        break
                self.is_wanted = False

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free or lent, and return whether it was."""
        if self._lock.acquire(False):
            return True
        try:
            self._took(self.lent.pop())
        except IndexError:
            return False
        return True

    def take_back(self, node: Node) -> None:
        """Hold the lock again after the compute of a node during which it was lent."""
        try:
            token: Node | None = self.lent.pop()
        except IndexError:
            token = None
        if token is not node:
            self.regain(token)

    def regain(self, token: Node | None) -> None:
        """Hold the lock again after a compute whose token is gone; `token` is that of another, if there was one."""
        if token is None:
            self.acquire()
        else:
            self._took(token)
        self.running -= 1

    def _took(self, token: Node) -> None:
        token.ready_queue.current = token
        for state in token.input_states:
            if not state.available:
                state.note_waiting()  # others may run now, and must find the queue as it is
        self.running += 1

    def make_way(self) -> None:
        """Let the thread that waits for the lock have it first, and acquire it again.

        The lock is not wanted meanwhile: two workers that made way for each other would never take a node.
        """
        self._lock.release()
        with self._turn:
            pass
        while not (self.try_acquire() or self._lock.acquire(timeout=PATIENCE)):
            pass

    def release(self) -> None:
        """Release the lock; it is not lent."""
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *details: object) -> None:
        self._lock.release()


# A scheduler of a program's own may take it on the main thread, where Ctrl-C raises. Not as a decorator, by which a
# call of the compiled method would take longer.
for _method in (
    *(LendableLock.acquire, LendableLock.try_acquire, LendableLock.release),
    *(LendableLock.__enter__, LendableLock.__exit__),
):
    waits.shielded(_method)
