"""Engine: which nodes are ready, and when a run is over. One mechanism under all schedulers.

Readiness is told, never searched for. After each `compute` the engine looks at that node's own queues
(`finish`): an input that ran low adds a blocker to the node, an input that has room again takes one from
its producers, an output that filled up adds one, a queue that has enough takes one from its consumer.
A node whose last blocker went is put in its ready queue. The cost of a step depends on the ports of the
operator that ran and on nothing else: no other node is looked at.

What cannot be counted is handled beside that. Conditions that must be asked are asked when their node is
taken from the ready queue (`admit`), and if they say no, the node waits for the event that could change the
answer: a message, a time (`timers`), or an announcement from any thread (`inbox`). Announcements only
append to a deque and wake a sleeper, so that they may come from a CUDA callback or a signal handler; the
next worker to look takes note of them.

A scheduler with several workers holds `lock` around everything here except `announce` and
`request_stop`; the greedy scheduler has one thread and takes no lock at all.
"""

from __future__ import annotations

import threading
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from penstock._runtime.lifecycle.faults import compute_of
from penstock._runtime.lifecycle.unreceived import SWEEPS, look_for_unreceived
from penstock._runtime.scheduling.ready_queue import ReadyQueue
from penstock._runtime.scheduling.timers import Timers
from penstock._runtime.scheduling.waiting import Waiting
from penstock.core.condition import SchedulingStatusType

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._runtime.messages.queue import Queue
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.run_streams import RunStreams
    from penstock.core.clock import Clock
    from penstock.core.scheduler import Scheduler

__all__ = ["Engine"]

_NEVER = SchedulingStatusType.NEVER
_READY = SchedulingStatusType.READY
_WAIT = SchedulingStatusType.WAIT
_WAIT_TIME = SchedulingStatusType.WAIT_TIME
_WAIT_EVENT = SchedulingStatusType.WAIT_EVENT


