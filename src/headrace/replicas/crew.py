"""Crew: the replicas of one operator in a run, what hands them messages and what collects their results.

To the scheduler a replica is an operator like any other, with contexts, streams and a thread of its own. So nothing
is special about errors, live parameters, pauses or tracking. Three things are added:

- A `Distributor` has the inputs and the conditions of the declared operator. Each of its computes takes the
  messages of one compute and moves them, as they are, to the first replica that is free: one *job*.
- A replica runs when it has a job (`JobWaiting`), not by conditions of its own. Messages that its compute did not
  receive are dropped and counted, because the next job goes anywhere. Messages that are left when
  their senders have ended, too few for a job, go to the first replica that is free, for its `end`.
- A `Collector` has the outputs. Each of its computes moves the results of one job on; if results are ordered, of
  the job that was distributed first.

A replica with two jobs done and not collected gets no more. So at most ``3 * workers`` jobs are under way, whatever
the operators behind do, and a replica that is ahead of a slow one can go on meanwhile.

Messages are moved from queue to queue and never opened, so that fences, metadata and timestamps stay as they are.
A collector between the replicas and the receivers was chosen over replicas that emit in turn: those would block
their threads, and the room behind them would have to be reserved before each job.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any

from headrace._runtime import has_more
from headrace.core.condition import Condition
from headrace.core.construction import Inner
from headrace.core.operator import InnerOperator, Operator
from headrace.core.ports import ConditionType, IOSpec, SchedulingStatusType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.core.composition import Composition
    from headrace.core.spec import OperatorSpec

_READY = (SchedulingStatusType.READY, None)
_WAIT = (SchedulingStatusType.WAIT, None)
_NEVER = (SchedulingStatusType.NEVER, None)

JOBS_AHEAD = 2
"""How many jobs of one replica may be done and not collected."""


class Worker:
    """One replica and its jobs.

    The distributor alone changes `given`, the replica `done`. The replica and the collector change `finished`,
    under `lock`.

    Attributes
    ----------
    given, done
        The number of jobs so far.
    has_messages
        Whether its last job has any messages.
    ticket
        The number of its last job, among all jobs.
    finished
        The jobs that are done and not collected: the place of each among all results, and the number of messages of
        each output.
    """

    def __init__(self, crew: Crew, operator: Operator) -> None:
        self.crew = crew
        self.operator = operator
        self.given = self.done = 0
        self.has_messages = False
        self.ticket = -1
        self.lock = threading.Lock()
        self.finished: deque[tuple[int, dict[str, int]]] = deque()
        self.waiting = JobWaiting(self)
        operator.conditions = {each.name: each for each in (self.waiting, JobDone(self))}

    @property
    def is_free(self) -> bool:
        """Whether it can be given a job."""
        return not self.is_over and self.given == self.done and len(self.finished) < JOBS_AHEAD

    @property
    def is_over(self) -> bool:
        """Whether the replica computes no more: it was stopped."""
        node: Any = self.operator._headrace.node
        return node is not None and not node.may_compute

    def give(self, has_messages: bool) -> None:
        """Let the replica run: the messages of a job are in its queues, if it has any."""
        self.has_messages = has_messages
        self.given += 1
        self.waiting.notify_scheduler()

    def finish(self) -> None:
        """Note that a job is done; in the thread of the replica."""
        crew = self.crew
        number, collector = crew.workers.index(self), crew.collector
        if collector is not None:
            with self.lock:
                counts = {
                    name: len(collector.queue(name, number))
                    - sum(before[name] for _, before in self.finished)
                    for name in collector.outputs
                }
                self.finished.append((crew.place_of(self.ticket), counts))
        self.done += 1
        crew.announce()


class Crew:
    """The replicas of one operator.

    Attributes
    ----------
    workers
        The replicas and their jobs.
    is_ordered
        Whether results are collected in the order of their jobs.
    distributor, collector
        What hands out jobs, and what collects results; None if no output is connected.
    """

    distributor: Distributor

    def __init__(self, is_ordered: bool) -> None:
        self.workers: list[Worker] = []
        self.is_ordered = is_ordered
        self.collector: Collector | None = None
        self.free = ReplicaFree(self)
        self.results = ResultReady(self)
        # The ticket of the next job, and the place of the results that are collected next.
        self.next_given = self.next_collected = 0
        self._done = count()

    def announce(self) -> None:
        """Make the distributor and the collector look again."""
        self.free.notify_scheduler()
        self.results.notify_scheduler()

    def find_free(self) -> Worker | None:
        """Return the first replica that can be given a job."""
        return next((worker for worker in self.workers if worker.is_free), None)

    def place_of(self, ticket: int) -> int:
        """Return the place of the results of a job that is done: that of its messages, or that of its end."""
        return ticket if self.is_ordered else next(self._done)

    def find_finished(self) -> int | None:
        """Return the number of the replica whose results are collected next, if they are there."""
        for number, worker in enumerate(self.workers):
            if worker.finished and worker.finished[0][0] == self.next_collected:
                return number
        return None


class InnerMover(InnerOperator):
    """The state of an operator that moves messages between queues and replicas."""

    moves_messages = True


class InnerDistributor(InnerMover):
    """The state of a distributor."""

    operator: Distributor

    @property
    def has_end(self) -> bool:
        """Whether messages that are left are handed out: to the end of a replica, which has one or none has."""
        return self.operator.declared._headrace.has_end


class Distributor(Operator):
    """Hands the messages of an operator to its replicas; it has the name of the operator."""

    _headrace = Inner(InnerDistributor)

    def __init__(self, fragment: Composition, declared: Operator, crew: Crew) -> None:
        self.declared = declared
        self.crew = crew
        self._headrace.construct(fragment, (), declared.name, {})
        given = declared._headrace.conditions
        inputs = {each.name: each for each in given if each.port_role != "transmitter"}
        self.conditions.update(inputs)
        self.conditions[crew.free.name] = crew.free

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the inputs of the operator."""
        declared = self.declared.spec
        spec.inputs.update(declared.inputs)
        spec.or_combined.extend(declared.or_combined)
        spec.multi_port.extend(declared.multi_port)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Move the messages of one job to a replica."""
        crew = self.crew
        worker = crew.find_free()
        assert worker is not None, "the condition holds"
        number = crew.workers.index(worker)
        messages = op_input.take_messages()
        for name, place, message in messages:
            op_output.pass_message(message, job_port(name, number, place))
        worker.ticket = crew.next_given
        crew.next_given += 1
        worker.give(bool(messages))

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Move the messages that are left to a free replica, for its `end`."""
        worker = self.crew.find_free()
        if worker is None:
            return  # all were stopped: the messages stay here, and are counted
        number = self.crew.workers.index(worker)
        node: Any = self._headrace.node
        queues = node.inputs
        kept = {queue.port for queue in queues if queue.policy is IOSpec.QueuePolicy.LATEST}
        passed: set[str] = set()
        while any(queue.port not in passed for queue in queues if queue):
            for name, place, message in op_input.take_messages():
                if name not in passed:
                    op_output.pass_message(message, job_port(name, number, place))
            passed |= kept

    def set_live(self, name: str, value: Any) -> None:
        """Change a live parameter of all replicas."""
        self.declared.set_live(name, value)

    def set_knob(self, name: str, value: Any) -> None:
        """Set a knob of all replicas."""
        self.declared.set_knob(name, value)


