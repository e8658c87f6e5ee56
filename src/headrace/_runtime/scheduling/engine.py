"""Engine: which nodes are ready, and when a run is over. All schedulers use this mechanism.

The engine never searches for ready nodes. After each `compute` it checks only that node's own queues (`finish`): an
input that ran low adds a blocker to the node, an input that has room again removes a blocker from its producers, an
output that filled up adds a blocker, and a queue with enough messages removes one from its consumer. A node that
loses its last blocker is put in its ready queue. So the cost of a step depends only on the ports of the operator
that ran.

Some conditions cannot be counted. They are evaluated when their node is taken from the ready queue (`admit`). If
one does not hold, the node waits for an event that could change the result: a message, a time (`timers`), or an
announcement from any thread (`inbox`). What it waits for is one value, `Node.awaited`, which `set_awaited` alone
changes. An announcement only appends to a deque and wakes a parked worker, so a CUDA callback or a signal handler
may make one. The next worker that checks the inbox handles it.

A scheduler with several workers holds `lock` around everything here except `announce`, `time_moved` and
`request_stop`, and releases it for each compute. The greedy scheduler has one thread and takes no lock at all.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from typing import TYPE_CHECKING

from headrace._runtime.scheduling.ends import Ends
from headrace._runtime.scheduling.evaluated_conditions import ENDED, NOTHING, OVER, THROTTLED, Awaited
from headrace._runtime.scheduling.faults import faults_of
from headrace._runtime.scheduling.gate import Alone, Gate
from headrace._runtime.scheduling.ready_queue import ReadyQueue
from headrace._runtime.scheduling.resume import ending_of
from headrace._runtime.scheduling.routing import compute_of, routing_of
from headrace._runtime.scheduling.timers import Polling, Timers
from headrace._runtime.scheduling.waiting import WaitingWorkers
from headrace._runtime.scheduling.watchdog import SWEEPS, Watchdog, look_for_unreceived

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.observer import Observer
    from headrace._runtime.scheduling.group import Group
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.scheduling.queue_state import QueueState
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace.core.clock import Clock
    from headrace.core.graph import Flow
    from headrace.core.scheduler import Scheduler

STANDSTILL = 64
"""After so many checks, each after `SWEEPS` sweeps, that find virtual time where it was, there is a warning."""


class Engine:
    """The state of one run.

    Attributes
    ----------
    inbox
        The nodes that were announced and not handled yet; None only makes a worker check again. Any thread appends.
    stopping, ended_by
        Whether the run is ending, and why: "" if there was nothing left to do, "stopped" or "duration". Any thread
        may stop the run.
    held
        Whether no new compute may begin, because the run is ending, or the gate is closed. Any thread may set it; a
        worker clears it.
    errors
        The exceptions that workers raised, in the order in which they were caught. Workers append.
    """

    __slots__ = (
        *(
            "alive",
            "alone",
            "beside_turns",
            "clock",
            "ended_by",
            "ends",
            "errors",
            "followers",
            "groups",
            "held",
            "inbox",
            "limit",
            "standstill",
            "lock",
            "nodes",
        ),
        *("observer", "operator_nodes", "outstanding", "gate", "polling", "progress", "queues"),
        *(
            "on_idle",
            "on_stop",
            "ready_queues",
            "scheduler",
            "stopping",
            "streams",
            "timed",
            "timers",
            "waiting",
        ),
        *("former_counters", "former_queues", "sent_besides", "watchdog"),
    )

    def __init__(self, scheduler: Scheduler) -> None:
        # Set before the run begins.
        self.scheduler = scheduler
        self.clock: Clock = scheduler.clock
        # The nodes that are scheduled; a group of operators is one of them. And the nodes of all operators.
        self.nodes: list[Node] = []
        self.operator_nodes: list[Node] = []
        self.groups: list[Group] = []
        # The queue of each flow.
        self.queues: dict[Flow, Queue] = {}
        # What counted messages before the graph changed, the empty queues of inputs whose flows were removed, and
        # how many messages an output sent besides those that count now.
        self.former_counters: dict[Queue, None] = {}
        self.former_queues: dict[tuple[Node, str], list[Queue]] = {}
        self.sent_besides: dict[tuple[Node, str], int] = {}
        self.ready_queues: list[ReadyQueue] = [ReadyQueue()]
        self.streams: RunStreams
        # The observer of the run, if there is one.
        self.observer: Observer | None = None
        # Called with the nodes whose flows have changed in the run, once they are connected; nothing computes.
        self.followers: list[Callable[[Collection[Node]], None]] = []
        # What watches computes with a deadline, if there are any.
        self.watchdog: Watchdog | None = None
        # Called when the run begins to stop, on any thread.
        self.on_stop: Callable[[], None] | None = None
        # Called under the lock when nothing can run unless something is announced, or unless a time comes (False).
        self.on_idle: Callable[[bool], None] | None = None
        self.lock = threading.Lock()
        self.waiting = WaitingWorkers(self)
        self.gate = Gate(self)
        self.alone = Alone(self)
        self.ends = Ends(self)
        # The time at which the run ends in any case.
        self.limit: int | None = None
        # The time of the last check for a standstill of virtual time, and how many checks have found the same time.
        self.standstill: tuple[int, int] = (-1, 0)

        # Changed by any thread, without the lock.
        self.inbox: deque[Node | None] = deque()
        self.stopping = False
        self.held = False
        self.ended_by = ""
        self.errors: list[BaseException] = []

        # Changed under the lock, if there is one.
        # How many nodes compute that have no turn, or not any more.
        self.beside_turns = 0
        self.timers = Timers()
        self.polling = Polling(self)
        # Whether there is any time to wait for: a timer, the limit, or conditions to poll.
        self.timed = False
        # Whether any node was admitted since the run was last found idle.
        self.progress = True
        # The number of nodes that wait for an announcement; while there are any, there is no deadlock.
        self.outstanding = 0
        # The number of nodes that may run again.
        self.alive = 0

    # From any thread.

    def announce(self, node: Node) -> None:
        """Request another evaluation of a node's conditions; never blocks and takes no lock."""
        self.inbox.append(node)
        self.waiting.announced(node.ready_queue)

    def time_moved(self) -> None:
        """Make a worker read the clock again, because its time or its scale was changed."""
        self.inbox.append(None)
        self.waiting.time_moved()
        self.waiting.announced(None)

    def request_stop(self, ended_by: str = "stopped") -> None:
        """End the run after the running computes; `ended_by` says why, and is empty if nothing is left to do."""
        if not self.stopping:
            self.ended_by = ended_by
        # In this order: a worker that clears `held` looks at `stopping` afterwards.
        self.stopping = True
        self.held = True
        self.inbox.append(None)
        self.waiting.wake_all()
        if self.on_stop is not None:
            self.on_stop()

    @property
    def running(self) -> int:
        """How many nodes compute; always 0 with one worker, which does nothing else meanwhile."""
        return self.beside_turns + (self.ready_queues[0].current is not None)

    @property
    def all_nodes(self) -> list[Node]:
        """All nodes that have streams: those of operators and of groups."""
        return [*self.operator_nodes, *(group.node for group in self.groups)]

    def computing(self) -> list[Node]:
        """Return the nodes that compute now; only for display, because it takes no lock."""
        while True:
            try:
                ready = {node for queue in self.ready_queues for node in (*queue.now, *queue.later)}
                break
            except RuntimeError:  # a worker changed a queue meanwhile
                continue
        return [node for node in self.nodes if node.busy and node not in ready]

    def computing_for(self) -> dict[str, float | None]:
        """Return the seconds for which each node that computes now has computed, or None; only for display."""
        found: dict[str, float | None] = {node.name: None for node in self.computing()}
        if self.watchdog is not None:
            found.update(self.watchdog.computing_for())
        return found

    # At the start.

    def prime(self) -> None:
        """Count every node's blockers and put the nodes without any in their ready queues."""
        self.alive = len(self.nodes)
        if self.scheduler.max_duration_ms >= 0:
            self.limit = self.clock.timestamp() + round(self.scheduler.max_duration_ms * 1_000_000)
            self.timed = True
        self.streams.look_for_device()
        for node in self.operator_nodes:
            self.prepare(node)
        for group in self.groups:
            group.prime()
        self.count_blockers()
        self.clock.watch(self.time_moved)
        if self.watchdog is not None:
            self.watchdog.start()

    def prepare(self, node: Node) -> None:
        """Choose the compute of a node, whose operator has started."""
        # Read only now: an operator may choose its compute in start().
        node.routing = routing_of(node)
        compute = compute_of(node)
        node.faults = faults_of(node)
        if node.faults is not None:
            compute = node.faults.compute
        node.ending = ending_of(node, compute)
        if node.ending is not None:
            compute = node.ending.compute
        live = node.operator._headrace.live_state
        node.operator._headrace.knobs.is_in_run = True
        if live is not None:
            compute = live.around(compute)
        if self.observer is not None:
            compute = self.observer.around(node, compute)
        if node.operator.spec.time_limit:
            if self.watchdog is None:
                self.watchdog = Watchdog(self)
            compute = self.watchdog.around(node, compute)
        node.compute = node.streams.around(compute)

    def count_blockers(self) -> None:
        """Count the queues that keep each node from running, and enqueue the nodes that can run.

        A node that has ended takes no part.
        """
        nodes = [node for node in self.nodes if not node.retired]
        for place, node in enumerate(nodes):
            node.place = place
            node.input_states = tuple([queue.state for queue in node.inputs])
            node.output_states = tuple([queue.state for queue in node.outputs])
            for state in node.input_states:
                node.blockers += not state.begin()
            node.update_guard()
        self.place_nodes()
        for state in dict.fromkeys(
            state for node in nodes for state in (*node.input_states, *node.output_states)
        ):
            if state.line is None:
                state.update_producers()
        for node in nodes:
            if node.remaining == 0:
                self.retire(node)
            elif not node.blockers:
                node.enqueue_if_ready()
            elif node.evaluated is not None:
                self.evaluate(node)

    def place_nodes(self) -> None:
        """Let nodes compute beside those that take turns, if there are any, and find who announces room."""
        turns = self.ready_queues[0]
        nodes = [node for node in self.nodes if not node.retired]
        for node in nodes:
            if turns.beside is not None and node.ready_queue is turns and node.is_parallel:
                node.move_to(turns.beside)
        for node in nodes:
            requests = [request for state in node.input_states for request in state.requests]
            node.announces_room = node.ready_queue.is_shared or any(
                request.node.ready_queue is not node.ready_queue for request in requests
            )
            node.input.announce_room(self.announce_room if node.announces_room else None)
            for state in node.input_states:
                state.find_whether_sole()

    # The step.

    def take(self, ready_queue: ReadyQueue) -> Node | None:
        """Return the next node to run from a queue, or None; the caller runs it and calls `finish`."""
        while True:
            if self.inbox:
                self.drain()
            if self.timed:
                self.fire()
            if self.held:
                if self.stopping:
                    return None
                if self.gate.handle():
                    node = self.gate.take(ready_queue)
                    if node is not None or self.gate.handle():
                        return node
            if ready_queue.now:
                node = ready_queue.now.pop()
            elif ready_queue.later:
                self.begin_sweep(ready_queue)
                continue
            else:
                return None
            if node.blockers:  # it has ended: a node in a ready queue gets no other blocker
                self.drop(node)
                continue
            if node.is_guarded and not self.admit(node):
                continue
            node.sweep = ready_queue.sweep
            return node

    def take_beside_others(self, ready_queue: ReadyQueue) -> Node | None:
        """Return the next node to run for one of several workers; one that takes turns if it is nobody's turn."""
        beside = ready_queue.beside
        if beside is None:
            return self.take(ready_queue)
        while True:
            if ready_queue.current is None:
                node = self.take(ready_queue)
                if node is not None:
                    return node
            node = self.take(beside)
            # What `take` has handled may have made nodes of the first queue ready.
            if node is not None or self.stopping or not ready_queue.has_turn:
                return node
            if self.held and not self.gate.allows(ready_queue):
                return None

    def has_ready(self) -> bool:
        """Return whether any node waits to be taken."""
        return any(ready_queue.now or ready_queue.later for ready_queue in self.ready_queues)

    def begin_sweep(self, ready_queue: ReadyQueue) -> None:
        """Move all nodes from `later` to `now`."""
        # If only nodes with polled conditions are here, evaluating them again could go on forever: each might find
        # the other one in its way when it is ready, and not be ready when it is not.
        has_others = bool(self.polling.nodes) and any(
            node.evaluated is None or not node.evaluated.are_polled for node in ready_queue.later
        )
        ready_queue.sweep += 1
        ready_queue.now.extend(reversed(ready_queue.later))
        ready_queue.later.clear()
        if not ready_queue.sweep & SWEEPS:
            look_for_unreceived(self.nodes, ready_queue)
            if self.limit is not None and self.clock.is_virtual:
                self._look_for_standstill(ready_queue)
        if has_others:
            self.polling.poll()

    def _look_for_standstill(self, ready_queue: ReadyQueue) -> None:
        """Warn if the end of the run may not come: its time stands still, because there always was work so far.

        Not an error: a source may have any number of messages at one time, and an end of its own.
        """
        now = self.clock.timestamp()
        if now != self.standstill[0] or any(
            node.count_limit is not None and not node.retired for node in self.nodes
        ):
            self.standstill = (now, 0)
            return
        self.standstill = (now, self.standstill[1] + 1)
        if self.standstill[1] == STANDSTILL:
            names = ", ".join(sorted(repr(node.name) for node in ready_queue.now))
            warnings.warn(
                f"the run lasts until {self.limit} ns of its clock {self.clock.name!r}, which has stood still "
                f"at {now} ns for {STANDSTILL * (SWEEPS + 1):,} rounds: virtual time moves when there is "
                f"nothing to compute, and so far there always was ({names}); if it does not end by itself, give "
                "an operator a PeriodicCondition or a CountCondition, or let a compute take time with the clock's "
                "sleep_for",
                RuntimeWarning,
                stacklevel=2,
            )

    def compute_with_extra_work(self, node: Node) -> None:
        """Run a node whose step consists of more than its compute."""
        evaluated = node.evaluated
        began = 0 if evaluated is None else self.clock.timestamp()
        node.compute(node.input, node.output, node.context)
        if evaluated is not None:
            evaluated.on_execute(began)
        # Cleared here, not under the lock and not at the next compute.
        if node.has_details:
            node.clear_details()

    def finish(self, node: Node, goes_on: bool = False) -> Node | None:
        """Update the flags of the node's queues, and put nodes that became ready in their ready queues.

        Together with `take`, this is the cost of a step without the operator's own compute, most of it.

        In a chain, a message makes one node ready, which runs next and takes it. The flags of the queue and the
        ready queue would then be changed twice, to be as before. So if the caller runs the next node itself
        (`goes_on`), that node is returned, and nothing is changed. If it does not take the message, its own
        `finish` sees that; and who begins another turn meanwhile makes up for it (`let_others_go_on`).
        """
        node.remaining = remaining = node.remaining - 1
        if not remaining:
            self.retire(node)
        following: Node | None = None
        for state in node.input_states:
            if state.available:
                if len(state.queue) < state.min_size:
                    state.available = False
                    node.blockers += 1
            elif state.queue or not state.min_size:
                state.note_waiting()
            if not state.affordable and len(state.queue) <= state.room:
                state.update_producers()
            if state.watched:
                for producer in state.watchers:
                    producer.enqueue_if_ready()
        for state in node.output_states:
            waiting = len(state.queue)
            if not state.available and waiting >= state.min_size:
                consumer = state.consumer
                if (
                    goes_on
                    and state.is_sole
                    and consumer.blockers == 1
                    and consumer.sweep != node.sweep  # they share a ready queue
                    and not (consumer.busy or consumer.is_guarded or node.has_extra_work or state.watched)
                    and not (self.inbox or self.timed or self.held)
                ):
                    consumer.busy = True
                    consumer.sweep = node.sweep
                    following = consumer
                    continue
                state.available = True
                consumer.blockers -= 1
                consumer.enqueue_if_ready(soon=True)
            if state.affordable and waiting > state.room:
                state.affordable = False
                state.producer.blockers += 1
            if state.watched:
                state.consumer.enqueue_if_ready(soon=True)
        if node.has_extra_work:
            self._finish_extra_work(node)
            if node.beyond is not None and self._waits_for_link(node):
                return None
        if node.blockers:
            node.busy = False
            if node.evaluated is not None:
                self.evaluate(node)
        else:
            node.ready_queue.later.append(node)
        return following

    def _finish_extra_work(self, node: Node) -> None:
        if node.has_details:
            # Repeated here for the compute in which the node first received details, which began without extra
            # work.
            node.clear_details()
        room = node.shared_room
        if room is not None:
            room.leave()
        lifetimes = node.lifetimes
        if lifetimes is not None and lifetimes.is_full:
            self.throttle(node)
        if node.is_closing:
            self.ends.after_compute(node)
        # After everything that may block this node: the order among producers depends on whether it can run.
        if room is not None:
            for line in room.lines:
                line.promise()

    def _waits_for_link(self, node: Node) -> bool:
        """Return whether a link operator that has computed is not put in its ready queue: it waits for an event.

        It would be evaluated when it is taken. Until then, a parked worker would be woken for it.
        """
        if node.blockers or not node.ready_queue.parked or self.evaluate(node) is NOTHING:
            return False
        self.drop(node)
        return True

    def announce_room(self, node: Node, queues: Iterable[Queue]) -> None:
        """Announce room in the queues of a node to their producers, in the middle of its compute."""
        states: list[QueueState] = [
            queue.state for queue in queues if not queue.state.affordable or queue.state.watchers
        ]
        if states:
            with self.lock:
                for state in states:
                    state.update_producers()
                    for producer in state.watchers:
                        producer.enqueue_if_ready()
                self.waiting.wake_others(node.ready_queue, computes=True)

    def let_others_go_on(self, ready_queue: ReadyQueue) -> None:
        """End the turn of a node that still computes, so that others of its queue compute beside it."""
        node = ready_queue.current
        assert node is not None
        ready_queue.current = None
        self.beside_turns += 1
        # Before its queues are read: what it receives later, it announces.
        node.input.announce_room(self.announce_room)
        for state in node.input_states:
            if not state.available:
                state.note_waiting()  # a message that has passed to it directly still waits
            state.update_producers()
            for producer in state.watchers:
                producer.enqueue_if_ready()

    def retire(self, node: Node) -> None:
        """Let a node compute no more; its end comes when it does not compute (`ends`)."""
        if node.may_compute:
            self.set_awaited(node, OVER)
            self.gate.forget(node)
            node.is_closing = node.has_extra_work = True
            if not node.busy:
                self.ends.begin(node)

    # Operators that are too far ahead of the device.

    def throttle(self, node: Node) -> None:
        """Hold a node back until the device has finished its oldest compute."""
        if node.awaited.blocks:
            return
        assert node.lifetimes is not None
        self.set_awaited(node, THROTTLED)
        node.lifetimes.call_when_caught_up(node.announce)

    def unthrottle(self, node: Node) -> None:
        """Let a node continue if the device has caught up; otherwise keep waiting."""
        assert node.lifetimes is not None
        if node.lifetimes.is_still_full():
            node.lifetimes.call_when_caught_up(node.announce)
            return
        node.update_extra_work()
        self.set_awaited(node, NOTHING)

    def let_go(self, node: Node) -> None:
        """Release the frames of a node that does not compute any more, as soon as the device has passed them."""
        if node.lifetimes is not None and not self.stopping:
            node.lifetimes.settle_when_passed(node.announce)

    # Conditions that are evaluated.

    def admit(self, node: Node) -> bool:
        """Return whether a node without blockers may run now; if not, make sure that it is evaluated again."""
        if node.wants_alone and self.alone.has_to_wait(node):
            self.drop(node)
            return False
        evaluated = node.evaluated
        if evaluated is not None and self.evaluate(node) is not NOTHING:
            self.drop(node)
            return False
        room = node.shared_room
        if room is not None and not room.reserve():
            if node.beyond is not None:
                self.evaluate(node)  # it waits for another process as well
            return False
        if evaluated is not None and evaluated.reserving:
            # If somebody was faster, whom this run does not know, the conditions are evaluated again.
            while not evaluated.reserve():
                if self.evaluate(node) is not NOTHING:
                    self.drop(node)
                    return False
        if node.wants_alone:
            self.alone.begin(node)
        self.progress = True
        return True

    def drop(self, node: Node) -> None:
        """Note that a node was taken from its ready queue and does not run, and pass its room on."""
        node.busy = False
        if node.shared_room is not None:
            node.shared_room.release()
        if node.is_closing:
            self.ends.after_drop(node)

    def evaluate(self, node: Node) -> Awaited:
        """Evaluate a node's conditions, and return what the node waits for from now on."""
        evaluated = node.evaluated
        assert evaluated is not None
        awaited = node.awaited
        if awaited.blocks:
            return awaited
        if node.blockers and not evaluated.matter_while_blocked:
            awaited = NOTHING  # evaluated again when the last blocker is gone
        else:
            awaited = evaluated.combine(self.clock.timestamp())
            if node.stop_requested and node.may_compute:
                awaited = ENDED  # by a condition, perhaps
            elif node.blockers:
                awaited = awaited.while_blocked()
        if awaited is ENDED:
            self.retire(node)
        elif awaited is not node.awaited:
            self.set_awaited(node, awaited)
        return awaited

    def set_awaited(self, node: Node, awaited: Awaited) -> None:
        """Change what a node waits for; nothing else does, and all that is counted or listed follows from here."""
        before = node.awaited
        node.awaited = awaited
        node.blockers += awaited.blocks - before.blocks
        self.outstanding += awaited.outstanding - before.outstanding
        if awaited is ENDED:
            self.alive -= 1
        until = awaited.until
        if until != before.until:
            if until is not None:
                self.timers.arm(node, until)
                self.timed = True
            if before.until is not None:
                self.timers.disarm()
        if awaited.is_polled is not before.is_polled:
            if awaited.is_polled:
                self.polling.add(node)
                self.timed = True
            else:
                self.polling.remove(node)

    def drain(self) -> None:
        """Handle all announcements made until now."""
        inbox = self.inbox
        # Skip announcements made meanwhile: under a flood of announcements this loop would never end.
        for _ in range(len(inbox)):
            node = inbox.popleft()
            if node is None:
                continue
            if node.lifetimes is not None and node.lifetimes.is_settling and not node.busy:
                self.let_go(node)
            if node.throttled:
                self.unthrottle(node)
            if node.joining:
                node.take_on_conditions()
            if node.stop_requested and node.may_compute:
                self.retire(node)
            elif not node.blockers:
                self.progress = self.progress or not node.is_guarded
                node.enqueue_if_ready()
            elif node.evaluated is not None and not node.busy:
                # A busy node is evaluated when it is taken, or after its compute.
                self.evaluate(node)

    # Time.

    def fire(self) -> None:
        """Enqueue the nodes whose time has come, and end the run if its time is up."""
        now = self.clock.timestamp()
        while (node := self.timers.take_due(now)) is not None:
            self.set_awaited(node, NOTHING)
            node.enqueue_if_ready()
        if self.limit is not None and now >= self.limit:
            self.request_stop("duration")
        if self.polling.nodes:
            if now >= self.polling.at:
                self.polling.poll()
        else:
            self.timed = self.next_time() is not None

    def next_time(self) -> int | None:
        """Return the next time at which something is due: a timer, a poll, or the end of the run."""
        until = self.timers.next()
        if self.limit is not None and (until is None or self.limit < until):
            until = self.limit
        polling = self.polling
        if polling.nodes and self.clock.passes and (until is None or polling.at < until):
            until = polling.at
        return until


def is_compiled() -> bool:
    """Return whether the modules that every step runs through are extension modules, which a build made of them."""
    return not __file__.endswith(".py")
