"""Hosting: the agents that start the processes of parts, which connect to the driver (`Reception`) by themselves.

An agent is a thread of the driver, a worker on this host or another, or an actor of Ray (`headrace.cluster`).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import GraphError
from headrace.core.values import RESTART
from headrace.link.channel import Channel, finish_all
from headrace.link.handshake import Purpose, make_token
from headrace.link.loop import WakeUp
from headrace.parts.access import AGENT, PART, Access, token_for
from headrace.parts.agent import ALL, ANY, named, parse_address, serve, worker_host
from headrace.parts.environment import assign, gpus_for
from headrace.parts.lines import print_lines
from headrace.parts.messages import Address, EndPart, Gone, Refused, StartPart

if TYPE_CHECKING:
    from headrace.link.carrier import Carrier
    from headrace.link.listener import Taker

_log = logging.getLogger("headrace.parts")


class Process:
    """The process of a part; until it has connected, there is none.

    Parameters
    ----------
    part
        The part that it runs.
    number
        Which start it is: a process says so when it connects, and so do those who report how it ended.
    environment
        The variables of headrace that it is given.
    """

    def __init__(self, part: str, number: int, environment: Mapping[str, str]) -> None:
        self.part = part
        self.number = number
        self.environment = dict(environment)
        self.channel: Channel | None = None
        self.address: Address = ""
        """Where the process listens for links."""
        self.pid: int | None = None
        """Its number on its host, once it has composed the program."""
        self.where = ""
        """Where it is connected from."""
        self.how = "nobody ran it"
        """How it ended, in words."""
        self.status = 0
        """Its exit status, if whoever started it has said so."""
        self.was_attached = False
        """Whether it has connected, perhaps to be gone since."""
        self.is_gone = False
        """Whether whoever started it has said that it ended."""

    def attach(self, channel: Channel) -> None:
        """Use the connection of the process."""
        self.where = channel.where
        self.how = f"the connection to its process at {self.where} was closed"
        self.channel = channel
        self.was_attached = True

    def note_end(self, gone: Gone) -> None:
        """Note how it ended, as whoever started it says."""
        self.how, self.status, self.is_gone = gone.how, gone.status, True

    @property
    def beat(self) -> float:
        """When the process was last heard of: it sends beats, and other messages in their way."""
        return 0.0 if self.channel is None else self.channel.heard_at

    def composed(self, address: Address, pid: int) -> None:
        """Note that it has composed the program, where it listens for links, and its number."""
        self.address, self.pid = address, pid

    def detach(self) -> None:
        """Let go of the connection."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def interrupt_of_exit(self) -> BaseException | None:
        """Return what an interrupted program raises, if the process was interrupted before it had composed.

        Later it says so before it ends.
        """
        if self.status == -signal.SIGINT:
            return KeyboardInterrupt()
        return SystemExit(128 + signal.SIGTERM) if self.status == -signal.SIGTERM else None


class Reception:
    """What arrives at the driver, from any thread: connections, and what becomes of processes.

    Parameters
    ----------
    address
        Where to listen; an empty one is a new Unix socket.
    access
        Who may connect.
    """

    def __init__(self, address: Address, access: Access) -> None:
        self._lock = threading.Lock()
        self._is_closed = False
        self._arrived: deque[tuple[Purpose, Channel] | Gone] = deque()
        self._wake = WakeUp()
        self._listener = access.listen(address, self._find_taker)

    def fileno(self) -> int:
        """Return a descriptor that is readable after something has arrived."""
        return self._wake.fileno()

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address

    def post(self, what: tuple[Purpose, Channel] | Gone) -> bool:
        """Hand the driver something, from any thread; return False if it does not listen any more."""
        with self._lock:
            if not self._is_closed:
                self._arrived.append(what)
                self._wake.set()
            return not self._is_closed

    def take(self) -> list[tuple[Purpose, Channel] | Gone]:
        """Return what has arrived: what a connection is for with its channel, or what was posted."""
        self._wake.clear()
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()
        with self._lock:
            self._is_closed = True
            self._wake.close()
        late = [what for what in self._arrived if not isinstance(what, Gone)]
        self._arrived.clear()
        agents = [channel for purpose, channel in late if purpose.kind == AGENT]
        finish_all(agents, Refused("the driver refused this worker: its run is over"))
        for _, channel in late:
            channel.close()

    def _find_taker(self, purpose: Purpose) -> Taker | None:
        return partial(self._take, purpose) if purpose.kind in (PART, AGENT) else None

    def _take(self, purpose: Purpose, carrier: Carrier) -> None:
        channel = Channel(carrier)
        if not self.post((purpose, channel)):
            channel.close()


