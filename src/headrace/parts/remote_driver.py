"""RemoteDriver: a driver whose parts run in processes that connect to it (`remote`), on this host and others."""

from __future__ import annotations

import logging
import os
import selectors
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from time import monotonic, perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import waits
from headrace.core.errors import GraphError
from headrace.core.log_fields import fields_of
from headrace.core.places import RESTART, STOP
from headrace.core.time_base import clock_name
from headrace.observe.events.clock_offsets import Answer, ClockOffset, OffsetMeasurement
from headrace.parts.agent import ALL, ANY, parse_address, serve, worker_host
from headrace.parts.control import (
    WORKER_ADDRESS,
    Address,
    AskTime,
    Assignment,
    Beat,
    Channel,
    Composed,
    Connect,
    Gone,
    LeaveSoon,
    LinkLost,
    Lost,
    Printed,
    Refused,
    RunOver,
    Starting,
    StartPart,
    TellTime,
)
from headrace.parts.driver import Driver
from headrace.parts.environment import SPANNING, environment_of
from headrace.parts.remote import AGENT, GONE, STARTING, Reception, RemoteProcess
from headrace.parts.supervision import SILENCE, State
from headrace.parts.token import token_for

if TYPE_CHECKING:
    import socket

    from headrace.parts.cut_flow import CutFlow
    from headrace.parts.supervision import Action, Part

_log = logging.getLogger("headrace.parts")
_LOOK = 1.0  # seconds
_SOON = 0.3  # seconds from the end of an agent to that of its processes, or of a process to that of its links
_INHERITED = ("HEADRACE_", "HOLOSCAN_")
_OF_THE_HOST = frozenset(
    (
        "HEADRACE_ADDRESS",
        "HEADRACE_CLUSTER",
        "HEADRACE_DRIVER",
        "HEADRACE_FRAGMENTS",
        "HEADRACE_TLS",
        "HEADRACE_TOKEN",
        "HEADRACE_WORKER",
        WORKER_ADDRESS,
    )
)


