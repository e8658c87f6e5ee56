"""The process of a replica (`headrace.replicas.process_replica`): a program of two operators.

The replicated operator runs as in any program, with its ports, metadata and streams. A `Door` stands at both of its
ends: it receives a job from the other process, sends its messages to the operator, and sends the results back.
"""

from __future__ import annotations

import copy
import ctypes
import logging
import multiprocessing.forkserver
import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace._runtime import run
from headrace.application.application import Application, InnerApplication
from headrace.application.runner import supplies_of
from headrace.core.clock import Clock
from headrace.core.construction import Inner
from headrace.core.control import RUNNING, RunControl
from headrace.core.errors import CrossingError, Failure
from headrace.core.graph import Flow
from headrace.core.log import RunFields, formattable
from headrace.core.metadata import Call
from headrace.core.operator import Operator
from headrace.core.parameters import holder_of
from headrace.core.ports import ConditionType
from headrace.core.run_options import RunOptions
from headrace.link.carrier import Carrier
from headrace.link.channel import Channel
from headrace.replicas.crew import Crew, Worker, job_port
from headrace.replicas.expansion import let_run_for_jobs
from headrace.replicas.process_replica import (
    BEAT,
    Creation,
    Job,
    Reply,
    as_message,
    as_port_message,
    why_not_sent,
)
from headrace.schedulers import GreedyScheduler

if TYPE_CHECKING:
    import socket


_PR_SET_PDEATHSIG = 1


def run_child(end: socket.socket, beat: Any) -> None:
    """Run an operator for the process at the other end of a connection, until that says so or ends.

    `beat` is where it notes now and then that it is alive.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not ignored, since its own children would ignore it too. Until now it was blocked (`ProcessReplica.launch`).
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
    # Also if it is frozen then: its parent is the program, or the server that forked it, which ends with the
    # program.
    # That server stays while somebody could ask it for a process, so this one gives up the descriptor for it.
    server: Any = multiprocessing.forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_note_life, args=(beat,), daemon=True).start()
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # it ended before
        os._exit(1)
    channel = Channel(Carrier(end))
    try:
        created: Creation | None = channel.receive_one()
        if created is None:  # the program has ended
            return
        os.environ.clear()
        os.environ.update(created.environment)
        _send_log(channel, created)
        # Not by `run` of a program, which would be in the list of runs, and be run as variables say.
        run(_Child(channel, created), RunControl(RUNNING), supplies_of(RunOptions()))
    except BaseException as error:
        _send_error(channel, error, is_last=True)
    else:
        channel.send(Reply([]))
    finally:
        channel.close()


def _note_life(beat: Any) -> None:
    never = threading.Event()
    while True:
        beat.value = monotonic()
        waits.wait(never, BEAT)


def _send_log(channel: Channel, creation: Creation) -> None:
    """Let the program log what is logged here, if its levels let it pass."""
    for name, level in creation.log_levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger("headrace.run").disabled = True  # the run of the program has records of its own
    handler = _LogSender(channel)
    handler.addFilter(RunFields())
    logging.root.addHandler(handler)


class _LogSender(logging.Handler):
    """Sends log records to the program."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, with its objects as text."""
        try:
            plain = copy.copy(record)
            plain.msg, plain.args = formattable(record).getMessage(), None
            if record.exc_info and record.exc_info[1] is not None:
                plain.exc_text = self._formatter.formatException(record.exc_info)
                vars(plain)["exception"] = type(record.exc_info[1]).__name__
            plain.exc_info = None
            try:
                self._channel.send(plain)
            except CrossingError:  # something that was given by `extra`
                vars(plain).update((name, _as_text(value)) for name, value in vars(plain).items())
                self._channel.send(plain)
        except Exception:
            self.handleError(record)


def _as_text(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float)) else repr(value)


def _send_error(channel: Channel, error: BaseException, **rest: Any) -> None:
    channel.send(Reply([], Failure.of(error), **rest))


class _InnerChild(InnerApplication):
    fragment: _Child

    @property
    def run_id(self) -> str:
        """The run of the program, which log records name."""
        return self.fragment.creation.run


class _Child(Application):
    """The program of the process."""

    _headrace = Inner(_InnerChild)

    def __init__(self, channel: Channel, creation: Creation) -> None:
        super().__init__(name=creation.fragment)
        self.channel = channel
        self.creation = creation
        # What the operator wants to be stopped since the last reply, as in `Reply`.
        self.stops: deque[str | None] = deque()
        self.time = _RunTime(self, creation.clock_passes)
        self.scheduler(GreedyScheduler(self, clock=self.time))

    def stop_execution(self, op_name: str = "") -> None:
        """Stop the program, of which this is a part, or one of its operators."""
        self.stops.append(op_name)

    def end_process(self) -> None:
        """End the run of this process."""
        super().stop_execution()

    def take_stops(self) -> tuple[str | None, ...]:
        """Return what the operator wants to be stopped since the last call."""
        return tuple(self.stops.popleft() for _ in range(len(self.stops)))

    def service(self, service_type: type[Any], id: str = "") -> Any:  # noqa: A002
        """Refuse: a service is an object of the program's own process."""
        raise CrossingError(
            f"service({service_type.__name__}) of operator {self.creation.name!r}, whose replicas are processes: "
            "services are objects of the program's process; use replicas on threads, or pass a parameter"
        )

    def compose(self) -> None:
        """Connect the operator with the door, in a loop."""
        created = self.creation
        operator = created.kind(self, *created.args, **created.keywords)
        operator.name = operator.spec.owner = created.name
        operator.metadata = operator._headrace.metadata_type(created.metadata_policy, created.name)
        operator.enable_metadata(created.has_metadata)
        operator.stop_execution = partial(self.stops.append, None)  # type: ignore[method-assign]
        for key, value in created.values.items():
            setattr(holder_of(operator), key, value)
        operator.spec.time_limit, operator.spec.on_stuck = 0, None  # the program watches it
        let_run_for_jobs(operator)
        worker = Worker(Crew(is_ordered=True), operator)
        worker.crew.workers.append(worker)
        door = Door(self, worker, self.channel)
        flows = [
            Flow(door, job_port(name, 0, place), operator, name, size)
            for name, sizes in created.inputs.items()
            for place, size in enumerate(sizes)
        ]
        for flow in flows:
            door.spec.output(flow.output).condition(ConditionType.NONE)
        for name, size in created.outputs.items():
            door.spec.input(name, size=size).condition(ConditionType.NONE)
            flows.append(Flow(operator, name, door, name))
        self.graph.rebuild([operator, door], flows)


