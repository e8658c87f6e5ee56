"""The process of a replica (`headrace.replicas.process_replica`): a program of two operators.

The replicated operator runs as in any program, with its ports, metadata and streams. A `Door` stands at both of its
ends: it receives a job from the other process, sends its messages to the operator, and sends the results back.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.application.application import Application
from headrace.core.condition_types import ConditionType
from headrace.core.errors import CrossingError
from headrace.core.graph import Flow
from headrace.core.operator import Operator
from headrace.replicas.crew import Crew, Lane, job_port
from headrace.replicas.crossing import receive, send
from headrace.replicas.expansion import let_run_for_jobs
from headrace.replicas.process_replica import Creation, Job, Reply, as_message, as_parcel
from headrace.schedulers import GreedyScheduler

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def run_child(connection: Connection, creation: bytes) -> None:
    """Run an operator for the process at the other end of a connection, until that says so or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    # Traces, pages and recordings are those of the program.
    for name in [name for name in os.environ if name.startswith("HEADRACE_")]:
        del os.environ[name]
    try:
        try:
            created: Creation = pickle.loads(creation)
            os.environ.update(created.environment)
            _Child(connection, created).run()
        except BaseException as error:
            _send_error(connection, error)
        else:
            send(connection, Reply([]))
    except (EOFError, OSError):
        pass  # the program has ended
    finally:
        connection.close()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _send_error(connection: Connection, error: BaseException) -> None:
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of a class that has more arguments than it keeps, or of a local class
        error = RuntimeError(f"{type(error).__name__}: {error}")
    send(connection, Reply([], error, text))


class _Child(Application):
    """The program of the process."""

    def __init__(self, connection: Connection, creation: Creation) -> None:
        super().__init__()
        self.connection = connection
        self.creation = creation
        self.scheduler(GreedyScheduler(self))

    def service(self, service_type: type[Any], id: str = "") -> Any:  # noqa: A002
        """Refuse: a service is an object of the program's own process."""
        raise CrossingError(
            f"service({service_type.__name__}) of operator {self.creation.name!r}, whose replicas are processes: "
            "services are objects of the program's process; use replicas on threads, or pass a parameter"
        )

    def compose(self) -> None:
        """Connect the operator with the door, in a loop."""
        kind, args, keywords, values, name, inputs, outputs, _ = self.creation
        operator = kind(self, *args, **keywords)
        operator.name = operator.spec.owner = name
        for key, value in values.items():
            setattr(operator._parameters, key, value)
        let_run_for_jobs(operator)
        lane = Lane(Crew(is_ordered=True), operator, [])
        lane.crew.lanes.append(lane)
        door = Door(self, lane, self.connection)
        flows = [
            Flow(door, job_port(name, 0, place), operator, name, size)
            for name, sizes in inputs.items()
            for place, size in enumerate(sizes)
        ]
        for flow in flows:
            door.spec.output(flow.output).condition(ConditionType.NONE)
        for name, size in outputs.items():
            door.spec.input(name, size=size).condition(ConditionType.NONE)
            flows.append(Flow(operator, name, door, name))
        self.graph.rebuild([operator, door], flows)


class Door(Operator):
    """Receives jobs, and sends their results."""

    def __init__(self, fragment: Application, lane: Lane, connection: Connection) -> None:
        self.lane = lane
        self.connection = connection
        self.error: BaseException | None = None
        self._construct(fragment, (), "door", {})
        self.conditions = {lane.crew.free.name: lane.crew.free}

    def start(self) -> None:
        """Announce that the operator, which comes first, has started; from now on its errors are replies."""
        operator = self.lane.operator
        operator.compute = partial(self._guard, operator.compute)  # type: ignore[method-assign]
        send(self.connection, Reply([]))

    def _guard(self, compute: Any, op_input: Any, op_output: Any, context: Any) -> None:
        try:
            compute(op_input, op_output, context)
        except Exception as error:
            self.error = error

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send the results of the last job, and receive the next one."""
        lane = self.lane
        results = [as_parcel(*taken) for taken in op_input.take_messages()]
        error, self.error = self.error, None
        if error is not None:
            _send_error(self.connection, error)
        elif lane.done:
            try:
                send(self.connection, Reply(results))
            except CrossingError as refused:
                text = f"operator {lane.operator.name!r}: a result of it: {refused}"
                _send_error(self.connection, CrossingError(text))
        job: Job | None = receive(self.connection)
        if job is None:
            self.fragment.stop_execution()
            return
        for name, value in job.live.items():
            lane.operator.set_live(name, value)
        for name, value in job.knobs.items():
            lane.operator.set_knob(name, value)
        for parcel in job.messages:
            op_output.pass_message(as_message(parcel), job_port(parcel.port, 0, parcel.place))
        lane.give(bool(job.messages))
