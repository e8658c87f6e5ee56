"""The control channel between the driver and the process of a part: what both say, and how it travels.

The process connects to the driver (`access`). What travels is pickled: both ends run the same program, and have
proved that they are of the same user, or know the token of the run.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import waits
from headrace.link.carrier import Carrier, CarrierClosed
from headrace.link.protocol import Kind, pack_message

if TYPE_CHECKING:
    from headrace.core.control import TimeBase
    from headrace.core.errors import Failure
    from headrace.core.outcome import Outcome
    from headrace.parts.cut_flow import FlowCounts
    from headrace.parts.forwarding import Interests, PartGraph
    from headrace.parts.idleness import IdleReport
    from headrace.parts.launch import Launch
    from headrace.parts.part_progress import PartProgress

Address: TypeAlias = tuple[str, int] | str
"""Where somebody listens: a host and a port, or the name of a Unix socket of this host."""
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
    run_id: str
    began: TimeBase
    """When the clock of the run began, by the clock of the driver."""
    interests: Interests | None = None
    """What the watchers of the driver want to know of the run; None if there are none."""


@dataclass(frozen=True, slots=True)
class StartPart:
    """Start the process of a part; to an agent."""

    part: str
    number: int
    """Which start it is, for the answer."""
    gpus: int | tuple[int, ...] | None = None
    cpus: int | tuple[int, ...] | None = None
    may_return: bool = False
    """Whether it is started again if it is lost: a host that is cut off for a while is wanted back."""
    environment: dict[str, str] = field(default_factory=dict)
    """The variables of headrace that the driver has."""


@dataclass(frozen=True, slots=True)
class EndPart:
    """End the process of a part at once; to an agent."""

    part: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The driver does not use an agent, for this reason."""

    text: str


@dataclass(frozen=True, slots=True)
class RunOver:
    """The run is over; to an agent, for which its connection would else end because the driver is lost."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect the links of these flows: each has an epoch, and the process of its receiver listens there."""

    flows: tuple[str, ...]
    epochs: tuple[int, ...]
    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """A part is lost: its process has ended or is frozen, or its host is cut off. Its links may not end by
    themselves.

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
class Leave:
    """The runs of all parts are over: end the process. Before, another part may read what this one has sent."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run, as `stop_execution` does."""