class Hosting:
    """The agents that have connected, and the parts that wait for one.

    Parameters
    ----------
    parts
        The fragments of the program.
    address
        Where the driver listens, for the log.
    gpus, cpus
        Those of this host that each part gets, if the driver assigns them.

    Attributes
    ----------
    is_here
        Whether all processes are on the host of the driver, whose own agent starts them.
    patience
        The seconds after which the log says which parts nobody runs.
    unanswered
        The agents that have not answered, with the time of the first question.
    """

    is_here = False
    patience = 5.0

    def __init__(
        self,
        parts: Sequence[Any],
        address: Address = "",
        gpus: Mapping[str, Any] = MappingProxyType({}),
        cpus: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._address = address
        self.gpus, self._cpus = gpus, cpus
        self._agents: dict[Channel, str] = {}
        # The agent that runs each part, and the starts that wait for one.
        self._runs: dict[str, Channel] = {}
        self._waiting: dict[str, Process] = {}
        self.unanswered: dict[Channel, float] = {}
        self._own: threading.Thread | None = None  # the agent of this host, if there is one

    def serve_here(
        self, access: Access, fragments: str, on_error: Callable[[BaseException], object], **options: Any
    ) -> None:
        """Be an agent of this host, on a thread of its own; the options are those of `serve`."""

        def serve_and_tell() -> None:
            try:
                serve(self._address, access, fragments, is_patient=False, is_driver=True, **options)
            except Exception as error:
                on_error(error)

        is_read = True

        def write(number: int, data: bytes) -> None:
            nonlocal is_read
            try:
                if is_read:
                    print_lines(number, data)
            except (OSError, ValueError) as error:
                is_read = False
                on_error(error)

        options["write"] = write
        self._own = threading.Thread(target=serve_and_tell, name="headrace agent", daemon=True)
        self._own.start()

    def look(self, absent: Sequence[str]) -> Sequence[str]:
        """Return those of the parts without a process whose time passes now."""
        return ()

    def start(self, part: str, number: int, environment: Mapping[str, str]) -> Process:
        """Ask an agent for the process of a part, now or when one connects that runs it."""
        process = Process(part, number, environment)
        self.start_elsewhere(process)
        return process

    def start_elsewhere(self, process: Process) -> None:
        """Ask an agent for a process, now or when one connects that runs its part."""
        self._waiting[process.part] = process
        self._place()

    def end(self, part: str) -> None:
        """End the process of a part at once; without an agent, it ends with its connection."""
        if part in self._runs:
            self._runs[part].post(EndPart(part))

    def _place(self) -> None:
        """Assign the waiting parts to agents.

        A part goes to the agent that ran it before, or that names it. The others wait until there are agents for
        all of them: an agent that names one of these parts may still come.
        """
        for part in list(self._waiting):
            naming = (channel for channel, names in self._agents.items() if part in names.split(","))
            channel = self._runs.get(part) or next(naming, None)
            if channel is not None:
                self._ask(channel, part)
        one_each, rest = self._free(), self._of_kind(ALL)
        if rest or len(one_each) >= len(self._waiting):
            for part in list(self._waiting):
                self._ask(one_each.pop(0) if one_each else rest[0], part)

    def _of_kind(self, kind: str) -> list[Channel]:
        return [channel for channel, fragments in self._agents.items() if fragments == kind]

    def _free(self) -> list[Channel]:
        """Return the agents that run one part, and none yet."""
        return [channel for channel in self._of_kind(ANY) if channel not in self._runs.values()]

    def _ask(self, channel: Channel, part: str) -> None:
        self._runs[part] = channel
        self.unanswered.setdefault(channel, monotonic())
        # If the agent is gone, its connection says so next, and the part is started by another one.
        channel.post(self._start_of(self._waiting.pop(part)))

    def _start_of(self, process: Process) -> StartPart:
        part, fragment = process.part, self._parts[process.part]
        gpus, cpus = self.gpus.get(part, fragment.gpus), self._cpus.get(part, fragment.cpus)
        may_return = fragment.on_loss == RESTART
        return StartPart(part, process.number, gpus, cpus, may_return, process.environment)

    def add_agent(self, fragments: str, channel: Channel, has_begun: Callable[[str], bool]) -> list[str]:
        """Use an agent from now on, unless it names a fragment that does not exist, or that another one runs.

        A worker that was not named for a fragment gives it up to one that is, until the run has begun.
        """
        names = [] if fragments in (ALL, ANY) else fragments.split(",")
        taken = [name for name in names if name in self._runs]
        for name in names:
            problem = ""
            if name not in self._parts:
                problem = f"the program has no such fragment; it has {_listed(self._parts)}"
            elif name in taken and (has_begun(name) or self._agents[self._runs[name]] not in (ALL, ANY)):
                problem = f"the worker at {self._runs[name].where} runs it"
            if problem:
                problem = f"--fragments {name}: {problem}"
                _log.warning("a worker at %s is refused: %s", channel.where, problem)
                raise GraphError(f"the driver refused this worker: {problem}")
        self._agents[channel] = fragments
        for name in taken:
            self._runs.pop(name).post(EndPart(name))
        self._place()
        return taken

    def note_answer(self, channel: Channel) -> None:
        """Note that an agent does what it was asked for."""
        self.unanswered.pop(channel, None)

    def forgive(self, now: float) -> None:
        """Let all agents have their time once more."""
        self.unanswered.update(dict.fromkeys(self.unanswered, now))

    def remove_agent(self, channel: Channel, how: str) -> list[str]:
        """Forget an agent that is gone, or frozen; return the parts that it ran."""
        self._agents.pop(channel, None)
        self.note_answer(channel)
        lost = [part for part, runner in self._runs.items() if runner is channel]
        for part in lost:
            del self._runs[part]
        level = logging.WARNING if lost else logging.INFO
        _log.log(
            level, "the worker at %s %s, which ran %s", channel.where, how, _listed(lost) or "no fragment"
        )
        return lost

    def waits_for(self, parts: Sequence[str]) -> str:
        """Return which parts no worker runs."""
        waiting = [part for part in parts if part in self._waiting]
        if not waiting or self.is_here:
            return ""
        free = len(self._free())
        there = f" ({free} without --fragments came, for one each)" if free else ""
        port = self._address[1]
        return (
            f"the driver at {named(self._address)} waits for workers that run {_listed(waiting)}{there}: "
            f"headrace run PROGRAM --worker --fragments {','.join(waiting)} --address HOST:{port}"
        )

    def close(self) -> None:
        """Wait until the agent of this host has ended; the driver has closed its connection."""
        if self._own is not None:
            waits.join(self._own)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))


