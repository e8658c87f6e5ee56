"""The control channel between the driver and the process of a part: what both say, and how it travels.

One pair of Unix sockets for each process. Nothing listens and no name exists, so no stranger can connect. What
travels is pickled: both ends run the same program for the same user. File descriptors travel beside the first bytes
of a message.

Between hosts it is a TCP connection, with TLS on request, whose ends have proved that they know the token of the
run. No descriptors travel there.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import EHOSTUNREACH, EMFILE, ENETUNREACH, ETIMEDOUT
from time import monotonic
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.link.reachability import Reachability

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.core.time_base import TimeBase
    from headrace.parts.cut_flow import FlowCounts
    from headrace.parts.failures import Failure
    from headrace.parts.forwarding import PartGraph, Wishes
    from headrace.parts.idleness import IdleReport
    from headrace.parts.launch import Launch
    from headrace.parts.part_progress import PartProgress

_HEADER = struct.Struct("<QI")  # the bytes of the pickle, and the number of descriptors beside it
_MOST_DESCRIPTORS = 250  # Linux passes at most 253 at once
_CHUNK = 1 << 16
_UNANSWERED = 2350  # ms for which a beat, one of two in a second, stays unanswered by a host that is cut off

_log = logging.getLogger("headrace.parts")

Address = tuple[str, int]
TOKEN = "HEADRACE_TOKEN"
"""The variable with the token of a run, which processes on other hosts know as well."""
WORKER_ADDRESS = "HEADRACE_WORKER_ADDRESS"
"""The variable with the address at which the processes of a worker listen for links."""


# What the driver says.


@dataclass(frozen=True, slots=True)
class Assignment:
    """The first message to a process: which part it is, and in which run of the program."""

    part: str
    program: Launch
    earlier: tuple[Outcome | Failure | None, ...]
    """What the earlier runs of the program returned or raised, which the process does not repeat."""
    driver: int
    """The process id of the driver."""
    run_id: str
    began: TimeBase
    """When the clock of the run began, by the clock of the driver."""
    cpus: tuple[int, ...] = ()
    """The cores that it may use; empty for all."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables of headrace that the driver has, for a process that does not inherit them."""
    wishes: Wishes | None = None
    """What the watchers of the driver want to know of the run; None if there are none."""
    is_heard: bool = False
    """Whether the driver prints what the process prints, because nobody sees it where it runs."""


@dataclass(frozen=True, slots=True)
class StartPart:
    """Start the process of a part; to an agent."""

    part: str
    number: int
    """Which start it is, for the answer."""
    gpus: int | tuple[int, ...] | None = None
    cpus: int | tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The driver does not use an agent, for this reason."""

    text: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """The run is over; to an agent, for which its connection would else end because the driver is lost."""


@dataclass(frozen=True, slots=True)
class Connect:
    """The ends of the links of a part, which come beside it in the order of the flows, and the epoch of each.

    Between hosts no ends come. `addresses` has where the process of the receiver listens instead, for each flow.
    """

    flows: tuple[str, ...]
    epochs: tuple[int, ...]
    addresses: tuple[Address, ...] = ()
    is_last: bool = True
    """Whether all ends have come with it; a message takes so many."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A part is lost, and its links do not end by themselves: its process is frozen, or its host is cut off.

    With a flow, only the link of that flow and this epoch is lost, as the part itself has noticed.
    """

    part: str
    flow: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class EndFlow:
    """Let a flow end whose link of this epoch is lost: the part at its other end has ended for good."""

    flow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeaveSoon:
    """Do not wait at the exit for parts that have not read all: the run ends because some cannot be reached."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run, as `stop_execution` does."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Say again whether nothing can run, in the answer to this wave of questions."""

    wave: int


@dataclass(frozen=True, slots=True)
class EndIdle:
    """No part can run any more, and nothing is under way: do what comes next (`PartIdleness.end`).

    Attributes
    ----------
    stage
        What is done next.
    room
        By flow, the flows in which its receiver waits for room, directly or through others.
    not_run
        The flows of loops in which no operator of any part has computed.
    """

    stage: int
    room: dict[str, tuple[str, ...]] = field(default_factory=dict)
    not_run: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cancel:
    """Leave the program, as by Ctrl-C, because the run ends before it began here."""


@dataclass(frozen=True, slots=True)
class Request:
    """Pause, step or resume, or ask for steps (`stepping`)."""

    kind: str
    count: int
    operator: str
    number: int
    """The number of the request, for the answer."""


@dataclass(frozen=True, slots=True)
class AskProgress:
    """Say what the part has done so far."""

    number: int


@dataclass(frozen=True, slots=True)
class SetValue:
    """Set a live parameter or a knob of an operator, and answer."""

    number: int
    part: str
    operator: str
    method: str
    name: str
    value: bytes
    """The pickled value."""


@dataclass(frozen=True, slots=True)
class AskTime:
    """Say at once what time it is; to a process on another host, or to the driver."""

    asked: int


# What a process says.


@dataclass(frozen=True, slots=True)
class Composed:
    """The process has composed the program."""

    description: dict[str, str]
    address: Address | None = None
    """Where it listens for links from other hosts."""


@dataclass(frozen=True, slots=True)
class Started:
    """Every operator of the part has started."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The process is alive, with what is wrong with its operators, in words."""

    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A part is lost to the part at the other end of a flow, as their link says, and may well be alive.

    Both parts say so: the one that is lost may read that the other one has given it up.
    """

    flow: str
    epoch: int
    part: str
    """The part that is lost."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a process has written to its standard output (1) or its standard error (2)."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing can run in the part unless a link brings something."""

    report: IdleReport
    wave: int = 0
    """The question that it answers, if it was asked."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The part has carried out a request: it is paused, and nothing computes."""

    number: int


