"""Node: an operator in a run, as the engine sees it.

`blockers` counts the reasons why the node cannot run: an input with too few messages, a queue downstream without
room. When it is 0, the node is put in its ready queue. Conditions that cannot be counted are in `evaluated`; they
are evaluated when the node is taken from the ready queue. What they wait for is in `awaited`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace._runtime.messages.ports import no_such_port
from headrace._runtime.scheduling.evaluated_conditions import (
    ENDED,
    NOTHING,
    THROTTLED,
    Awaited,
    EvaluatedConditions,
)
from headrace._runtime.streams.running_operator import RunningOperator
from headrace.core.error_policy import FaultCounts
from headrace.core.node import Receiver, Transmitter
from headrace.core.ports import OperatorStatus, SchedulingStatusType

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.faults import Faults
    from headrace._runtime.scheduling.queue_state import QueueState, SharedRoom
    from headrace._runtime.scheduling.ready_queue import ReadyQueue
    from headrace._runtime.scheduling.resume import Ending, Resume
    from headrace._runtime.scheduling.routing import Routing
    from headrace.core.condition import Condition
    from headrace.core.graph import Beyond
    from headrace.core.operator import Operator


_NEVER = SchedulingStatusType.NEVER
_WAIT = SchedulingStatusType.WAIT
_READY = SchedulingStatusType.READY
_STARTED = OperatorStatus.STARTED
_TICKING = OperatorStatus.TICKING
_IDLE = OperatorStatus.IDLE


class Node(RunningOperator):
    """An operator in a run.

    An operator of a group computes when the group does: its node is not scheduled itself, but that of the group.

    A field is changed in the node's compute; or under the engine's lock, if there is one; or before the run begins.
    The comments in `__init__` state which. Any thread may set `stop_requested` and append to `joining`.
    """

    __slots__ = (
        *(
            "awaited",
            "beyond",
            "blockers",
            "busy",
            "counts",
            "declared",
            "ending",
            "engine",
            "evaluated",
            "faults",
            "granted",
        ),
        *(
            "announces_room",
            "input_states",
            "is_closing",
            "is_guarded",
            "joined",
            "joining",
        ),
        *(
            "output_states",
            "place",
            "ready_queue",
            "replayed",
            "resume",
            "routing",
            "scheduled",
            "shared_room",
        ),
        *("stop_requested", "sweep", "wants_alone"),
    )

    def __init__(self, engine: Any, operator: Operator) -> None:
        super().__init__(operator, engine.clock)
        # Set before the run begins.
        # The engine. Of any type: the engine knows its nodes, and they only announce themselves to it.
        self.engine = engine
        # The node that is scheduled for this operator: itself, or that of its group. And what returns the number of
        # frames that passed the group without a compute of this operator, which count as computes.
        self.scheduled: Node = self
        self.replayed: Callable[[], int] = int
        self.ready_queue: ReadyQueue
        # What is behind it in other processes, if it is the end of a flow from or to one.
        self.beyond: Beyond | None = operator._headrace.beyond
        # The states of its queues, for the hot path.
        self.input_states: tuple[QueueState, ...] = ()
        self.output_states: tuple[QueueState, ...] = ()
        # Its conditions, which are attached again when its flows change (`lifecycle`).
        self.declared: Any
        # Conditions that are evaluated before each compute, if there are any.
        self.evaluated: EvaluatedConditions | None = None
        # The room that it shares with other producers, if any.
        self.shared_room: SharedRoom | None = None
        # Whether conditions are evaluated, room is reserved, or others are waited for, before it runs.
        self.is_guarded = False
        # Whether its receives announce the room that they make, because producers of its messages do not wait for
        # the end of its computes: it computes beside others, or they do.
        self.announces_room = False
        # How often its computes failed or were stuck, and what handles its errors, if they do not stop the run.
        self.counts = FaultCounts()
        self.faults: Faults | None = None
        # Its place among the nodes: what is due at the same time runs in this order.
        self.place = 0
        # What orders its computes among others, or chooses its flows, if anything does.
        self.routing: Routing | None = None
        # What lets its function go on, if it is a function that yields.
        self.resume: Any = None
        # Its end, if its operator has one.
        self.ending: Ending | None = None
        # The start value of `remaining`, so that the number of computes needs no counter of its own.
        self.granted = -1

        # Changed in its compute.
        # Whether its next compute is to take place while no other does (`alone`).
        self.wants_alone = False

        # Changed under the engine's lock.
        # The number of its queues that keep it from running, plus 1 if it has ended or is throttled.
        self.blockers = 0
        # What it waits for besides; changed by `Engine.set_awaited` alone.
        self.awaited: Awaited = NOTHING
        # In a ready queue or running; in both cases it must not be enqueued again.
        self.busy = False
        # The last sweep of its ready queue in which it ran.
        self.sweep = -1
        # The conditions that joined in the run.
        self.joined: list[Condition] = []
        # Whether an input has ended, or it computes no more; it then looks for its end after each step.
        self.is_closing = False

        # Changed by any thread.
        self.stop_requested = False
        # The conditions that join in the run, until a worker takes them on.
        self.joining: deque[Condition] = deque()

    @property
    def has_gone_on(self) -> bool:
        """Whether its last compute went on with messages that an earlier one had received."""
        return self.resume is not None and not self.resume.received

    @property
    def is_parallel(self) -> bool:
        """Whether it computes beside others: its operator says so, or nothing keeps two computes apart."""
        return self.operator._headrace.parallel or not getattr(sys, "_is_gil_enabled", lambda: True)()

    @property
    def retired(self) -> bool:
        """Whether it never runs again."""
        return self.awaited is ENDED

    @property
    def is_fed(self) -> bool:
        """Whether it receives from others; False once all of its flows were removed."""
        return any(queue.feeders for queue in self.inputs) or not self.inputs

    @property
    def may_compute(self) -> bool:
        """Whether it may compute again, as far as is known; its `end` is no compute."""
        return self.awaited.status is not _NEVER and not (self.ending is not None and self.ending.is_on)

    @property
    def throttled(self) -> bool:
        """Whether it waits for the device to finish its oldest compute."""
        return self.awaited is THROTTLED

    # Methods for conditions.

    def evaluate(self, condition: Condition) -> None:
        """Evaluate `condition` before each compute."""
        if self.evaluated is None:
            self.evaluated = EvaluatedConditions(self.name)
        self.evaluated.add(condition)
        if condition.depends_on_ports:
            for queue in self.inputs:
                queue.state.watched = True
            for queue in self.outputs:
                queue.state.watched = True
                if self not in queue.state.watchers:
                    queue.state.watchers.append(self)

    def make_resume(self) -> Resume:
        """Return what keeps the node ready between the values that its function yields."""
        from headrace._runtime.scheduling.resume import Resume

        return Resume(self)

    def receiver(self, port: str) -> Receiver:
        """Return a view of an input port."""
        return Receiver(port, self._queues(port, "input", self.input_queues))

    def transmitter(self, port: str) -> Transmitter:
        """Return a view of an output port."""
        return Transmitter(port, self._queues(port, "output", self.output_queues))

    def _queues(self, port: str, kind: str, queues: dict[str, tuple[Queue, ...]]) -> tuple[Queue, ...]:
        if port not in queues:
            raise no_such_port(self.name, kind, port, queues)
        return queues[port]

    def claim_room(self, queue: Queue, port: str, places: int) -> None:
        """Wait for `places` free places in a queue behind an output; the largest of several numbers counts."""
        queue.state.request_room(self, port, places)

    def limit_count(self, count: int) -> None:
        """Run at most `count` times; the smallest of several limits counts."""
        if self.remaining < 0 or count < self.remaining:
            count = max(count, 0)
            self.granted += count - self.remaining
            self.remaining = count

    # Information about the node.

    @property
    def has_waiting_producers(self) -> bool:
        """Whether a producer of its messages waits for room in a queue."""
        for state in self.input_states:  # noqa: SIM110 (in each step of a run on several workers)
            if not state.affordable or state.is_awaited_elsewhere:
                return True
        return False

    @property
    def computes(self) -> int:
        """The number of computes it has finished in this run."""
        return self.granted - self.remaining + self.replayed()

    @property
    def counted_queues(self) -> dict[str, tuple[Queue, ...]]:
        """The queues of each input, with those of flows that were removed in the run."""
        former = self.engine.former_queues
        if not former:
            return self.input_queues
        return {name: (*queues, *former.get((self, name), ())) for name, queues in self.input_queues.items()}

    @property
    def count_limit(self) -> int | None:
        """The number of computes after which it ends, if that is limited."""
        return self.granted if self.granted >= 0 else None

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that are evaluated before each compute."""
        evaluated = self.evaluated
        if evaluated is None and self.ending is not None:
            evaluated = self.ending.evaluated
        return [] if evaluated is None else evaluated.conditions

    def status(self) -> Any:
        """Return the state of what is scheduled as a whole, for display."""
        node = self.scheduled
        if not node.may_compute:
            return _NEVER
        if node.blockers:
            return _WAIT
        if node.evaluated is None:
            return _READY
        return node.evaluated.combine(self.clock.timestamp(), only_check=True).status

    def activity(self) -> Any:
        """Return what the operator does, for display."""
        phase = self.operator._headrace.run_phase
        if phase is not _STARTED:
            return phase
        scheduled = self.scheduled
        if scheduled.busy and scheduled in self.engine.computing():
            return _TICKING
        return _IDLE if self.computes else phase

    # Methods that any thread may call.

    def join_condition(self, condition: Condition) -> None:
        """Evaluate `condition` from the next compute on; a worker adds it (`take_on_conditions`)."""
        self.scheduled.joining.append(condition)
        self.announce()

    def announce(self) -> None:
        """Announce that something this node waits for may have happened."""
        self.engine.announce(self.scheduled)

    def request_stop(self) -> None:
        """Never run this node again, nor its group, which has nothing to do without it."""
        self.stop_requested = self.scheduled.stop_requested = True
        self.announce()

    # Methods for the engine.

    def take_on_conditions(self) -> None:
        """Evaluate the conditions that joined from now on."""
        while self.joining:
            condition = self.joining.popleft()
            if condition not in self.joined:
                self.joined.append(condition)
                if self.may_compute:
                    condition.attach(self)
        self.update_guard()

    def enqueue_if_ready(self, soon: bool = False) -> None:
        """Put the node in its ready queue if it has no blockers; if `soon`, in this sweep."""
        if not self.blockers and not self.busy:
            self.busy = True
            ready_queue = self.ready_queue
            (ready_queue.now if soon and self.sweep != ready_queue.sweep else ready_queue.later).append(self)

    def leave_ready_queue(self) -> None:
        """Take the node out of its ready queue, if it is there; one that is closing stays, to find its end."""
        for nodes in (self.ready_queue.now, self.ready_queue.later):
            if self in nodes and not self.is_closing:
                nodes.remove(self)
                self.busy = False

    def move_to(self, ready_queue: ReadyQueue) -> None:
        """Move the node to another ready queue before workers begin."""
        if self.busy and not self.retired:
            self.ready_queue.later.remove(self)
            ready_queue.later.append(self)
        self.ready_queue = ready_queue

    def update_guard(self) -> None:
        """Determine whether there is anything to check before it runs."""
        room = self.shared_room
        self.is_guarded = (
            self.wants_alone or self.evaluated is not None or (room is not None and bool(room.requests))
        )
        if self.lifetimes is None or not self.lifetimes.is_full:  # otherwise there is, in this step at least
            self.update_extra_work()

    def update_extra_work(self) -> None:
        """Determine whether its steps consist of more than its compute."""
        self.has_extra_work = (
            self.is_guarded or self.has_details or self.is_closing or self.shared_room is not None
        )