def open_here(parts: Sequence[Any], control: Any, _: Any) -> tuple[Reception, Hosting]:
    """Return where processes connect, and who starts them, if all of them are on this host.

    ``HEADRACE_LINK=tcp`` tries what links between hosts use.
    """
    is_tcp = os.environ.get("HEADRACE_LINK") == "tcp"
    access = Access(make_token() if is_tcp else b"")
    gpus = assign("gpus", {part.name: part.gpus for part in parts}, gpus_for(part.gpus for part in parts))
    cpus = assign("cpus", {part.name: part.cpus for part in parts}, sorted(os.sched_getaffinity(0)))
    reception = Reception(("127.0.0.1", 0) if is_tcp else "", access)
    hosting = Hosting(parts, reception.address, gpus, cpus)
    hosting.is_here = True
    hosting.serve_here(access, ALL, control.fail)
    return reception, hosting


def open_to_workers(
    options: Mapping[str, str], parts: Sequence[Any], control: Any, _: Any
) -> tuple[Reception, Hosting]:
    """Return what ``headrace run --driver`` asks for, as `open_here`; the options are variables."""
    address = parse_address(options.get("HEADRACE_ADDRESS", ""))
    is_worker = bool(options.get("HEADRACE_WORKER"))
    if is_worker and address[0] in ("0.0.0.0", "::"):
        raise GraphError(
            f"--address {address[0]} with --driver and --worker: the fragments of other hosts connect to those of "
            "this one, so they need an address of it, such as 192.168.1.7"
        )
    access = Access(token_for(address[0]), bool(options.get("HEADRACE_TLS")))
    reception = Reception(address, access)
    hosting = Hosting(parts, reception.address)
    if is_worker:
        fragments = options.get("HEADRACE_FRAGMENTS") or ANY
        hosting.serve_here(access, fragments, control.fail, host=worker_host(options))
    return reception, hosting