@dataclass(frozen=True, slots=True)
class Drain:
    """End the sources of the part, and compute what is under way."""


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
    """

    stage: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Leave the program, as by Ctrl-C, because the run ends before it began here."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause, and say so with this number when nothing computes any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Resume:
    """End a pause."""


@dataclass(frozen=True, slots=True)
class Call:
    """Say what the part has done (``"progress"``), or set a value of an operator (``"set_value"``), and answer."""

    number: int
    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class AskTime:
    """Say at once what time it is; to a process on another host, or to the driver."""

    asked: int


# What a process says.


@dataclass(frozen=True, slots=True)
class Composed:
    """The process has composed the program."""

    description: dict[str, str]
    address: Address
    """Where it listens for links."""
    process: int
    """Its number on its host."""


@dataclass(frozen=True, slots=True)
class Started:
    """Every operator of the part has started."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The process is alive, with what is wrong with its operators, in words."""

    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The part at the other end of a flow is lost to this one, as their link says, and may well be alive."""

    flow: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Printed:
    """What processes have written to standard output (1) or standard error (2), in whole lines; from an agent."""

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
    """The part is paused as it was told by this number, and nothing computes."""

    number: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call has returned."""

    number: int
    result: Any = None


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

    Parameters
    ----------
    carrier
        A connection whose ends have proved who they are, which it owns from now on.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._lock = threading.Lock()  # held for a moment
        self._is_closed = False
        self._later: list[Any] = []  # what arrived together with one message
        # Tells the thread that waits in `receive` that something is left to send.
        self._wake: int | None = None
        self.heard_at = 0.0
        """When something last arrived, even a piece of a message."""
        self.host, self.where = _ends(carrier.fileno())
        """The address of this host in the network of the other end, empty on one host; and that end, in words."""

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._carrier.fileno()

    # What is sent.

    def post(self, message: Any) -> None:
        """Send a message without waiting.

        What the system does not take now is kept, and sent by `flush`, or by the thread that waits in `receive`.
        """
        with self._lock:
            self._post(message)

    @waits.shielded
    def offer(self, message: Any) -> None:
        """Send a message, unless others wait to be sent, or another thread sends one now."""
        if self._lock.acquire(blocking=False):
            try:
                if not self._carrier.wants_write:
                    self._post(message)
            finally:
                self._lock.release()

    def send(self, message: Any) -> None:
        """Send a message, and wait until the system has taken it, or nobody is at the other end."""
        self.post(message)
        while self.wants_write:
            self._ready(select.POLLOUT)
            self.flush()

    @property
    def wants_write(self) -> bool:
        """Whether something is left to be sent by `flush`."""
        return not self._is_closed and self._carrier.wants_write

    def flush(self) -> None:
        """Send as much as the system takes of what was kept."""
        with self._lock:
            if not self._is_closed:
                self._carrier.flush()

    def _post(self, message: Any) -> None:
        if self._is_closed:
            return
        # Most beats are the same: pickling one costs a process more than all else while nothing happens.
        is_quiet = type(message) is Beat and not message.problems
        content = _QUIET_BEAT if is_quiet else pickle.dumps(message)
        self._carrier.send(pack_message(Kind.CONTROL, b"", len(content)), (content,))
        if self._wake is not None and self._carrier.wants_write:
            os.eventfd_write(self._wake, 1)

    # What arrives.

    def has_data(self) -> bool:
        """Return whether something has arrived."""
        return bool(self._ready(select.POLLIN, 0.0))

    def receive_one(self, kind: type | None = None) -> Any:
        """Wait for a message and return it; None when the other end was closed.

        Others that come before the first one of a kind are received after it.
        """
        others: list[Any] = []
        while (messages := self.receive()) is not None:
            for at, message in enumerate(messages):
                if kind is None or isinstance(message, kind):
                    self._later = [*others, *messages[:at], *messages[at + 1 :]]
                    return message
            others += messages
        return None

    def receive(self) -> list[Any] | None:
        """Wait for data; return the messages that are complete, or None when the other end was closed.

        What was kept by `post` is sent meanwhile.
        """
        if self._later:
            messages, self._later = self._later, []
            return messages
        with self._lock:
            if self._wake is None:
                self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        while True:
            ready = self._ready(select.POLLIN | (select.POLLOUT if self.wants_write else 0), wake=self._wake)
            if self._wake in ready:
                os.eventfd_read(self._wake)
            self.flush()
            if ready.get(self.fileno(), 0) & ~select.POLLOUT:
                return self.take()

    def take(self) -> list[Any] | None:
        """Return the messages that have arrived, without waiting, or None when the other end was closed."""
        try:
            with self._lock:
                arrived = self._carrier.receive()
        except CarrierClosed:
            return None
        self.heard_at = monotonic()
        return [pickle.loads(each.bulk) for each in arrived if each.bulk is not None]

    def _ready(self, events: int, seconds: float | None = None, wake: int | None = None) -> dict[int, int]:
        """Wait for events, or to be woken; return those that have happened, by descriptor."""
        poll = select.poll()  # which, unlike select, takes descriptors above 1023
        poll.register(self.fileno(), events)
        if wake is not None:
            poll.register(wake, select.POLLIN)
        limit = waits.limit(seconds)
        return dict(poll.poll(None if limit is None else 1000 * limit))

    def finish(self, message: Any) -> None:
        """Send a last message, and close this end when the other one has read it."""
        self.send(message)
        self.close(is_awaited=True)

    def close(self, is_awaited: bool = False) -> None:
        """Close this end, at once or when the other one has read what was said."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                (self._carrier.close if is_awaited else self._carrier.reset)()
                if self._wake is not None:
                    os.close(self._wake)
                    self._wake = None


def _ends(descriptor: int) -> tuple[str, str]:
    """Return the address of this end of a connection, empty on one host, and the other end in words."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family == socket.AF_UNIX:
            return "", "this host"
        try:
            return connection.getsockname()[0], "{}:{}".format(*connection.getpeername()[:2])
        except OSError:
            return "", "a host that is gone"