def job_port(name: str, worker: int, queue: int) -> str:
    """Return the output of a distributor for one queue of an input of one replica."""
    return f"{name}[{worker}]" if not queue else f"{name}[{worker}].{queue}"


class Collector(Operator):
    """Sends the results of replicas on, in the order of their jobs."""

    _headrace = Inner(InnerMover)

    def __init__(self, fragment: Composition, declared: Operator, crew: Crew, outputs: list[str]) -> None:
        self.crew = crew
        self._declared = declared
        self.outputs = outputs
        # The results of a job that are not sent on yet: a compute has room for one of each output.
        self._taken: dict[str, deque[Any]] = {name: deque() for name in outputs}
        self._headrace.construct(fragment, (), f"{declared.name}[results]", {})
        self.conditions[crew.results.name] = crew.results
        given = declared._headrace.conditions
        self.conditions.update({each.name: each for each in given if each.port_role == "transmitter"})

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the connected outputs of the operator, and an input for each."""
        for name in self.outputs:
            spec.input(name, size=IOSpec.ANY_SIZE).condition(ConditionType.NONE)
            spec.outputs[name] = self._declared.spec.outputs[name]

    def queue(self, name: str, worker: int) -> Any:
        """Return the queue of results of one output of one replica."""
        assert self._headrace.node is not None
        return self._headrace.node.input_queues[name][worker]

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Move the results of one job on, or go on with them."""
        crew = self.crew
        if not self.has_taken:
            number = crew.find_finished()
            assert number is not None, "the condition holds"
            self._take(number)
            crew.next_collected += 1
            crew.free.notify_scheduler()
        self._send(op_output)

    @property
    def has_taken(self) -> bool:
        """Whether results of a job are left to be sent on."""
        return any(self._taken.values())

    def _take(self, number: int) -> None:
        worker = self.crew.workers[number]
        with worker.lock:
            for name, messages in worker.finished[0][1].items():
                queue = self.queue(name, number)
                self._taken[name].extend(queue.popleft() for _ in range(messages))
            worker.finished.popleft()

    def _send(self, op_output: Any) -> None:
        for name, items in self._taken.items():
            if items:
                op_output.pass_message(items.popleft(), name)

    def end(self, op_input: Any, op_output: Any, context: Any) -> Iterator[None]:
        """Move on what is left, in order, and then what the ends of the replicas emitted, replica by replica."""
        workers = self.crew.workers
        while True:
            while self.has_taken:
                self._send(op_output)
                yield
            places = [
                (worker.finished[0][0], number) for number, worker in enumerate(workers) if worker.finished
            ]
            if not places:
                break
            self._take(min(places)[1])
        for number in range(len(workers)):
            for name in self.outputs:
                queue = self.queue(name, number)
                while queue:
                    op_output.pass_message(queue.popleft(), name)
                    yield


