"""Ends: what happens when an operator computes no more, and how the end of a stream travels.

An operator is *over* when it can never compute again: its conditions said NEVER, its count is used up, it was
stopped, or everything that sends to an input has ended and too few messages are left there. Then its `end` runs,
like one more compute, as soon as there is room behind its outputs: on its own streams, watched and wrapped as its
computes are. After that it has ended, and so has each queue that only ended operators send to. This may make the
receivers over in turn. An operator without an `end` has ended as soon as it is over.

Nothing of this costs a step anything before the first operator has ended. From then on only the receivers of ended
operators look for their end after each compute (`Node.is_closing`).

What is left when nothing can run any more has no end to wait for (`end_idle`). An operator that waits for room
at one that has ended is over then. If no operator starves, so is the first operator of a loop, whose operators wait
for each other. The run goes on until all have ended. To stop the producers of an operator as soon as it has ended
was decided against: they may send to others, and their messages would be lost there.

All of this happens under the engine's lock, if there is one, except the computes (`resume`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.evaluated_conditions import ENDED, NOTHING, OVER
from headrace._runtime.scheduling.queue_state import ANY
from headrace.core.ports import IOSpec

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.engine import Engine
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.queue_state import QueueState


# What is to be done when nothing can run any more (`Ends.find_stage`), in this order.
STUCK, STARVED, FIRST, FED_BEFORE, IN_LOOP, NONE_LEFT = range(6)


class Ends:
    """The ends of the operators of one run.

    Attributes
    ----------
    of_themselves
        The nodes that ended without an input that did, in the order of their ends.
    find_starved, starved
        Finds the operators that starve; set before the run begins. What it found when nothing could run any more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.find_starved: Callable[[Engine], tuple[Any, ...]] = lambda engine: ()
        self.starved: tuple[Any, ...] = ()
        self.of_themselves: list[Node] = []
        self._of_others: set[Node] = set()
        # The nodes that have ended and whose receivers do not know it yet. One call works them off, so that a long
        # chain of ends needs no deep stack.
        self._ended: list[Node] = []
        self._is_telling = False

    def begin(self, node: Node) -> None:
        """Let the end of a node come that is over and does not compute now."""
        engine, ending = self._engine, node.ending
        if ending is None or engine.stopping:
            self._finish(node)
            return
        ending.begin()
        self.free(node)
        for state in node.input_states:
            if not state.available:
                state.available = True
                node.blockers -= 1
        for queue in node.outputs:
            if queue.consumer.retired:
                _abandon(queue, node)
        node.update_guard()
        engine.set_awaited(node, NOTHING)
        node.enqueue_if_ready()

    def free(self, node: Node) -> None:
        """Let a node whose end has begun wait for no messages, and only for conditions that hold its end."""
        ending = node.ending
        assert ending is not None
        ending.evaluated = node.evaluated
        node.evaluated = None if node.evaluated is None else node.evaluated.for_end()
        node.wants_alone = False
        for queue in node.inputs:
            queue.min_size = queue.state.min_size = 0

    def recheck(self) -> None:
        """Find out anew what has ended, because flows have changed."""
        left = [node for node in self._engine.nodes if not node.retired]
        for node in left:
            for queue in node.inputs:
                queue.has_ended = bool(queue.feeders) and all(feeder.retired for feeder in queue.feeders)
                if queue.has_ended or not node.is_fed:
                    node.is_closing = node.has_extra_work = True
            if not (node.is_fed or node.busy):
                self._engine.let_go(node)
        for node in left:
            if node.is_closing and not node.busy and node.may_compute:
                self._look(node)

    def after_compute(self, node: Node) -> None:
        """Look for the end of a node that has just computed, or go on with it."""
        ending = node.ending
        if ending is not None and ending.is_on:
            node.granted -= 1  # it was no compute
            if ending.is_done:
                self._finish(node)
            return
        self._look(node)
        if node.awaited is OVER:
            self.begin(node)
        elif not node.is_fed:
            self._engine.let_go(node)

    def after_drop(self, node: Node) -> None:
        """Look for the end of a node that was ready and did not run."""
        self._look(node)
        if node.awaited is OVER and not node.busy:
            self.begin(node)

    def _look(self, node: Node) -> None:
        """Find out whether a node is over because an input has ended."""
        for state in node.input_states:
            if state.queue.has_ended and len(state.queue) < state.min_size:
                self._of_others.add(node)
                self._engine.retire(node)
                return

    def _finish(self, node: Node) -> None:
        """Count a node as ended, and tell the receivers of its messages."""
        self._engine.set_awaited(node, ENDED)
        self._ended.append(node)
        if node not in self._of_others:
            self.of_themselves.append(node)
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._ended:
                self._tell(self._ended.pop(0))
        finally:
            self._is_telling = False

    def _tell(self, node: Node) -> None:
        engine = self._engine
        for state in node.input_states:
            for watcher in state.watchers:  # a condition may depend on whether messages are still taken
                watcher.enqueue_if_ready()
        for queue in node.outputs:
            if queue.has_ended or not all(feeder.retired for feeder in queue.feeders):
                continue
            queue.has_ended = True
            consumer: Node = queue.consumer
            # A compute that is under way finds these after it.
            consumer.is_closing = consumer.has_extra_work = True
            if consumer.busy or not consumer.may_compute:
                continue
            self._look(consumer)
            if consumer.may_compute and consumer.evaluated is not None:
                if consumer.blockers:
                    engine.evaluate(consumer)
                else:
                    consumer.enqueue_if_ready()

    # When nothing can run any more.

    def end_idle(self) -> bool:
        """Let operators end that wait for nothing that can come; return False if there are none, or one starves."""
        stage, nodes = self.find_stage()
        return self._end_stage(stage, nodes)

    def find_stage(self) -> tuple[int, list[Node]]:
        """Return what is to be done when nothing can run any more, and with which nodes; nothing is changed.

        The stages come in their order: `STUCK` nodes wait for room at one that has ended; some node `STARVED`; some
        come `FIRST` among those that are left, because all that feed them have ended; in a loop, one that was
        `FED_BEFORE` from outside; or any node (`IN_LOOP`). If there is nothing left to end it is `NONE_LEFT`. The
        ends of a flow to another process are no nodes to be ended (`headrace.parts`).
        """
        alive = [node for node in self._engine.nodes if not node.retired and node.beyond is None]
        stuck = [node for node in alive if any(_waits_in_vain(node, queue) for queue in node.outputs)]
        if stuck:
            return STUCK, stuck
        if self.find_starved(self._engine):
            return STARVED, []
        computing = [node for node in alive if node.may_compute]
        first = [node for node in computing if all(feeder.retired for feeder in _feeders(node))]
        if first:
            return FIRST, first
        # Loops: the one that was fed from outside comes first.
        fed = [node for node in computing if any(feeder.retired for feeder in _feeders(node))]
        if fed:
            return FED_BEFORE, fed[:1]
        return (IN_LOOP, computing[:1]) if computing else (NONE_LEFT, [])

    def end_stage(self, stage: int) -> bool:
        """Do what a stage of several engines asks for; return False if the run is over."""
        found, nodes = self.find_stage()
        return self._end_stage(stage, nodes if found == stage else [])

    def _end_stage(self, stage: int, nodes: list[Node]) -> bool:
        if stage in (STARVED, NONE_LEFT):
            self.starved = self.find_starved(self._engine)
            return False
        for node in nodes:
            if node.may_compute:
                self._of_others.add(node)
                self._engine.retire(node)
            else:
                for queue in node.outputs:
                    if _waits_in_vain(node, queue):
                        _abandon(queue, node)
        return True


def _feeders(node: Node) -> list[Node]:
    return [feeder for queue in node.inputs for feeder in queue.feeders]


def _waits_in_vain(node: Node, queue: Queue) -> bool:
    """Return whether a node waits for room in the queue of one that has ended."""
    if not queue.consumer.retired:
        return False
    state: QueueState = queue.state
    return any(
        request.node is node and request.places > queue.limit - len(queue) for request in state.requests
    )


def _abandon(queue: Queue, node: Node) -> None:
    """Let the end of a node emit into the queue of one that has ended; what does not fit is dropped and counted."""
    state: QueueState = queue.state
    if not queue.drops:
        queue.policy = IOSpec.QueuePolicy.REJECT
    if state.line is not None:
        state.line.forgo(node)
    elif state.requests:
        state.room = ANY
        state.requests[0].forgo()
        if not state.affordable:
            state.affordable = True
            node.blockers -= 1
    node.enqueue_if_ready()
