"""ProcessReplica: a replica whose operator computes in a process of its own.

In this process it is an operator with the same ports and parameters, whose compute sends the messages of one job to
the process and emits what comes back. What the operator logs there is logged here, and what it stops is stopped
here. It has a thread of its own, as every replica, which waits meanwhile.

Forking a process that has threads and a GPU context is not safe. So the process is forked by a server that has only
imported headrace (``forkserver``), which is faster than a new interpreter. The class of the operator must be
importable there, and its arguments are pickled. The process ignores Ctrl-C, which the terminal sends to it:
this process decides when it stops. It ends by itself when this process has ended, however that ended.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import connection, get_all_start_methods, get_context
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._runtime import Envelope, open_message, seal_message
from headrace.core.condition import BareCondition
from headrace.core.construction import Inner
from headrace.core.errors import CrossingError, GraphError, WorkerProcessError
from headrace.core.live_values import KnobType
from headrace.core.operator import Operator
from headrace.core.parameters import holder_of
from headrace.core.ports import IOSpec
from headrace.core.resource import Resource
from headrace.replicas.crew import InnerMover
from headrace.replicas.crossing import pack, receive, send

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from headrace.core.composition import Composition
    from headrace.core.errors import Failure
    from headrace.core.metadata import MetadataPolicy
    from headrace.core.spec import OperatorSpec

_VARIABLES = ("HEADRACE_DEVICE", "CUDA_VISIBLE_DEVICES")
# The keywords that count in this process.
_OURS = ("fragment", "workers", "on", "ordered", "on_error", "deadline", "on_stuck")
_MANY = 256  # messages at an output that is not connected
_PATIENCE = 1.0  # seconds after which the main thread looks for signals in any case
BEAT = 0.5
"""The seconds after which a process notes once more that it is alive."""
# A process that is frozen, or that keeps the interpreter lock, notes nothing. It is given up after so many checks,
# and not after a time: this process may have been stopped as well. A process that starts has more, since imports
# take long.
_SILENT, _SILENT_AT_START = 3, 63


class Creation(NamedTuple):
    """How the operator is created in the process."""

    kind: type[Operator]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    values: dict[str, Any]
    """The values of all parameters."""
    name: str
    inputs: dict[str, list[int]]
    """The size of each queue of each input."""
    outputs: dict[str, int]
    """The number of messages that one job may emit, by output."""
    environment: dict[str, str]
    """The variables that choose the device."""
    metadata_policy: MetadataPolicy
    has_metadata: bool
    fragment: str
    """The name of the fragment, and of its run."""
    run: str
    clock_passes: bool
    """Whether the time of the run passes while the operator computes."""
    log_levels: dict[str, int]
    """The levels of the loggers of the program, by name."""


class PortMessage(NamedTuple):
    """One message."""

    port: str
    place: int
    data: Any
    acq_timestamp: int | None
    metadata: dict[str, Any] | None


class Job(NamedTuple):
    """What is sent to the process: the messages of one compute, and the values that were set since the last.

    While it computes, the process sends log records (`logging.LogRecord`), and then a `Reply`.
    """

    now: int
    """The time of the run."""
    live: dict[str, Any]
    knobs: dict[str, Any]
    messages: list[PortMessage]


class Reply(NamedTuple):
    """What the process sends: the results of a job, or the error that it raised."""

    results: list[PortMessage]
    error: Failure | None = None
    stops: tuple[str | None, ...] = ()
    """What the operator wants to be stopped: itself (None), an operator by name, or the run ("")."""
    knobs: dict[str, str] | None = None
    """The types of its knobs, by name, when they are known."""


class ProcessReplica(Operator):
    """A replica in a process of its own."""

    _headrace = Inner(InnerMover)

    def __init__(
        self, fragment: Composition, declared: Operator, number: int, run_child: Callable[..., None]
    ) -> None:
        self._declared = declared
        self._run_child = run_child
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._beat: Any = None  # when the process was last alive, as it notes itself
        # Whether its `start` was called: if not, nobody calls its `stop`.
        self._is_started = False
        # The values of live parameters and knobs that the process has.
        self._shown_values: dict[str, Any] = {}
        self._shown_knobs: dict[str, Any] = {}
        self._headrace.construct(fragment, (), f"{declared.name}[{number}]", {})

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports and the live parameters of the operator."""
        declared = self._declared.spec
        for ports, copies in ((declared.inputs, spec.inputs), (declared.outputs, spec.outputs)):
            copies.update((name, IOSpec(name, port.io_type, port.size)) for name, port in ports.items())
        spec.params.update((name, each) for name, each in declared.params.items() if each.is_live)

    # The process.

    def start(self) -> None:
        """Start the process, and those of the other replicas; return when the operator in this one has started."""
        for replica in self._replicas_here():
            replica.launch()
        self._is_started = True
        try:
            self._receive("while it started")
        except BaseException:
            self.close()
            raise

    def launch(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None:
            return
        context = _context(self._run_child.__module__)
        creation = self._pack_creation()
        ours, theirs = context.Pipe()
        beat = context.RawValue("d", 0.0)
        process = context.Process(
            target=self._run_child, args=(theirs, creation, beat), name=f"headrace {self.name}", daemon=True
        )
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._process, self._connection, self._beat = process, ours, beat
        self._shown_values = {name: getattr(self, name) for name in self.spec.params}
        self._shown_knobs = {}

    def stop(self) -> None:
        """Stop the operator and end the process."""
        for replica in self._replicas_here():
            if not replica._is_started:
                replica.close()
        try:
            if self._process is not None and self._process.is_alive():
                assert self._connection is not None
                send(self._connection, None)
                self._receive("while it stopped")
        finally:
            self.close()

    def _replicas_here(self) -> list[ProcessReplica]:
        return [
            replica for replica in self._headrace.replication.copies if isinstance(replica, ProcessReplica)
        ]

    def close(self) -> None:
        """End the process if it has not ended."""
        process, link = self._process, self._connection
        self._process = self._connection = None
        if link is not None:
            link.close()
        if process is not None:
            process.join(_PATIENCE)  # it ends when the connection is closed
            if process.exitcode is None:
                process.kill()
                process.join()
            process.close()

    def _pack_creation(self) -> bytes:
        declared = self._declared
        args, keywords = declared._headrace.replication.creation
        given = [*args[1:], *keywords.values(), *declared.resources.values()]
        resource = next((part for part in given if isinstance(part, Resource)), None)
        where = f"operator {declared.name!r} cannot run on processes"
        if resource is not None:
            raise GraphError(
                f"{where}: it was given the resource {resource.name!r}, which stays in this process; create what "
                "it needs in start(), or leave out on='processes'"
            )
        assert self._headrace.node is not None
        values = {name: getattr(holder_of(declared), name) for name in declared.spec.params}
        values.update((name, getattr(self, name)) for name in self.spec.params)
        creation = Creation(
            type(declared),
            tuple(arg for arg in args if arg is not declared.fragment and not isinstance(arg, BareCondition)),
            {
                name: value
                for name, value in keywords.items()
                if not (name in _OURS and name not in declared.spec.params)
                and not isinstance(value, BareCondition)
            },
            values,
            self.name,
            {
                name: [queue.limit for queue in queues]
                for name, queues in self._headrace.node.input_queues.items()
            },
            self._room(),
            {name: os.environ[name] for name in _VARIABLES if name in os.environ},
            declared.metadata.policy,
            declared.is_metadata_enabled,
            self.fragment.name,
            self.fragment._headrace.run_id,
            self._headrace.node.engine.clock.passes and not self._headrace.node.engine.clock.is_virtual,
            _log_levels(),
        )
        try:
            return pack(creation)
        except CrossingError as error:
            raise GraphError(
                f"{where}: the operator is created there by its class and its arguments, and {error}; define the "
                "class or function at the top of a module, and give it plain values"
            ) from error

    def _room(self) -> dict[str, int]:
        assert self._headrace.node is not None
        return {name: queues[0].limit or _MANY for name, queues in self._headrace.node.output_queues.items()}

    def _receive(self, when: str) -> Reply:
        """Wait for the reply of the process; raise its error, or one that says how the process ended."""
        process, link = self._process, self._connection
        assert process is not None
        assert link is not None
        try:
            while True:
                self._wait(process, link, when)
                reply: Reply | logging.LogRecord = receive(link)
                if isinstance(reply, Reply):
                    break
                logger = logging.getLogger(reply.name)
                if logger.isEnabledFor(reply.levelno):
                    logger.handle(reply)
        except (EOFError, OSError):
            process.join()
            code, pid = process.exitcode or 0, process.pid
            self.close()
            how = f"ended with exit status {code}"
            if code < 0:
                with suppress(ValueError):
                    how = f"was ended by {signal.Signals(-code).name}"
            hint = ""
            if when == "while it started":
                hint = (
                    "; its output may tell why: a program that runs on import needs if __name__ == '__main__'"
                )
            raise WorkerProcessError(
                f"operator {self.name!r}: its process {pid} {how} {when}{hint}"
            ) from None
        if reply.knobs is not None and not self._headrace.knobs.are_known:
            self._headrace.knobs.types.update((name, KnobType(dtype)) for name, dtype in reply.knobs.items())
            self._headrace.knobs.are_known = True
        for name in reply.stops:
            if name is None:
                self.stop_execution()
            else:
                self.fragment.stop_execution(name)
        if reply.error is not None:
            raise reply.error.error(f"{self.name!r}:")
        return reply

    def _wait(self, process: BaseProcess, link: Connection, when: str) -> None:
        """Wait until the process has said something, or has ended; end it if it is frozen."""
        limit = _SILENT_AT_START if when == "while it started" else _SILENT
        beat, checks = self._beat.value, 0
        while not connection.wait([link, process.sentinel], _PATIENCE):
            checks = checks + 1 if self._beat.value == beat else 0
            beat = self._beat.value
            if checks == limit:
                pid = process.pid
                process.kill()
                self.close()
                raise WorkerProcessError(
                    f"operator {self.name!r}: its process {pid} has given no sign of life for {limit} s {when}: "
                    "it is frozen, or a call holds the interpreter lock; it was ended"
                )

    # The compute.

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send the messages of one job to the process, and emit its results."""
        if self._process is None:
            self.start()  # it was killed, and the error was skipped
        assert self._connection is not None
        live = _changed({name: getattr(self, name) for name in self.spec.params}, self._shown_values)
        knobs = _changed(dict(self._headrace.knobs.given), self._shown_knobs)
        messages = [as_port_message(*taken) for taken in op_input.take_messages()]
        try:
            send(self._connection, Job(context.timestamp, live, knobs, messages))
        except CrossingError as error:
            raise CrossingError(f"operator {self.name!r}: a message of it: {error}") from error
        except OSError:  # it has ended; the reply says how
            pass
        for result in self._receive("while it computed").results:
            op_output.pass_message(as_message(result), result.port)


def _changed(values: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Return the values that were not shown to the process, and note that they are from now on."""
    found = {name: value for name, value in values.items() if value is not shown.get(name, shown)}
    shown.update(found)
    return found


def _log_levels() -> dict[str, int]:
    """Return the levels of all loggers that have one."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        name: each.level for name, each in loggers.items() if isinstance(each, logging.Logger) and each.level
    }


@cache
def _context(preloaded: str) -> Any:
    """Return what starts processes: a server that forks itself or, where there is none, new interpreters."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([preloaded, "headrace._runtime.lifecycle.run"])
    return context


def as_port_message(port: str, place: int, message: Any) -> PortMessage:
    """Return a message from a queue as it is sent; wait for the device if it copies to the host."""
    if type(message) is Envelope:
        for _, _, event in message.all_fences():
            event.sync()
    return PortMessage(port, place, *open_message(message))


def as_message(result: PortMessage) -> Any:
    """Return a message for a queue."""
    return seal_message(result.data, result.acq_timestamp, result.metadata)