class Door(Operator):
    """Receives jobs, and sends their results."""

    def __init__(self, fragment: _Child, worker: Worker, channel: Channel) -> None:
        self.child = fragment
        self.worker = worker
        self._has_told_knobs = False
        self._calls: dict[Call, int] = {}
        self.channel = channel
        self.error: BaseException | None = None
        self._headrace.construct(fragment, (), "door", {})
        self.conditions = {worker.crew.free.name: worker.crew.free}

    def start(self) -> None:
        """Announce that the operator, which comes first, has started; from now on its errors are replies."""
        operator = self.worker.operator
        operator.compute = partial(self._guard, operator.compute)  # type: ignore[method-assign]
        self.channel.send(Reply([]))

    def _guard(self, compute: Any, op_input: Any, op_output: Any, context: Any) -> None:
        try:
            compute(op_input, op_output, context)
        except Exception as error:
            self.error = error

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send the results of the last job, and receive the next one."""
        worker, child = self.worker, self.child
        results = [as_port_message(self._calls, *taken) for taken in op_input.take_messages()]
        error, self.error = self.error, None
        rest: dict[str, Any] = {"stops": child.take_stops(), "dropped": self._take_dropped()}
        if error is not None:
            _send_error(self.channel, error, **rest)
        elif worker.done:
            try:
                self.channel.send(Reply(results, knobs=self._new_knobs(), **rest))
            except CrossingError as refused:
                text = f"operator {worker.operator.name!r}: a result of it{why_not_sent(refused, results)}"
                _send_error(self.channel, CrossingError(text), **rest)
        job = self._next_job()
        if job is None:
            child.end_process()
            return
        child.time.set(job.now)
        for name, value in job.live.items():
            worker.operator.set_live(name, value)
        for name, value in job.knobs.items():
            worker.operator.set_knob(name, value)
        # What stands for the calls of the program here, so that results tell which of them they answer.
        self._calls = {Call(Future()): number for number in range(job.calls)}
        for moved in job.messages:
            op_output.pass_message(as_message(moved, list(self._calls)), job_port(moved.port, 0, moved.place))
        worker.give(bool(job.messages))

    def _next_job(self) -> Job | None:
        """Receive a job; those with messages that are unknown here are answered with the error."""
        while True:
            try:
                job: Job | None = self.channel.receive_one()
            except CrossingError as error:
                text = f"operator {self.worker.operator.name!r}: a message of it: {error}"
                _send_error(self.channel, CrossingError(text))
            else:
                return job

    def _take_dropped(self) -> tuple[tuple[str, int], ...]:
        """Return the input of each message of the last job that was not received, and the place of its queue."""
        node: Any = self.worker.operator._headrace.node
        dropped: list[tuple[str, int]] = []
        for name, queues in node.input_queues.items():
            for place, queue in enumerate(queues):
                dropped += [(name, place)] * queue.dropped
                queue.dropped = 0
        return tuple(dropped)

    def _new_knobs(self) -> dict[str, str] | None:
        """Return the types of the knobs after the compute that asked for them, once."""
        types = self.worker.operator._headrace.knobs.types
        if self._has_told_knobs or not types:
            return None
        self._has_told_knobs = True
        return {name: each.name for name, each in types.items()}


class _RunTime(Clock):
    """The time of the run of the program, as it was when the job was sent."""

    def __init__(self, fragment: Application, passes: bool) -> None:
        super().__init__(fragment, name="run_time")
        self._moves = passes
        self.set(0)

    def set(self, now: int) -> None:
        """Show a time from now on."""
        self._reading = now, time.monotonic_ns()

    def timestamp(self) -> int:
        """Return the time in nanoseconds."""
        shown, since = self._reading
        return shown + (time.monotonic_ns() - since if self._moves else 0)

    def sleep_until(self, target_time_ns: int) -> None:
        """Sleep until this clock shows a time, if it passes."""
        if not self._moves:
            raise CrossingError(
                "the time of the run stands still while a replica computes on a process, which cannot move it; use "
                "replicas on threads in virtual time"
            )
        while (left := target_time_ns - self.timestamp()) > 0:
            time.sleep(left / 1e9)

    def seconds_until(self, target_time_ns: int) -> float | None:
        """Return the seconds until a time, if it passes."""
        return (target_time_ns - self.timestamp()) / 1e9 if self._moves else None
