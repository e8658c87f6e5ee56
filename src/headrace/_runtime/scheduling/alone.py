"""Alone: a compute during which no other compute of the run takes place.

While a stream captures, CUDA allows no thread to wait for the device as a whole, and an operator on another worker
may do just that. So a frame is captured while nothing else computes.

A node that wants to compute alone (`Node.wants_alone`) is looked at when it is taken. If other nodes compute then,
it waits: the run is held, as in a pause, until the last of them has finished. No worker is blocked meanwhile, so
the computes that have begun go on as always. When the node's compute has ended, the run goes on.

A compute may wait for something that only another one brings about. The node would wait for ever then, so it gives
up after a second. And a node that is stepped in a pause does not wait. Both compute as usual, and are not alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.ready_queue import ReadyQueue


class Alone:
    """The node of a run that computes alone, or waits until it can; changed under the engine's lock.

    Attributes
    ----------
    node
        The node; None if there is none.
    is_computing
        Whether it computes now.
    is_given_up
        Whether a node has waited for too long: a compute does not end before others begin. From then on no node
        waits, and none is alone.
    """

    __slots__ = ("_engine", "is_computing", "is_given_up", "node")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.node: Node | None = None
        self.is_computing = False
        self.is_given_up = False

    # By workers, with the lock held.

    def has_to_wait(self, node: Node) -> bool:
        """Return whether a node that wants to compute alone has to wait for others; then no other begins."""
        engine = self._engine
        if not engine.running or not engine.gate.is_open or self.is_given_up:
            return False
        self.node = node
        engine.held = True
        return True

    def begin(self, node: Node) -> None:
        """Let a node compute alone, if that is possible; it was admitted."""
        engine = self._engine
        if not engine.running and engine.gate.is_open and not self.is_given_up:
            self.node = node
            self.is_computing = engine.held = True

    def allows(self, ready_queue: ReadyQueue) -> bool:
        """Return whether the node may be taken from a ready queue now."""
        return self.is_waiting and not self._engine.running and self._is_from(ready_queue)

    @property
    def is_waiting(self) -> bool:
        """Whether a node waits until it can compute alone."""
        return self.node is not None and not self.is_computing

    def take(self, ready_queue: ReadyQueue) -> Node | None:
        """Return the node if nothing else computes any more, and it is of this queue."""
        engine, node = self._engine, self.node
        assert node is not None
        if self.is_computing or engine.running:
            return None
        if not engine.gate.is_open:
            self._let_go()
            return None
        node.enqueue_if_ready()  # a worker of its queue is woken for it, if this is another
        if not self._is_from(ready_queue):
            return None
        self.node = None
        if node.busy:
            (ready_queue.now if node in ready_queue.now else ready_queue.later).remove(node)
        node.busy = True
        if node.blockers:
            engine.drop(node)  # it was stopped
        elif engine.admit(node):
            node.sweep = ready_queue.sweep
            return node
        return None

    def give_up(self) -> None:
        """Let computes begin again although a node still waits."""
        if self.is_waiting:
            self.is_given_up = True
            self._let_go()

    def _let_go(self) -> None:
        assert self.node is not None
        self.node.enqueue_if_ready()
        self.node = None

    def _is_from(self, ready_queue: ReadyQueue) -> bool:
        return self.node is not None and self.node.ready_queue is ready_queue

    # In the node's compute.

    def end(self) -> None:
        """Let other computes begin again."""
        engine = self._engine
        with engine.lock:
            node = self.node
            assert node is not None
            self.node = None
            self.is_computing = False
            engine.gate.handle(is_in_compute=True)
            engine.waiting.wake_others(node.ready_queue, computes=True)