class Hosting(ABC):
    """Who starts the processes of parts; without agents, unless it says otherwise."""

    unanswered: Mapping[Channel, float] = MappingProxyType({})
    """The agents that have not answered, with the time of the first question."""

    @abstractmethod
    def start(self, part: str, number: int) -> None:
        """Ask for the process of a part; it connects to the driver."""

    @abstractmethod
    def add_agent(self, fragments: str, channel: Channel, where: str) -> bool:
        """Use an agent that has connected, and that runs these fragments; return False if it was refused."""

    def remove_agent(self, channel: Channel, how: str) -> list[str]:
        """Forget an agent that is gone, or frozen; return the parts that it ran."""
        return []

    def note_answer(self, channel: Channel) -> None:  # noqa: B027
        """Note that an agent does what it was asked for."""

    def forgive(self, now: float) -> None:  # noqa: B027
        """Let all agents have their time once more, because the driver itself was stopped for a while."""

    @abstractmethod
    def waits_for(self, parts: Sequence[str]) -> str:
        """Return what parts that have no process yet wait for, for the log; empty if it is on its way."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""


class _LostLink(NamedTuple):
    """A link that a process has lost with a part that is started again, unless it ends by itself until then."""

    process: RemoteProcess
    lost: LinkLost
    peer: RemoteProcess
    until: float


class RemoteDriver(Driver):
    """The processes of one run, which connect to it.

    Parameters
    ----------
    reception
        Where they connect.
    hosting
        Who starts them.
    """

    PATIENCE = 5.0
    """The seconds after which the log says which parts nobody runs."""

    def __init__(self, *arguments: Any, reception: Reception, hosting: Hosting) -> None:
        self._reception = reception
        self._hosting = hosting
        self._agents: list[Channel] = []
        self._numbers = count(1)
        self._tell_at = monotonic() + self.PATIENCE
        self._look_at = 0.0
        # Processes that connected before the driver had noticed that the former ones are gone.
        self._early: dict[str, socket.socket] = {}
        self._ending: dict[
            Any, float
        ] = {}  # processes of which something has ended, and until when the rest has
        self._measured: dict[Any, OffsetMeasurement] = {}
        self._clock = clock_name()
        self._unreached: list[_LostLink] = []
        self._is_cut = False  # whether parts cannot reach each other that are alive, and the run ends by that
        super().__init__(*arguments)
        self._selector.register(reception.descriptor, selectors.EVENT_READ, self._on_arrival)

    def run(self) -> None:
        """Start the processes, and return when all have ended."""
        if sys.stdout is not None:
            sys.stdout.flush()  # before what the processes write
        with ExitStack() as stack:
            stack.callback(self._hosting.close)
            stack.callback(self._reception.close)
            stack.callback(_close_all, self._early)
            stack.callback(self._dismiss_agents)
            super().run()

    def _assign(self, parts: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return none: the hosts of the parts assign what they have."""
        self._wants_gpus = {part.name: part.gpus for part in parts}
        return dict.fromkeys(self._wants_gpus), dict.fromkeys(self._wants_gpus)

    def _step(self) -> None:
        if self._tell_at <= monotonic():
            absent = [part for part, process in self._processes.items() if process.channel is None]
            text = self._hosting.waits_for(absent) if absent else ""
            if text:
                _log.warning("%s", text, extra=fields_of(self._application))
            self._tell_at = float("inf")
        super()._step()
        # After what has arrived was read: an answer may have waited for this process.
        self._give_up_agents(self._looked_at)
        now = monotonic()
        if now >= self._look_at:
            self._look_at = now + self._look()

    def _look(self) -> float:
        """Do without the hosts that are cut off; return the seconds until the next look."""
        processes = [each for each in self._processes.values() if each.channel is not None]
        looks = {
            channel: channel.look() for channel in (*(each.channel for each in processes), *self._agents)
        }
        for process in processes:  # of which some may be gone because of another
            if looks[process.channel] is None and self._processes.get(process.part) == process:
                self._cut_off(process)
        for channel in list(self._agents):
            if looks[channel] is None:
                self._lose_agent(channel, "is cut off")
        now = monotonic()
        for process in [each for each, until in self._ending.items() if now >= until]:
            del self._ending[process]
            if self._processes.get(process.part) == process:
                self._cut_off(process)
            elif self.supervisor.is_stopping:  # and no other process has taken its place
                self._tell_lost(process)
        for each in [each for each in self._unreached if now >= each.until]:
            self._unreached.remove(each)
            self._replace(each)
        left = [until - now for until in self._ending.values()]
        left += [each.until - now for each in self._unreached]
        return min((*left, *(seconds for seconds in looks.values() if seconds is not None)), default=_LOOK)

    def _give_up_agents(self, now: float) -> None:
        """Do without agents that do not answer, because they are frozen."""
        for channel in [each for each, asked in self._hosting.unanswered.items() if now >= asked + SILENCE]:
            self._lose_agent(channel, f"has said nothing for {SILENCE:g} s, and is frozen")

    def _forgive(self, now: float) -> None:
        super()._forgive(now)
        self._hosting.forgive(now)

    def _next_time(self) -> float:
        times = [asked + SILENCE for asked in self._hosting.unanswered.values()]
        known = super()._next_time()
        return min([self._look_at, *times] if known is None else [self._look_at, known, *times])

    def _spawn(self, part: str) -> None:
        process = self._processes[part] = RemoteProcess(part, next(self._numbers))
        self._hosting.start(part, process.number)
        if part in self._early:
            self._attach(process, self._early.pop(part))

    def _on_arrival(self) -> None:
        for kind, name, what in self._reception.take():
            if kind == GONE:
                self._on_gone(name, what)
            elif kind == STARTING:
                self._on_starting(what)
            elif kind == AGENT:
                self._add_agent(name, what)
            else:
                self._add_process(name, what)

    def _add_process(self, part: str, connection: socket.socket) -> None:
        process = self._processes.get(part)
        if process is not None and process.channel is None:
            self._attach(process, connection)
        elif process is not None and part not in self._early:
            self._early[part] = connection
        else:
            connection.close()

    def _attach(self, process: RemoteProcess, connection: socket.socket) -> None:
        try:
            channel = process.attach(connection)
        except OSError:  # it is gone again, and whoever started it says so
            connection.close()
            return
        self.supervisor.beat(process.part, monotonic())
        channel.post(self._assignment(process.part))
        self._selector.register(channel, selectors.EVENT_READ, partial(self._on_message, process, channel))

    def _assignment(self, part: str) -> Assignment:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_INHERITED) and name not in _OF_THE_HOST and name not in SPANNING
        }
        restarts = self.supervisor.restarts.get(part, 0)
        found = environment_of(part, inherited, None, self._ports, restarts)
        wanted = self._wants_gpus[part]
        if wanted is not None:  # its host says which ones it sees
            found.pop("HEADRACE_SIM_DEVICES", None)
        if wanted == 0:
            found.pop("HEADRACE_DEVICE", None)
        return replace(super()._assignment(part), environment=found)

    def _handle(self, process: Any, message: Any) -> None:
        if isinstance(message, Printed):
            process.hear(message)
            return
        if self._joined is not None and isinstance(message, (Composed, Beat)):
            process.channel.post(AskTime(perf_counter_ns()))
        super()._handle(process, message)

    # Agents.

    def _add_agent(self, fragments: str, connection: socket.socket) -> None:
        try:
            where = "{}:{}".format(*connection.getpeername()[:2])
        except OSError:  # it is gone again
            connection.close()
            return
        channel = Channel.over(connection)
        if not self._hosting.add_agent(fragments, channel, where):
            channel.close()
            return
        self._agents.append(channel)
        self._selector.register(channel, selectors.EVENT_READ, partial(self._on_agent, channel))

    def _dismiss_agents(self) -> None:
        for channel in self._agents:
            channel.post(RunOver())
            channel.close()

    def _channels(self) -> list[Channel]:
        return [*super()._channels(), *self._agents]

    def _on_agent(self, channel: Channel) -> None:
        messages = self._take(channel)
        if messages is None:
            self._lose_agent(channel, "is gone", has_ended=True)
            return
        for message, _ in messages:
            if isinstance(message, Gone):
                self._on_gone(message.part, message)
            elif isinstance(message, Starting):
                self._hosting.note_answer(channel)
                self._on_starting(message)

    def _lose_agent(self, channel: Channel, how: str, has_ended: bool = False) -> None:
        """Do without an agent; others may start the parts that it was to start.

        If it has ended, so have its processes, and their links. If their host does not hear this one any more, a
        connection that has something left to send does not end. That of the agent has nothing.
        """
        self._selector.unregister(channel)
        self._agents.remove(channel)
        channel.close()
        for part in self._hosting.remove_agent(channel, how):
            process = self._processes.get(part)
            if process is None:
                continue
            if process.channel is not None:
                if channel.is_cut:  # it ends with its agent
                    self._cut_off(process)
                elif has_ended:
                    self._expect_end(process)
            elif process.was_attached:  # nobody says how it ended
                self._on_exit(process, None)
            else:
                self.supervisor.parts[part].heard_at = None
                self._hosting.start(part, process.number)
        self._tell_at = monotonic() + self.PATIENCE

    def _expect_end(self, process: RemoteProcess) -> None:
        self._ending[process] = monotonic() + _SOON
        self._look_at = min(self._look_at, self._ending[process])

    def _cut_off(self, process: RemoteProcess) -> None:
        process.reason = f"its process at {process.where} was cut off"
        self._tell_lost(process)
        self._on_exit(process, None)

    def _tell_lost(self, lost: RemoteProcess) -> None:
        """Let the others wait no longer for a process: their links would notice later that it says nothing."""
        for process in self._processes.values():
            if process is not lost and process.channel is not None:
                process.channel.post(Lost(lost.part))

    def _lose(self, process: RemoteProcess, lost: LinkLost, part: Part, peer: RemoteProcess) -> None:
        """Tell a part that it is lost to another one, and do what its policy says.

        If that part was killed, its own connection says so soon. If not, only the network between the two has
        failed, or it was frozen for a while. Then the one that reports it fails, goes on alone, or needs a new
        process at the other end.
        """
        if any(each.peer is process for each in self._unreached):  # another one said so first
            return
        if peer is not process:  # which knows it
            assert peer.channel is not None
            peer.channel.post(Lost(process.part, lost.flow, lost.epoch))
        if part.on_loss == STOP:
            self._is_cut = True
            self._leave_soon()
        elif part.on_loss == RESTART and not self.supervisor.is_stopping:
            found = _LostLink(process, lost, peer, monotonic() + _SOON)
            self._unreached.append(found)
            self._look_at = min(self._look_at, found.until)

    def _replace(self, found: _LostLink) -> None:
        """Start a part again which another one cannot reach, if it has not ended meanwhile."""
        part = found.peer.part
        if self._processes.get(part) == found.peer and self.supervisor.parts[part].state <= State.RUNNING:
            self._cut_off(found.peer)
        else:
            self._on_link_lost(found.process, found.lost)

    def _leave_soon(self) -> None:
        """Let no process wait at its exit for another one, if the run ends because some cannot be reached."""
        if self._is_cut and self.supervisor.is_stopping:
            self._is_cut = False
            for process in self._processes.values():
                if process.channel is not None:
                    process.channel.post(LeaveSoon())

    def _carry_out(self, actions: list[Action]) -> None:
        super()._carry_out(actions)
        self._leave_soon()

    def _on_starting(self, starting: Starting) -> None:
        """Let the time of a process pass: it was started."""
        process = self._processes.get(starting.part)
        if process is not None and process.number == starting.number:
            self.supervisor.beat(starting.part, monotonic())

    def _on_gone(self, part: str, gone: Gone) -> None:
        """Handle that a process ended which had not composed; the connection of others says so itself."""
        process = self._processes.get(part)
        if process is None or gone.number != process.number or not self._is_starting(process):
            return
        process.note_end(gone)
        if process.channel is None:
            self._on_exit(process, None)

    def _is_starting(self, process: RemoteProcess) -> bool:
        return self.supervisor.parts[process.part].state is State.SPAWNED

    # The end of processes.

    def _compare_clocks(self, process: Any, answer: TellTime) -> None:
        """Note what time it is on the host of a process; ask again until that is well known."""
        assert self._joined is not None
        if answer.clock and answer.clock == self._clock:
            self._joined.set_clock(process.part, ClockOffset())
            return
        measured = self._measured.setdefault(process, OffsetMeasurement())
        answers = Answer(answer.asked, answer.answered, perf_counter_ns())
        self._joined.set_clock(process.part, measured.add(answers))
        if not measured.is_sure:
            process.channel.post(AskTime(perf_counter_ns()))

    def _on_closed(self, process: Any) -> None:
        """Handle the end of a process; if it had not composed, whoever started it says how it ended."""
        is_current = self._processes.get(process.part) == process
        if is_current and self._is_starting(process) and not (process.is_gone or process.channel.is_cut):
            self._reap(process)
            process.channel = None
        elif process.channel.is_cut:
            self._cut_off(process)
        else:
            if is_current and self.supervisor.parts[process.part].state < State.REPORTED:
                self._expect_end(process)
            self._on_exit(process, None)

    def _on_exit(self, process: Any, _: Any) -> None:
        self._reap(process)
        if self._processes.get(process.part) == process:
            del self._processes[process.part]
            self._exited(process, process.interrupt_of_exit())

    def _interrupt(self, process: RemoteProcess) -> None:
        process.interrupt()
        if process.channel is None:  # whoever was to start it ends it with the run
            self._on_exit(process, None)

    def _kill(self, process: RemoteProcess) -> None:
        self._tell_lost(process)
        if self.supervisor.parts[process.part].is_killed:
            self._on_exit(process, None)
        else:  # another one takes its place
            self._reap(process)
            del self._processes[process.part]

    def _join(self, flows: Sequence[CutFlow], parts: Sequence[str]) -> None:
        """Tell the processes where to connect the links."""
        ends: dict[str, list[tuple[str, int, Address]]] = {part: [] for part in parts}
        for flow in flows:
            epoch = self._epoch(flow)
            for part in (flow.source, flow.target):
                ends.setdefault(part, []).append((flow.name, epoch, self._processes[flow.target].address))
        self._bring_up_to_date(parts)
        for part, own in ends.items():
            names, epochs, addresses = zip(*own, strict=True) if own else ((), (), ())
            self._processes[part].channel.post(Connect(names, epochs, addresses))


