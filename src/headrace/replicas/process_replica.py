"""ProcessReplica: a replica whose operator computes in a process of its own.

In this process it is an operator with the same ports and parameters, whose compute sends the messages of one job to
the process and emits what comes back. What the operator logs there is logged here, and what it stops is stopped
here. It has a thread of its own, as every replica, which waits meanwhile.

Forking a process that has threads and a GPU context is not safe. So the process is forked by a server that has only
imported headrace (``forkserver``), which is faster than a new interpreter. The class of the operator must be
importable there, and its arguments are pickled. The process ignores Ctrl-C and SIGTERM, which a terminal or a
service manager sends to all processes of a program: this process decides when it stops. It ends by itself when this
process has ended, however that ended.

Decided against: a replica as a part of the program (`headrace.parts`). A part executes the program anew, so it
needs a file, and takes longer to start. It has a clock, conditions, errors, deadlines, watchers and a log of its
own, while a replica has those of the program.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from multiprocessing import get_context, resource_tracker
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace._runtime import Envelope, seal_message
from headrace.core.condition import BareCondition
from headrace.core.construction import Inner
from headrace.core.errors import CrossingError, GraphError, WorkerProcessError
from headrace.core.live_values import KnobType
from headrace.core.operator import Operator
from headrace.core.parameters import holder_of
from headrace.core.ports import IOSpec
from headrace.core.resource import Resource
from headrace.link.carrier import Carrier
from headrace.link.channel import PATIENCE, Channel, Packed, pack
from headrace.replicas.crew import InnerMover

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.process import BaseProcess

    from headrace.core.composition import Composition
    from headrace.core.errors import Failure
    from headrace.core.metadata import Call, MetadataPolicy, Path
    from headrace.core.spec import OperatorSpec

# Variables that say how the program runs and who watches it, which is not for the process; and those that it needs.
_OF_THE_RUN = ("HEADRACE_", "HOLOSCAN_")
_OF_THE_DEVICE = ("HEADRACE_DEVICE", "HEADRACE_SIM_", "HEADRACE_CHECK", "HEADRACE_ARRAY_")
# The keywords that count in this process.
_OURS = ("fragment", "workers", "on", "ordered", "on_error", "deadline", "on_stuck")
_MANY = 256  # messages at an output that is not connected
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
    """Its variables: those of the program at this moment, as far as they are for it."""
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
    acq_timestamp: int | None = None
    metadata: dict[str, Any] | None = None
    calls: tuple[tuple[int, Path], ...] = ()
    """The calls that it answers, by their numbers in the job."""


class Job(NamedTuple):
    """What is sent to the process: the messages of one compute, and the values that were set since the last.

    While it computes, the process sends log records (`logging.LogRecord`), and then a `Reply`.
    """

    now: int
    """The time of the run."""
    live: dict[str, Any]
    knobs: dict[str, Any]
    messages: list[PortMessage]
    calls: int
    """The number of calls that the messages answer."""


class Reply(NamedTuple):
    """What the process sends: the results of a job, or the error that it raised."""

    results: list[PortMessage]
    error: Failure | None = None
    stops: tuple[str | None, ...] = ()
    """What the operator wants to be stopped: itself (None), an operator by name, or the run ("")."""
    knobs: dict[str, str] | None = None
    """The types of its knobs, by name, when they are known."""
    dropped: tuple[tuple[str, int], ...] = ()
    """The input of each message of the job that was not received, and the queue of that input, by its place."""
    is_last: bool = False
    """Whether the process ends with it."""


class ProcessReplica(Operator):
    """A replica in a process of its own."""

    _headrace = Inner(InnerMover)

    def __init__(
        self, fragment: Composition, declared: Operator, number: int, run_child: Callable[..., None]
    ) -> None:
        self._declared = declared
        self._run_child = run_child
        self._process: BaseProcess | None = None
        self._channel: Channel | None = None
        # What is waited for; when the process was last alive, as it notes itself; and what was last known of that,
        # with the number of checks since then.
        self._doing = ""
        self._beat: Any = None
        self._last_beat, self._checks = -1.0, 0
        # Whether its `start` was called: if not, nobody calls its `stop`.
        self._is_started = False
        self._is_given_up = False
        # The values of live parameters and knobs that the process has.
        self._shown_values: dict[str, Any] = {}
        self._shown_knobs: dict[str, Any] = {}
        self._headrace.construct(fragment, (), f"{declared.name}[{number}]", {})

    def setup(self, spec: OperatorSpec) -> None:
        """Declare the ports and the live parameters of the operator."""
        declared = self._declared.spec
        for ports, copies in ((declared.inputs, spec.inputs), (declared.outputs, spec.outputs)):
            copies.update((name, IOSpec(name, port.io_type, port.size)) for name, port in ports.items())
        spec.params.update((name, each) for name, each in declared.params.items() if each.live)

    # The process.

    def start(self) -> None:
        """Start the process; return when the operator in it has started.

        At the begin of a run the processes of the other replicas start beside it.
        """
        self._is_started = True
        others = self._not_started()
        try:
            for replica in (self, *others):
                replica.launch()
            self._receive("while it started")
        except BaseException:
            for replica in (self, *others):
                replica.close()
            raise

    def launch(self) -> None:
        """Start the process, unless it runs."""
        if self._process is not None:
            return
        if self._beat is None:
            self.fragment._headrace.run_control.call_at_end(self._kill)
        if self._is_given_up:  # by now, perhaps
            raise WorkerProcessError(f"operator {self.name!r}: nobody waits for its run any more")
        context = _context(self._run_child.__module__)
        creation = self._pack_creation()
        ours, theirs = socket.socketpair()
        beat = context.RawValue("d", 0.0)
        process = context.Process(
            target=self._run_child, args=(theirs, beat), name=f"headrace {self.name}", daemon=True
        )
        resource_tracker.ensure_running()  # which would let this thread have SIGTERM again
        # The process inherits this, and so does the server that forks it, if it begins with this one.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        try:
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        self._process, self._beat = process, beat
        self._channel = Channel(Carrier(ours), self._check)
        self._channel.offer(creation)
        atexit.register(self._kill)
        self._shown_values = {name: getattr(self, name) for name in self.spec.params}
        self._shown_knobs = {}

    def stop(self) -> None:
        """Stop the operator and end the process."""
        for replica in self._not_started():
            replica.close()
        try:
            if self._process is not None and self._process.is_alive():
                self._send(None)
                self._receive("while it stopped")
        finally:
            self.close()

    def _not_started(self) -> list[ProcessReplica]:
        copies = self._headrace.replication.copies
        return [each for each in copies if isinstance(each, ProcessReplica) and not each._is_started]

    def _kill(self) -> None:
        """End the process of a run that is given up, or of a program that ends beside its run.

        Every other run has ended its processes. At the end of a program, `multiprocessing` sends SIGTERM to those
        that are left, and waits.
        """
        process, self._is_given_up = self._process, True
        if process is not None:
            with suppress(ValueError):  # it was closed just now
                process.kill()

    def close(self) -> tuple[int, int]:
        """End the process if it has not ended; return its number and its exit status."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        atexit.unregister(self._kill)
        if channel is not None:
            channel.close()
        if process is None:
            return 0, 0
        process.join(PATIENCE)  # it ends when the connection is closed
        if process.exitcode is None:
            process.kill()
            process.join()
        known = process.pid or 0, process.exitcode or 0
        process.close()
        return known

    def _pack_creation(self) -> Packed:
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
            {
                name: value
                for name, value in os.environ.items()
                if not name.startswith(_OF_THE_RUN) or name.startswith(_OF_THE_DEVICE)
            },
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

    def _send(self, content: Any) -> None:
        """Send something to the process, unless that has ended, which `_receive` finds."""
        assert self._channel is not None
        with suppress(EOFError):
            self._channel.send(content)

    def _receive(self, when: str) -> Reply:
        """Wait for the reply of the process; raise its error, or one that says how the process ended."""
        assert self._channel is not None
        self._doing = when
        try:
            while not isinstance(reply := self._channel.receive_one(), Reply):
                if reply is None:
                    raise EOFError
                logger = logging.getLogger(reply.name)
                if logger.isEnabledFor(reply.levelno):
                    logger.handle(reply)
        except EOFError:
            raise self._lost(*self.close()) from None
        except BaseException as error:
            # It may have been of a log record, and the reply to come would be taken for the next one.
            self.close()
            if isinstance(error, CrossingError):
                raise CrossingError(f"operator {self.name!r}: a result of it: {error}") from error
            raise
        finally:
            self._doing = "while it computed"
        if reply.knobs is not None and not self._headrace.knobs.are_known:
            self._headrace.knobs.types.update((name, KnobType(dtype)) for name, dtype in reply.knobs.items())
            self._headrace.knobs.are_known = True
        for name in reply.stops:
            if name is None:
                self.stop_execution()
            else:
                self.fragment.stop_execution(name)
        node: Any = self._headrace.node
        for name, place in reply.dropped:
            node.input_queues[name][place].dropped += 1
        if reply.error is not None:
            if reply.is_last:
                self.close()
            raise reply.error.error(f"{self.name!r}:")
        return reply

    def _lost(self, pid: int, code: int) -> WorkerProcessError:
        """Return the error for a process that has ended."""
        how = f"ended with exit status {code}"
        if code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-code).name}"
        hint = ""
        if self._doing == "while it started":
            hint = "; its output may tell why: a program that runs on import needs if __name__ == '__main__'"
        return WorkerProcessError(f"operator {self.name!r}: its process {pid} {how} {self._doing}{hint}")

    def _check(self) -> None:
        """Raise if the process has ended, and end it if it is frozen; called each second of a wait for it."""
        assert self._process is not None
        if not self._process.is_alive():  # a child of it may keep its end of the connection open
            raise EOFError
        beat = self._beat.value
        self._checks = self._checks + 1 if self._last_beat == beat else 0
        self._last_beat = beat
        limit = _SILENT_AT_START if self._doing == "while it started" else _SILENT
        if self._checks >= limit:
            self._process.kill()
            pid, _ = self.close()
            raise WorkerProcessError(
                f"operator {self.name!r}: its process {pid} has given no sign of life for {limit} s {self._doing}: "
                "it is frozen, or a call holds the interpreter lock; it was ended"
            )

    # The compute.

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Send the messages of one job to the process, and emit its results."""
        if self._process is None:
            self.start()  # it was killed, and the error was skipped
        live = _changed({name: getattr(self, name) for name in self.spec.params}, self._shown_values)
        knobs = _changed(self._headrace.knobs.given, self._shown_knobs)
        calls: dict[Call, int] = {}
        messages = [as_port_message(calls, *taken) for taken in op_input.take_messages()]
        if calls:  # if this fails, so do they
            self._headrace.node.expect_details()  # type: ignore[union-attr]
            op_output.pass_calls_on(dict.fromkeys(calls, ()))
        try:
            self._send(Job(context.timestamp, live, knobs, messages, len(calls)))
        except CrossingError as error:
            raise CrossingError(
                f"operator {self.name!r}: a message of it{why_not_sent(error, messages)}"
            ) from error
        self._shown_values.update(live)
        self._shown_knobs.update(knobs)
        for result in self._receive("while it computed").results:
            op_output.pass_message(as_message(result, list(calls)), result.port)


def _changed(values: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Return the values that were not shown to the process."""
    return {name: value for name, value in values.items() if value is not shown.get(name, shown)}


