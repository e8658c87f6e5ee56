"""Gate: which computes may begin. In a pause none does, except for single steps.

A run that is paused is held, as a run that stops is: `Engine.held` is the flag that a worker checks before it takes
a node, so pausing costs a running program nothing. Any thread may request a pause, a step or a resume. A request is
appended to a deque (`core/control`) and wakes the workers; the first one that sees it carries it out, under the
engine's lock if there is one. So requests take effect in their order, and between two computes.

What stands still: no node is taken, no condition is evaluated, virtual time does not jump, the run neither ends by
itself nor by its duration. What goes on: computes that have begun, the device, and real time. A worker that finds
the run paused parks without a deadline. So timers that come due are handled at the resume, and conditions are told
of it (`Condition.on_resume`): a periodic source would otherwise make up for all the ticks that it missed.

While there are steps left, the run goes on as always, and each compute that begins takes one step. A step of a
named operator is taken by that operator alone.

A run may be one part of a program in several processes (`headrace.parts`). The operators of links compute in a
pause as well, and take no steps: they are the flows between the parts.

While a stream captures, CUDA allows no thread to wait for the device as a whole, and an operator on another worker
may do just that. So a frame is captured while nothing else computes (`Alone`). A node that wants to compute alone
(`Node.wants_alone`) is looked at when it is taken. If other nodes compute then, it waits: the run is held, as in a
pause, until the last of them has finished. No worker is blocked meanwhile, so the computes that have begun go on as
always. When the node's compute has ended, the run goes on. A compute may wait for something that only another one
brings about, and the node would wait for ever, so it gives up after a second. And a node that is stepped in a pause
does not wait. Both compute as usual, and are not alone.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from headrace import waits
from headrace.core.control import PAUSE, RESUME
from headrace.core.errors import GraphError, choices

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.ready_queue import ReadyQueue
    from headrace.core.control import Request


class Gate:
    """Which computes of one run may begin.

    Any thread may append to `requests`. The rest is changed under the engine's lock, if there is one.

    Attributes
    ----------
    requests
        What was requested and not carried out yet. Set before the run begins.
    calls
        Functions that change the run, each to be called when nothing computes (`call`).
    is_open
        Whether any node may begin: the run is not paused; requests may be on their way.
    steps, node_steps
        The computes that may begin although the run is paused: of any node, and of single nodes.
    """

    __slots__ = (
        "_changed",
        "_engine",
        "_is_over",
        "_is_quiet",
        "_limit",
        "_since",
        "calls",
        "is_open",
        "node_steps",
        "requests",
        "steps",
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.requests: deque[Request] = deque()
        self.calls: deque[Callable[[], None]] = deque()
        self.is_open = True
        self.steps = 0
        self.node_steps: dict[Node, int] = {}
        # The time of the pause, and the limit of the run, which does not count meanwhile.
        self._since = 0
        self._limit: int | None = None
        # For threads that wait until nothing computes any more.
        self._changed = threading.Condition()
        self._is_quiet = False
        self._is_over = False

    # From any thread.

    def wake(self) -> None:
        """Wake the workers, which carry out the requests; called after one was appended."""
        engine = self._engine
        # After the request: a worker that clears the flag looks for requests afterwards.
        engine.held = True
        engine.inbox.append(None)
        engine.waiting.wake_all()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function that changes the run, as soon as nothing computes."""
        self.calls.append(function)
        self.wake()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the run is paused and nothing computes; return False after `timeout` seconds or at its end."""
        with self._changed:
            waits.wait_for(self._changed, lambda: self._is_over or self._is_settled(), timeout)
            return not self._is_over and self._is_settled()

    def _is_settled(self) -> bool:
        # In this order: a worker notes that the run is not quiet before it takes a request.
        return not self.requests and self._is_quiet

    # By workers, with the lock held.

    def handle(self, is_in_compute: bool = False) -> bool:
        """Carry out the requests made until now, update `Engine.held`, and return it."""
        engine = self._engine
        requests = self.requests
        while requests:
            self._is_quiet = False
            kind, count, op_name = requests.popleft()
            if kind == RESUME:
                if not self.is_open:
                    self._resume()
                continue
            if self.is_open:
                self._pause()
            if kind == PAUSE:
                continue
            if not op_name:
                self.steps += count
                continue
            node = self._find(op_name, count)
            if not node.retired:
                self.node_steps[node] = self.node_steps.get(node, 0) + count
        while self.calls and not engine.running and not is_in_compute:
            self.calls.popleft()()
        engine.held = not self.is_open or engine.alone.node is not None
        # Any thread may have stopped the run, or asked for a pause or a change, since.
        if engine.stopping or requests or self.calls:
            engine.held = True
            return True
        return engine.held

    def _find(self, op_name: str, count: int) -> Node:
        """Return the node that is scheduled for an operator."""
        for node in self._engine.operator_nodes:
            if node.name == op_name:
                return node.scheduled
        names = choices([node.name for node in self._engine.operator_nodes], op_name)
        raise GraphError(f"step({count}, {op_name!r}): there is no operator {op_name!r}; there are {names}")

    @property
    def is_still(self) -> bool:
        """Whether the run is paused and no step is left, or one node computes alone."""
        if self._engine.alone.node is not None:
            return True
        return not self.is_open and not (self.steps or self.node_steps)

    def take(self, ready_queue: ReadyQueue) -> Node | None:
        """Return the next node of a queue that may run although the run is held, or None."""
        engine = self._engine
        alone = engine.alone
        if alone.node is not None:
            node = alone.take(ready_queue)
            if node is not None or alone.node is not None:
                return node
        if self.is_open:
            return None  # the run is stopping, or about to be paused
        for node in self.node_steps:
            if node.shared_room is not None:
                node.shared_room.recheck()
        while self.allows(ready_queue):
            if not ready_queue.now:
                if not ready_queue.later:
                    return None
                engine.begin_sweep(ready_queue)
            node = self._choose(ready_queue)
            if node.blockers:
                engine.drop(node)
                continue
            if node.is_guarded and not engine.admit(node):
                continue
            self._count(node)
            node.sweep = ready_queue.sweep
            return node
        return None

    def forget(self, node: Node) -> None:
        """Let no step be left for a node that computes no more."""
        self.node_steps.pop(node, None)

    def allows(self, ready_queue: ReadyQueue) -> bool:
        """Return whether a node of a ready queue may be taken."""
        alone = self._engine.alone
        if alone.node is not None:
            return alone.allows(ready_queue)
        if self.is_open:
            return not self.calls  # which are made when nothing computes, before anything begins
        if self.steps:
            return True
        return any(map(self._may_begin, (*ready_queue.now, *ready_queue.later)))

    def _may_begin(self, node: Node) -> bool:
        """Return whether a node may begin in a pause without a step of any node."""
        return node in self.node_steps or node.beyond is not None

    def _choose(self, ready_queue: ReadyQueue) -> Node:
        """Remove the next node that may run from a ready queue that `allows` one, and return it."""
        if self.steps:
            return ready_queue.now.pop()
        for nodes in (ready_queue.now, ready_queue.later):
            for node in reversed(nodes):
                if self._may_begin(node):
                    nodes.remove(node)
                    return node
        raise LookupError("no node of this queue may run")

    def _count(self, node: Node) -> None:
        """Count a compute that begins as a step."""
        left = self.node_steps.get(node, 0)
        if node.beyond is not None:
            return
        if not left:
            self.steps -= 1
        elif left == 1:
            del self.node_steps[node]
        else:
            self.node_steps[node] = left - 1

    def settle(self) -> None:
        """Note that a worker parks in a pause; the last one to do so tells those who wait for it."""
        if not self.is_open and not self._engine.running and not self._is_quiet:
            with self._changed:
                self._is_quiet = True
                self._changed.notify_all()

    def close(self) -> None:
        """End the waits for a pause, because the run is over."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _pause(self) -> None:
        engine = self._engine
        self.is_open = False
        self._since = engine.clock.timestamp()
        self._limit, engine.limit = engine.limit, None

    def _resume(self) -> None:
        engine = self._engine
        now = engine.clock.timestamp()
        self.is_open = True
        self.steps = 0
        self.node_steps.clear()
        if self._limit is not None:
            engine.limit = self._limit + now - self._since
        for node in engine.nodes:
            if node.evaluated is not None:
                node.evaluated.on_resume(now)
        # Timers have come due; and what was not ready before the pause gets its time again before it is a deadlock.
        engine.timed = engine.progress = True


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