class Agents(Hosting):
    """The agents that have connected, and the parts that wait for one.

    Parameters
    ----------
    parts
        The fragments of the program.
    address
        Where the driver listens, for the log.
    """

    def __init__(self, parts: Sequence[Any], address: Address) -> None:
        self._parts = {part.name: part for part in parts}
        self._address = address
        self._agents: dict[Channel, tuple[str, str]] = {}
        # The agent that runs each part, and the numbers of the starts that wait for one.
        self._runs: dict[str, Channel] = {}
        self._waiting: dict[str, int] = {}
        self.unanswered: dict[Channel, float] = {}
        self.own: threading.Thread | None = None
        """The agent of this host, if there is one."""

    def start(self, part: str, number: int) -> None:
        """Ask an agent for the process of a part, now or when one connects that runs it."""
        self._waiting[part] = number
        self._place()

    def _place(self) -> None:
        """Assign the waiting parts to agents.

        A part goes to the agent that ran it before, or that names it. The others wait until there are agents for
        all of them: an agent that names one of these parts may still come.
        """
        for part in list(self._waiting):
            named = (channel for channel, (names, _) in self._agents.items() if part in names.split(","))
            channel = self._runs.get(part) or next(named, None)
            if channel is not None:
                self._ask(channel, part)
        one_each, rest = self._free(), self._of_kind(ALL)
        if rest or len(one_each) >= len(self._waiting):
            for part in list(self._waiting):
                self._ask(one_each.pop(0) if one_each else rest[0], part)

    def _of_kind(self, kind: str) -> list[Channel]:
        return [channel for channel, (fragments, _) in self._agents.items() if fragments == kind]

    def _free(self) -> list[Channel]:
        """Return the agents that run one part, and none yet."""
        return [channel for channel in self._of_kind(ANY) if channel not in self._runs.values()]

    def _ask(self, channel: Channel, part: str) -> None:
        self._runs[part] = channel
        self.unanswered.setdefault(channel, monotonic())
        fragment = self._parts[part]
        # If the agent is gone, its connection says so next, and the part is started by another one.
        channel.post(StartPart(part, self._waiting.pop(part), fragment.gpus, fragment.cpus))

    def add_agent(self, fragments: str, channel: Channel, where: str) -> bool:
        """Use an agent from now on, unless it names a fragment that does not exist, or that another one runs."""
        problem = self._problem(fragments)
        if problem:
            _log.warning("a worker at %s is refused: %s", where, problem)
            channel.post(Refused(f"the driver refused this worker: {problem}"))
            return False
        self._agents[channel] = fragments, where
        self._place()
        return True

    def _problem(self, fragments: str) -> str:
        for name in () if fragments in (ALL, ANY) else fragments.split(","):
            if name not in self._parts:
                return f"--fragments {name}: the program has no such fragment; it has {_listed(self._parts)}"
            if name in self._runs:
                return f"--fragments {name}: the worker at {self._agents[self._runs[name]][1]} runs it"
        return ""

    def note_answer(self, channel: Channel) -> None:
        """Note that an agent does what it was asked for."""
        self.unanswered.pop(channel, None)

    def forgive(self, now: float) -> None:
        """Let all agents have their time once more."""
        self.unanswered.update(dict.fromkeys(self.unanswered, now))

    def remove_agent(self, channel: Channel, how: str) -> list[str]:
        """Forget an agent that is gone, or frozen; return the parts that it ran."""
        _, where = self._agents.pop(channel)
        self.note_answer(channel)
        lost = [part for part, runner in self._runs.items() if runner is channel]
        for part in lost:
            del self._runs[part]
        _log.warning("the worker at %s %s, which ran %s", where, how, _listed(lost) or "no fragment")
        return lost

    def waits_for(self, parts: Sequence[str]) -> str:
        """Return which parts no worker runs."""
        waiting = [part for part in parts if part in self._waiting]
        if not waiting:
            return ""
        host, port = self._address
        free = len(self._free())
        there = f" ({free} without --fragments came, for one each)" if free else ""
        return (
            f"the driver at {host}:{port} waits for workers that run {_listed(waiting)}{there}: "
            f"headrace run PROGRAM --worker --fragments {','.join(waiting)} --address HOST:{port}"
        )

    def close(self) -> None:
        """Wait until the agent of this host has ended; the driver has closed its connection."""
        if self.own is not None and self.own.is_alive():
            waits.join(self.own)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))