def _log_levels() -> dict[str, int]:
    """Return the levels of all loggers that have one."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        name: each.level for name, each in loggers.items() if isinstance(each, logging.Logger) and each.level
    }


@cache
def _context(preloaded: str) -> Any:
    """Return what starts processes: a server that forks itself."""
    context = get_context("forkserver")
    context.set_forkserver_preload([preloaded, "headrace._runtime.lifecycle.run"])
    return context


def as_port_message(numbers: dict[Call, int], port: str, place: int, message: Any) -> PortMessage:
    """Return a message from a queue as it is sent; wait for the device if it copies to the host.

    Calls that have no number get one.
    """
    if type(message) is not Envelope:
        return PortMessage(port, place, message)
    for _, _, event in message.all_fences():
        event.sync()
    details = message.details
    if details is None:
        return PortMessage(port, place, message.data)
    calls = tuple([(numbers.setdefault(call, len(numbers)), path) for call, path in details.calls.items()])
    return PortMessage(port, place, message.data, details.acq_timestamp, details.metadata, calls)


def why_not_sent(error: CrossingError, messages: Sequence[PortMessage]) -> str:
    """Return which of several messages cannot be sent, by its port, and why."""
    for message in messages:
        try:
            pack(message.data)
        except CrossingError as found:
            return f", at {message.port!r}: {found}"
    return f": {error}"


def as_message(sent: PortMessage, calls: Sequence[Call]) -> Any:
    """Return a message for a queue; `calls` are those of the job by their numbers."""
    answered = {calls[number]: path for number, path in sent.calls}
    return seal_message(sent.data, sent.acq_timestamp, sent.metadata, answered)