class Engine:
    """The state of one run."""

    __slots__ = (
        "_asking",
        "_asking_on",
        "alive",
        "at_end",
        "clock",
        "deadlock_at",
        "ended_by",
        "errors",
        "inbox",
        "limit",
        "lock",
        "nodes",
        "pending",
        "poll_at",
        "polled",
        "progress",
        "ready_queues",
        "running",
        "scheduler",
        "stopping",
        "streams",
        "timed",
        "timers",
        "waiting",
    )

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.clock: Clock = scheduler.clock
        self.nodes: list[Node] = []
        self.ready_queues: list[ReadyQueue] = [ReadyQueue()]
        self.lock = threading.Lock()
        self.inbox: deque[Node | None] = deque()
        self.timers = Timers()
        self.waiting = Waiting(self)
        # The time at which the run is to end whatever happens.
        self.limit: int | None = None
        # Whether there is any time to watch for: a timer, the limit, or conditions to poll.
        self.timed = False
        # The nodes with a user's condition that said WAIT, and the time at which to ask them again. A dict, because
        # its order is the same every time.
        self.polled: dict[Node, None] = {}
        self.poll_at = 0
        # Whether anything was let run since the run was last found idle.
        self.progress = True
        # Nodes that wait for an announcement; while there are some there is no deadlock.
        self.pending = 0
        self.alive = 0
        self.running = 0
        self.stopping = False
        # Why it stops, once it does: "" when there was nothing left to do, "stopped" or "duration".
        self.ended_by = ""
        # What workers raised, in the order it was noticed.
        self.errors: list[BaseException] = []
        # When the run ends unless something runs before; set while it is idle.
        self.deadlock_at: int | None = None
        # The node whose conditions are being asked, and the thread that asks.
        self._asking: Node | None = None
        self._asking_on = 0
        # Called once when the run is over, whatever happened; for layers above this one.
        self.at_end: list[Callable[[], None]] = []
        self.streams: RunStreams

    # From any thread.

    def announce(self, node: Node) -> None:
        """Have a node's conditions asked again; never blocks and takes no lock."""
        if node is self._asking and get_ident() == self._asking_on:
            return  # from inside a `check`, whose answer is about to be taken anyway
        self.inbox.append(node)
        self.waiting.announced(node.ready_queue)

    def time_moved(self) -> None:
        """Have the clock looked at again, because its time was moved or its pace changed."""
        self.inbox.append(None)
        self.waiting.time_moved()
        self.waiting.announced(None)

    def request_stop(self) -> None:
        """End the run once what is running now has finished."""
        if not self.stopping:
            self.ended_by = "stopped"
        self.stopping = True
        self.inbox.append(None)
        self.waiting.wake_all()

    def end(self, ended_by: str = "") -> None:
        """End the run, because there is nothing left to do unless said."""
        if not self.stopping:
            self.ended_by = ended_by
        self.stopping = True
        self.waiting.wake_all()

    def computing(self) -> list[Node]:
        """Return the nodes that compute now; for people to look at, since it takes no lock."""
        waiting = {
            node for ready_queue in self.ready_queues for node in (*ready_queue.now, *ready_queue.later)
        }
        return [node for node in self.nodes if node.busy and node not in waiting]

    # At the start.

    def prime(self) -> None:
        """Count every node's blockers and put the ones without any in their ready queues."""
        self.alive = len(self.nodes)
        if self.scheduler.max_duration_ms >= 0:
            self.limit = self.clock.timestamp() + self.scheduler.max_duration_ms * 1_000_000
            self.timed = True
        for node in self.nodes:
            # Taken only now: an operator may choose its compute in start().
            node.compute = node.streams.around(compute_of(node))
            for queue in node.inputs:
                queue.available = len(queue) >= queue.min_size
                node.blockers += not queue.available
            # Its outputs need no look: their queues are empty, and no node waits for more room than there is.
            node.guarded = bool(node.asked or node.shared)
            node.settle()
        for node in self.nodes:
            if node.remaining == 0:
                self.retire(node)
            elif not node.blockers:
                node.busy = True
                node.ready_queue.later.append(node)
            elif node.asked:
                self.observe(node)
        self.clock.watch(self.time_moved)

    # The step.

    def take(self, ready_queue: ReadyQueue) -> Node | None:
        """Return the next node of a queue that is to run, or None; the caller runs it and calls `finish`."""
        while True:
            if self.inbox:
                self.drain()
            if self.timed:
                self.fire()
            if self.stopping:
                return None
            if ready_queue.now:
                node = ready_queue.now.pop()
            elif ready_queue.later:
                self.begin_sweep(ready_queue)
                continue
            else:
                return None
            if node.blockers or (node.guarded and not self.admit(node)):
                node.busy = False
                continue
            node.sweep = ready_queue.sweep
            return node

    def service(self) -> None:
        """Take note of announcements and of the time, for a worker that may take nothing."""
        if self.inbox:
            self.drain()
        if self.timed:
            self.fire()

    def has_ready(self) -> bool:
        """Return whether any node waits to be taken."""
        return any(ready_queue.now or ready_queue.later for ready_queue in self.ready_queues)

    def begin_sweep(self, ready_queue: ReadyQueue) -> None:
        """Let everything that is to run later run now."""
        # If none but polled nodes are here, asking them once more would go on for ever.
        busy = bool(self.polled) and not self.polled.keys() >= set(ready_queue.later)
        ready_queue.sweep += 1
        ready_queue.now.extend(reversed(ready_queue.later))
        ready_queue.later.clear()
        if not ready_queue.sweep & SWEEPS:
            look_for_unreceived(self, ready_queue)
        if busy:
            self.poll()

    def compute_special(self, node: Node) -> None:
        """Run a node that has more to it than its compute."""
        began = self.clock.timestamp() if node.asked else 0
        node.compute(node.input, node.output, node.context)
        for hook in node.after:
            hook(node)
        if node.asked:
            node.on_execute(began)
        # Let go of what came with the messages now, not under the lock and not at the next compute.
        if node.gathered:
            node.forget()

    def finish(self, node: Node) -> None:
        """Bring every flag of the node's queues up to date and put in ready queues what that made ready.

        With `take`, this is what a step costs beside the operator's own compute: about 1.2 µs of the 1.8
        that `benchmarks/chain.py` measures.
        """
        for queue in node.inputs:
            waiting = len(queue)
            if waiting < queue.min_size and queue.available:
                queue.available = False
                node.blockers += 1
            if not queue.affordable and waiting <= queue.room:
                queue.affordable = True
                producer = queue.producer
                producer.blockers -= 1
                if not producer.blockers and not producer.busy:
                    producer.busy = True
                    producer.ready_queue.later.append(producer)
            if queue.watched:
                for producer in queue.feeders:
                    self.candidate(producer)
        for queue in node.outputs:
            waiting = len(queue)
            if not queue.available and waiting >= queue.min_size:
                queue.available = True
                consumer = queue.consumer
                consumer.blockers -= 1
                if not consumer.blockers and not consumer.busy:
                    consumer.busy = True
                    ready_queue = consumer.ready_queue
                    if consumer.sweep == ready_queue.sweep:
                        ready_queue.later.append(consumer)
                    else:
                        ready_queue.now.append(consumer)
            if queue.affordable and waiting > queue.room:
                queue.affordable = False
                queue.producer.blockers += 1
            if queue.watched:
                self.candidate(queue.consumer, soon=True)
        node.remaining = remaining = node.remaining - 1
        if not remaining:
            self.retire(node)
        if node.special:
            if node.gathered:
                # Again here for the compute in which the node first met metadata: it began as a plain one.
                node.forget()
            if node.shared:
                self.unreserve(node)
            gate = node.gate
            if gate is not None and gate.full is not None:
                self.shut(node)
            # After all that may block this node: the order among producers depends on whether it can run.
            for queue in node.crowded:
                self._share_room(queue)
        if node.blockers:
            node.busy = False
            if node.asked:
                self.observe(node)
        else:
            node.ready_queue.later.append(node)

    def tell_room(self, queue: Queue) -> None:
        """Tell the producers of a queue, in the middle of its consumer's compute, that there is room."""
        with self.lock:
            self._retell(queue)
            self.waiting.wake_others(queue.consumer.ready_queue, computes=True)

    def overtake(self, ready_queue: ReadyQueue) -> None:
        """Open a queue to all its workers again: the node that has it to itself is not as quick as expected."""
        node = ready_queue.quick
        if node is not None:
            ready_queue.quick = None
            for queue in node.inputs:
                self._retell(queue)  # which it did not do as it received

    def candidate(self, node: Node, soon: bool = False) -> None:
        """Put a node in its ready queue, in this sweep if `soon`, if nothing that is counted blocks it."""
        if not node.blockers and not node.busy:
            node.busy = True
            ready_queue = node.ready_queue
            (ready_queue.now if soon and node.sweep != ready_queue.sweep else ready_queue.later).append(node)

    def retire(self, node: Node) -> None:
        """Never run a node again."""
        if node.retired:
            return
        node.retired = True
        # A blocker that nothing takes away.
        node.blockers += 1
        self.alive -= 1
        self.polled.pop(node, None)
        self.timers.disarm(node)
        if node.pending:
            node.pending = False
            self.pending -= 1

    # Operators whose work on the device is too far behind.

    def shut(self, node: Node) -> None:
        """Hold a node back until the device has finished its oldest compute."""
        assert node.gate is not None
        node.shut = True
        node.blockers += 1
        self.pending += 1
        node.gate.tell(node.announce)

    def reopen(self, node: Node) -> None:
        """Let a node go on if the device has caught up, else wait on."""
        assert node.gate is not None
        if node.gate.is_still_full():
            node.gate.tell(node.announce)
            return
        node.shut = False
        node.settle()
        node.blockers -= 1
        self.pending -= 1

    # Conditions that are asked.

    def admit(self, node: Node) -> bool:
        """Return whether a node without blockers may run now; if not, see to it that it is asked again."""
        if node.asked:
            status, until = self.observe(node)
            if status is not _READY:
                if status is _WAIT_TIME:
                    assert until is not None
                    self.timers.arm(node, until)
                    self.timed = True
                return False
        if node.shared:
            self.reserve(node)
        self.progress = True
        return True

    def observe(self, node: Node) -> tuple[SchedulingStatusType, int | None]:
        """Ask a node's conditions and take note of NEVER, of events outstanding and of what to poll.

        Whatever time it waited for is forgotten, unless it waits for a time again.
        """
        if node.retired:
            return _NEVER, None
        now = self.clock.timestamp()
        self._asking, self._asking_on = node, get_ident()
        try:
            status, until = node.ask_conditions(now)
        except Exception as error:
            error.add_note(f"raised by a condition of operator {node.name!r}")
            raise
        finally:
            self._asking = None
        if status is _NEVER:
            self.retire(node)
            return status, until
        if status is not _WAIT_TIME:
            self.timers.disarm(node)
        pending = status is _WAIT_EVENT
        if pending is not node.pending:
            node.pending = pending
            self.pending += 1 if pending else -1
        if node.polls:
            # One that waits for an event or a time, or is blocked, is asked when that comes or ends; unless any of
            # several conditions will do, and another of them said WAIT.
            is_polled = status is _WAIT or (
                status is not _READY and any(condition.is_polled_beside for condition in node.asked)
            )
            if node.blockers or not is_polled:
                self.polled.pop(node, None)
            elif node not in self.polled:
                if not self.polled:
                    self.poll_at = now + self._recess()
                self.polled[node] = None
                self.timed = True
        return status, until

    def poll(self) -> bool:
        """Have the users' conditions that said WAIT asked again, and return whether any is to be."""
        self.poll_at = self.clock.timestamp() + self._recess()
        for node in self.polled:
            self.candidate(node)
        return self.has_ready()

    def _recess(self) -> int:
        return max(round(self.scheduler.check_recession_period_ms * 1e6), 1)

    def drain(self) -> None:
        """Take note of what was announced until now."""
        inbox = self.inbox
        # Not of what is announced meanwhile: under a flood of announcements this would never end.
        for _ in range(len(inbox)):
            node = inbox.popleft()
            if node is None:
                continue
            if node.shut:
                self.reopen(node)
            if node.stop_requested:
                self.retire(node)
            elif node.blockers:  # as has one that is retired, of which nothing is asked
                self.observe(node)
            else:
                self.progress = self.progress or not node.guarded
                self.candidate(node)

    # Time.

    def fire(self) -> None:
        """Put in their queues the nodes whose time has come, and end the run if its time is up."""
        now = self.clock.timestamp()
        for node in self.timers.due(now):
            self.candidate(node)
        if self.limit is not None and now >= self.limit:
            self.end("duration")
        if self.polled:
            if now >= self.poll_at:
                self.poll()
        else:
            self.timed = self.next_time() is not None

    def next_time(self) -> int | None:
        """Return the next time at which something is to happen: a timer, a poll, or the end of the run."""
        until = self.timers.next()
        if self.limit is not None and (until is None or self.limit < until):
            until = self.limit
        if self.polled and self.clock.passes and (until is None or self.poll_at < until):
            until = self.poll_at
        return until

    # Room for which several producers wait: taken before a compute, given back after it, so that two of them
    # never run for the same place.

    def reserve(self, node: Node) -> None:
        """Take the room a node may need in the queues it shares."""
        for claim in node.shared:
            claim.running = True
            claim.queue.reserved += claim.places
            self._share_room(claim.queue)

    def unreserve(self, node: Node) -> None:
        """Give back the room a node took, and let the others go first next time; they are told by `finish`."""
        for claim in node.shared:
            claim.running = False
            claims = claim.queue.claims
            claim.queue.reserved -= claim.places
            claims.remove(claim)
            claims.append(claim)

    def _retell(self, queue: Queue) -> None:
        """Bring what the producers of a queue were told of its room up to date."""
        if len(queue.claims) > 1:
            self._share_room(queue)
            return
        affordable = len(queue) <= queue.room
        if affordable is queue.affordable:
            return
        queue.affordable = affordable
        queue.producer.blockers += -1 if affordable else 1
        if affordable:
            self.candidate(queue.producer)

    def _share_room(self, queue: Queue) -> None:
        """Tell each of several producers whether there is room for it beside those that run now.

        The one that ran least recently comes first. A producer that needs few places may run before one that needs
        many and came first, else a batch that only it can complete would never be complete. But it does not do so
        while the queue is about to be emptied anyway, else the other would never find room.
        """
        waiting = len(queue)
        consumer = queue.consumer
        is_emptied = waiting >= queue.min_size and not consumer.blockers and not consumer.asked
        free = queue.limit - waiting - queue.reserved
        is_closed = False
        for claim in queue.claims:
            node = claim.node
            if claim.running or node.retired:
                continue
            affordable = claim.places <= free
            if affordable is not claim.affordable:
                claim.affordable = affordable
                if affordable:
                    node.blockers -= 1
                    self.candidate(node)
                else:
                    node.blockers += 1
                    if node.blockers == 1:
                        # It was about to run, and so to empty its inputs, and now is not.
                        for other in node.crowded:
                            if other.consumer is node:
                                self._share_room(other)
            if not affordable:
                is_closed = True
                if is_emptied and node.blockers == 1:
                    free = 0
        queue.close_room(is_closed)