class _CrewCondition(Condition):
    """The base of the conditions of a crew, which announce every change themselves."""

    polled = False
    depends_on_ports = False


class ReplicaFree(_CrewCondition):
    """Lets a distributor run while a replica is free."""

    holds_end = True

    def __init__(self, crew: Crew) -> None:
        super().__init__(name="a free replica")
        self.crew = crew

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if a replica is free, and NEVER if all were stopped."""
        if all(worker.is_over for worker in self.crew.workers):
            return _NEVER
        return _WAIT if self.crew.find_free() is None else _READY


class JobWaiting(_CrewCondition):
    """Lets a replica run when it has a job; it does not count while a function has more to yield for the last."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(name="a job")
        self.worker = worker

    @property
    def port_names(self) -> tuple[str, ...]:
        """The inputs, whose messages are those of the job."""
        return tuple(self.worker.operator.spec.inputs)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if there is a job whose messages have not been received."""
        worker = self.worker
        node: Any = self._headrace.node
        if worker.given == worker.done and node.inputs and all(queue.has_ended for queue in node.inputs):
            return _NEVER
        has_begun = worker.has_messages and not any(node.inputs)
        return _READY if worker.given > worker.done and not has_begun else _WAIT


class JobDone(_CrewCondition):
    """Notes that a replica has done its job; it never keeps the replica from running."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(name="a job that is done")
        self.worker = worker

    def on_execute(self, timestamp: int) -> None:
        """Finish the job, unless the function has more to yield for it."""
        worker = self.worker
        if has_more(worker.operator):
            return
        node: Any = self._headrace.node
        for queue in node.inputs:
            while queue:
                queue.drop_oldest()
        worker.finish()


class ResultReady(_CrewCondition):
    """Lets a collector run while there are results to be collected."""

    def __init__(self, crew: Crew) -> None:
        super().__init__(name="results")
        self.crew = crew

    @property
    def port_names(self) -> tuple[str, ...]:
        """The inputs, where the results wait."""
        collector = self.crew.collector
        return () if collector is None else tuple(collector.spec.inputs)

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if the next results are there, and NEVER if there will be none."""
        collector = self.crew.collector
        if self.crew.find_finished() is not None or (collector is not None and collector.has_taken):
            return _READY
        node: Any = self._headrace.node
        return _NEVER if all(queue.has_ended for queue in node.inputs) else _WAIT
