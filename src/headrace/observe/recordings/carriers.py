"""Carriers: what takes the messages of ports out of a run, and what plays messages into a run; and the ports.

A :class:`PortRecorder` copies the messages of the ports that were chosen and hands them to a `Carrier`, one at a
time, on a thread of its own. :func:`replay` plays the messages of a `MessageSource` in place of the operators that
emitted them. A recording is the carrier and the source that comes with headrace: `RecordingWriter` writes the file,
`Recording` reads it. A program may bring its own.

Ports are chosen by patterns, such as ``camera.out``, ``camera.*`` or ``camera``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from headrace.observe.events.records import OutputInfo, QueueInfo
from headrace.observe.events.watchers import Watcher
from headrace.observe.recordings.payloads import decode, encode

if TYPE_CHECKING:
    from headrace.observe.events.records import RunInfo


class RecordingError(ValueError):
    """A file that is no recording, or a damaged one; or a recording that cannot be written."""


@dataclass(frozen=True, slots=True)
class RecordedPort:
    """A port whose messages are recorded."""

    operator: str
    port: str
    is_output: bool = True
    index: int | None = None
    """The position of the connection, at an input for any number of connections."""

    @property
    def name(self) -> str:
        """The operator and the port, as in ``"camera.out"``, with ``:index`` if there is one."""
        return f"{self.operator}.{self.port}" + ("" if self.index is None else f":{self.index}")


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message that was recorded.

    Attributes
    ----------
    port
        The port that it passed.
    sequence
        Its number among the messages of the port.
    step
        The number of the compute that emitted or received it, among all computes of the operator.
    time
        When that was, in nanoseconds: since the first message in a recording, of the run's time line in a carrier.
    acq_timestamp, metadata
        Its acquisition timestamp and its metadata, or None.
    data
        Its data. A tensor is a :class:`TensorCopy`, which ``np.asarray`` takes.
    """

    port: RecordedPort
    sequence: int
    step: int
    time: int
    acq_timestamp: int | None
    metadata: dict[str, Any] | None
    data: Any


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run whose messages are recorded.

    Attributes
    ----------
    application
        The name of the application.
    ports
        The ports that are recorded.
    flows
        The flows that begin at these outputs: source, output, target, input, and the position of the connection at
        an input for any number of connections.
    started, epoch
        When the run began on its time line, and what to add to a time of the line for the time since the epoch.
    """

    application: str
    ports: list[RecordedPort]
    flows: list[tuple[str, str, str, str, int | None]]
    started: int = 0
    epoch: int = 0


class Carrier:
    """Takes the messages of a run to where they are kept; override `carry`.

    The methods are called one at a time. `begin` and `end` run on the thread of the run, `carry` on a thread of the
    recorder. An exception of `carry` ends the run with that exception.
    """

    def begin(self, run: RecordedRun) -> None:
        """Prepare for a run."""

    def carry(self, message: RecordedMessage) -> None:
        """Take a message; its copies are complete, and it is the carrier's own."""
        raise NotImplementedError(f"{type(self).__name__} must override carry")

    def end(self, is_complete: bool) -> None:
        """End with the run; `is_complete` tells whether every message was carried."""


@runtime_checkable
class MessageSource(Protocol):
    """Messages that :func:`replay` can play."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    @property
    def ports(self) -> Sequence[RecordedPort]:
        """The ports whose messages it has."""

    def outline(self) -> list[tuple[RecordedPort, int]]:
        """Return the port and the time of each message, in the order in which they were emitted."""

    def load(self, number: int) -> RecordedMessage:
        """Return a message by its number in the outline; may be called from any thread."""

    def close(self) -> None:
        """Release what a run needed; called at the end of each run."""


class MessageList:
    """Messages in memory, as a source."""

    def __init__(self, messages: Sequence[RecordedMessage]) -> None:
        self.name = f"list of {len(messages)} messages"
        self.ports = list(dict.fromkeys(message.port for message in messages))
        self._messages = messages

    def outline(self) -> list[tuple[RecordedPort, int]]:
        """Return the port and the time of each message, from the first message on."""
        first = min((message.time for message in self._messages), default=0)
        return [(message.port, message.time - first) for message in self._messages]

    def load(self, number: int) -> RecordedMessage:
        """Return a message, with a copy of its data."""
        message = self._messages[number]
        return replace(message, data=decode(encode(message.data, allow_pickle=True), allow_pickle=True))

    def close(self) -> None:
        """Do nothing: the messages stay."""


Port: TypeAlias = OutputInfo | QueueInfo


class PortWatcher(Watcher):
    """A watcher of the messages of some ports, which `begin` chooses."""

    wants_data = True
    wants_gpu_times = False
    period = 1.0

    def __init__(self) -> None:
        self._shown: dict[Port, Any] = {}
        """The ports, with what `_show` needs to know of them."""

    def watches(self, port: Port) -> bool:
        """Return whether the messages of a port are shown."""
        return port in self._shown

    def emitted(self, output: OutputInfo, item: Any, time: int) -> None:
        """Show a message of an output."""
        if output in self._shown:
            self._show(output, item, time)

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Show a message of an input."""
        if queue in self._shown:
            self._show(queue, item, time)

    def _show(self, port: Port, item: Any, time: int) -> None:
        raise NotImplementedError


def matches(pattern: str, operator: str, port: str) -> bool:
    """Return whether a pattern names a port: ``operator.port``, or ``operator`` for all its ports.

    ``*`` stands for any text, ``?`` for any character and ``[...]`` for one of several, or for itself: parts of
    replicated operators have names such as ``work[results]``.
    """
    literal = pattern.replace("[", "[[]")
    return any(
        fnmatchcase(name, one) for name in (f"{operator}.{port}", operator) for one in (literal, pattern)
    )


def parse_patterns(text: str) -> list[str]:
    """Return the patterns of a text, which commas separate."""
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]


def ports_of(run: RunInfo) -> Iterator[Port]:
    """Yield the ports of a run: the outputs and then the queues of the inputs of each operator of the program."""
    for operator in run.operators:
        if operator.node.beyond is None:
            yield from operator.outputs
            yield from operator.inputs


def describe(port: Port) -> RecordedPort:
    """Return the description of a port, with its position at an input for any number of connections."""
    operator, name = port.operator, port.port
    if isinstance(port, OutputInfo):
        return RecordedPort(operator.name, name)
    index = None
    if operator.node.operator.spec.every_input[name].is_receivers:
        index = [other for other in operator.inputs if other.port == name].index(port)
    return RecordedPort(operator.name, name, False, index)