@dataclass(frozen=True, slots=True)
class Step:
    """The part wants a step that was offered, has taken one that it was granted, or has not (`Pausing.on_step`)."""

    what: str


@dataclass(frozen=True, slots=True)
class TellProgress:
    """The answer to `AskProgress`."""

    number: int
    progress: PartProgress


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The answer to `SetValue`, with the error if the value was refused."""

    number: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TellTime:
    """The answer to `AskTime`: the time, and the name of the clock (`clock_name`)."""

    asked: int
    answered: int
    clock: str


@dataclass(frozen=True, slots=True)
class AtRisk:
    """So many messages of a flow were answered that are lost if this part is, and one of the holders."""

    flow: str
    count: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of the run: its graph, and then what has happened (`forwarding`)."""

    content: PartGraph | bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The run of the part is over."""

    outcome: Outcome | None
    failure: Failure | None = None
    flows: dict[str, FlowCounts] = field(default_factory=dict)
    """What this end of each flow has seen."""
    progress: PartProgress | None = None
    """What the part has done."""


@dataclass(frozen=True, slots=True)
class Starting:
    """A process is being started; from an agent, which is alive."""

    part: str
    number: int


@dataclass(frozen=True, slots=True)
class Gone:
    """A process has ended, or could not be started; from an agent."""

    part: str
    number: int
    how: str
    status: int = 0
    """The status of the process, less than 0 if a signal has ended it."""


_QUIET_BEAT = pickle.dumps(Beat())


class Channel:
    """One end of a control channel. Any thread may send; one thread receives, and sends what was left.

    The other end may be frozen, and read nothing. So nothing waits for it but `send` and `receive`.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._sending = threading.Lock()  # held for a moment
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()  # each with its descriptors
        self._is_broken = False
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._later: list[tuple[Any, list[int]]] = []  # what arrived together with one message
        self._wake: int | None = (
            None  # tells the thread that waits in `receive` that something is left to send
        )
        self.heard_at = 0.0
        """When something last arrived, even a piece of a message."""
        self.is_cut = False
        """Whether it has ended because the other host cannot be reached."""
        self._reachability = Reachability()

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Return the end of the driver, and the socket for the process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours), theirs

    @classmethod
    def over(cls, connection: socket.socket) -> Channel:
        """Return a channel over a connection between hosts, whose ends have proved who they are."""
        import ssl  # costly to import, and not needed on one host

        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED)
        return _TlsChannel(connection) if isinstance(connection, ssl.SSLSocket) else cls(connection)

    @property
    def host(self) -> str:
        """The address of this host in the network of the other end."""
        return str(self._connection.getsockname()[0])

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._connection.fileno()

    def look(self) -> float | None:
        """Look whether the other host answers; return the seconds until the next look, or None if it is cut off."""
        left = self._reachability.look(self._connection)
        self.is_cut |= left is None
        if self._reachability.is_overdue and not self.is_cut:
            # A question of keepalive, or its answer, may be lost. A message is sent again until it is answered.
            self.offer(Beat())
        return left

    # What is sent.

    def post(self, message: Any, descriptors: tuple[int, ...] = ()) -> bool:
        """Send a message without waiting; return False if nobody is at the other end.

        What the system does not take now is kept, and sent by `flush`, or by the thread that waits in `receive`.
        """
        with self._sending:
            return self._post(message, descriptors)

    @waits.shielded
    def offer(self, message: Any) -> bool:
        """Send a short message, unless it would have to wait; return whether it was sent."""
        if not self._sending.acquire(blocking=False):
            return False
        try:  # a socket counts as writable if a good part of its buffer is free
            return not self._unsent and bool(self._ready(select.POLLOUT, 0.0)) and self._post(message)
        finally:
            self._sending.release()

    def send(self, message: Any) -> bool:
        """Send a message, and wait until the system has taken it; return False if nobody is at the other end."""
        self.post(message)
        while self.wants_write:
            self._ready(select.POLLOUT)
            self.flush()
        return not self._is_broken

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send as much as the system takes of what was kept."""
        with self._sending:
            self._flush()

    def _post(self, message: Any, descriptors: tuple[int, ...] = ()) -> bool:
        assert len(descriptors) <= _MOST_DESCRIPTORS
        # Most beats are the same: pickling one costs a process more than all else while nothing happens.
        is_quiet = type(message) is Beat and not message.problems
        content = _QUIET_BEAT if is_quiet else pickle.dumps(message)
        data = memoryview(_HEADER.pack(len(content), len(descriptors)) + content)
        if not self._is_broken:
            self._unsent.append((data, [os.dup(each) for each in descriptors]))
            self._flush()
        if self._unsent and self._wake is not None:
            os.eventfd_write(self._wake, 1)
        return not self._is_broken

    def _flush(self) -> None:
        try:
            while self._unsent:
                data, descriptors = self._unsent[0]
                sent = self._write(data, descriptors)
                _close(descriptors)  # which go with the first bytes
                self._unsent[0] = data[sent:], []
                if sent == len(data):
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._is_broken = True
            self._note(error)
            self._forget()

    def _note(self, error: OSError) -> None:
        self.is_cut |= error.errno in (ETIMEDOUT, EHOSTUNREACH, ENETUNREACH)

    def _write(self, data: memoryview, descriptors: list[int]) -> int:
        if descriptors:
            return socket.send_fds(self._connection, [data], descriptors)
        return self._connection.send(data)

    def _forget(self) -> None:
        while self._unsent:
            _close(self._unsent.popleft()[1])

    # What arrives.

    def has_data(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._ready(select.POLLIN, 0.0))

    def receive_one(self, kind: type | None = None) -> Any:
        """Wait for a message without descriptors and return it; None when the other end was closed.

        Others that come before the first one of a kind are received after it.
        """
        others: list[tuple[Any, list[int]]] = []
        while (messages := self.receive()) is not None:
            for at, (message, _) in enumerate(messages):
                if kind is None or isinstance(message, kind):
                    self._later = [*others, *messages[:at], *messages[at + 1 :]]
                    return message
            others += messages
        return None

    def receive(self) -> list[tuple[Any, list[int]]] | None:
        """Wait for data; return the messages that are complete, or None when the other end was closed.

        What was kept by `post` is sent meanwhile.
        """
        if self._later:
            messages, self._later = self._later, []
            return messages
        with self._sending:
            if self._wake is None:
                self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        while True:
            ready = self._ready(select.POLLIN | (select.POLLOUT if self.wants_write else 0), wake=self._wake)
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self.flush()
            if ready.get(self.fileno(), 0) & ~select.POLLOUT:
                return self.take()

    def take(self) -> list[tuple[Any, list[int]]] | None:
        """Return the messages that have arrived, without waiting, or None when the other end was closed."""
        try:
            data, descriptors = self._read()
        except BlockingIOError:
            return []
        except OSError as error:
            data, descriptors = b"", []
            self._note(error)
        if not data:
            return None
        self.heard_at = monotonic()
        self._received += data
        self._descriptors += descriptors
        return list(self._complete())

    def _ready(self, events: int, seconds: float | None = None, wake: int | None = None) -> dict[int, int]:
        """Wait for events, or to be woken; return those that have happened, by descriptor."""
        poll = select.poll()  # which, unlike select, takes descriptors above 1023
        poll.register(self._connection, events)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        limit = waits.limit(seconds)
        return dict(poll.poll(None if limit is None else 1000 * limit))

    def _read(self) -> tuple[bytes, list[int]]:
        data, descriptors, flags, _ = socket.recv_fds(self._connection, _CHUNK, _MOST_DESCRIPTORS)
        if flags & socket.MSG_CTRUNC:
            _close(descriptors)
            _log.error("this process has no files left for its links; allow more with `ulimit -n`")
            raise OSError(EMFILE, os.strerror(EMFILE))
        return data, descriptors

    def _complete(self) -> Any:
        while len(self._received) >= _HEADER.size:
            size, count = _HEADER.unpack_from(self._received)
            end = _HEADER.size + size
            if len(self._received) < end:
                return
            content = bytes(self._received[_HEADER.size : end])
            del self._received[:end]
            descriptors, self._descriptors = self._descriptors[:count], self._descriptors[count:]
            yield pickle.loads(content), descriptors

    def close(self) -> None:
        """Close this end; what was kept is not sent."""
        with self._sending:
            self._is_broken = True
            self._forget()
            self._connection.close()
            if self._wake is not None:
                os.close(self._wake)
                self._wake = None


def _close(descriptors: list[int]) -> None:
    for each in descriptors:
        os.close(each)


class _TlsChannel(Channel):
    """A channel over TLS, which two threads must not use at once: they read and write in turn.

    Either may have to wait for the other direction, and for the rest of a record. Both are tried again later.
    """

    def _write(self, data: memoryview, descriptors: list[int]) -> int:
        return int(self._in_turn(lambda: self._connection.send(data)))

    def _read(self) -> tuple[bytes, list[int]]:
        with self._sending:
            return self._in_turn(lambda: self._connection.recv(_CHUNK)), []

    def _in_turn(self, operation: Callable[[], Any]) -> Any:
        import ssl

        try:
            return operation()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