def _close_all(connections: Mapping[str, socket.socket]) -> None:
    for each in connections.values():
        each.close()


def make_remote_driver(
    options: Mapping[str, str], application: Any, control: Any, *arguments: Any
) -> RemoteDriver:
    """Return the driver that ``headrace run --driver`` asks for; the options are variables."""
    address = parse_address(options.get("HEADRACE_ADDRESS", ""))
    is_worker = bool(options.get("HEADRACE_WORKER"))
    if is_worker and address[0] in ("0.0.0.0", "::"):
        raise GraphError(
            f"--address {address[0]} with --driver and --worker: the fragments of other hosts connect to those of "
            "this one, so they need an address of it, such as 192.168.1.7"
        )
    token = token_for(address[0])
    encrypted = bool(options.get("HEADRACE_TLS"))
    reception = Reception(address, token, encrypted=encrypted)
    try:
        graph = getattr(application, "fragment_graph", None)
        hosting = Agents([] if graph is None else list(graph.fragments), reception.address)
        driver = RemoteDriver(application, control, *arguments, reception=reception, hosting=hosting)
    except BaseException:
        reception.close()
        raise

    def serve_here() -> None:
        try:
            fragments = options.get("HEADRACE_FRAGMENTS") or ANY
            host = worker_host(options)
            serve(reception.address, token, fragments, host=host, encrypted=encrypted, is_patient=False)
        except Exception as error:
            control.fail(error)

    if is_worker:
        hosting.own = threading.Thread(target=serve_here, name="headrace agent", daemon=True)
        hosting.own.start()
    return driver
