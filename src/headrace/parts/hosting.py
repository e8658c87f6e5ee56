"""Hosting: who starts the processes of parts. They connect to the driver by themselves.

`LocalHosting` is the driver itself, on its host. `Agents` are the workers that have connected, on this host and
others. Ray is a third one (`headrace.cluster`).
"""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any

from headrace import waits
from headrace.core.errors import GraphError
from headrace.core.values import RESTART
from headrace.link.handshake import make_token
from headrace.parts.access import Access, token_for
from headrace.parts.agent import ALL, ANY, named, parse_address, serve, start_process, worker_host
from headrace.parts.control import Address, Channel, EndPart, StartPart
from headrace.parts.environment import assign, gpus_for
from headrace.parts.process import LocalProcess, Process
from headrace.parts.reception import Reception

_log = logging.getLogger("headrace.parts")


class Hosting(ABC):
    """Who starts the processes of parts; without agents, unless it says otherwise.

    Attributes
    ----------
    is_here
        Whether all processes are on the host of the driver, which starts them itself.
    is_heard
        Whether the driver prints what the processes print, because nobody sees it where they run.
    patience
        The seconds after which the log says which parts nobody runs.
    gpus
        The GPUs of this host that each part sees, as its first, second and so on; None for all.
    unanswered
        The agents that have not answered, with the time of the first question.
    """

    is_here = False
    is_heard = False
    patience = 5.0
    gpus: Mapping[str, Any] = MappingProxyType({})
    unanswered: Mapping[Channel, float] = MappingProxyType({})

    @abstractmethod
    def start(self, part: str, number: int, environment: Mapping[str, str]) -> Process:
        """Ask for the process of a part; it connects to the driver."""

    def start_elsewhere(self, process: Process) -> None:  # noqa: B027
        """Ask somebody else for the process of a part, which has not connected."""

    def look(self, absent: Sequence[str]) -> Sequence[str]:
        """Return those of the parts without a process whose time passes now."""
        return ()

    def add_agent(self, fragments: str, channel: Channel, has_begun: Callable[[str], bool]) -> list[str]:
        """Use an agent that runs these fragments; return the parts that are to be started anew, by this one.

        Raises
        ------
        GraphError
            If the agent is refused.
        """
        raise GraphError(
            f"the driver starts all processes itself, and has no use for a worker at {channel.where}"
        )

    def remove_agent(self, channel: Channel, how: str) -> list[str]:
        """Forget an agent that is gone, or frozen; return the parts that it ran."""
        return []

    def note_answer(self, channel: Channel) -> None:  # noqa: B027
        """Note that an agent does what it was asked for."""

    def forgive(self, now: float) -> None:  # noqa: B027
        """Let all agents have their time once more, because the driver itself was stopped for a while."""

    def waits_for(self, parts: Sequence[str]) -> str:
        """Return what parts that have no process yet wait for, for the log; empty if it is on its way."""
        return ""

    def close(self) -> None:  # noqa: B027
        """End everything."""


class LocalHosting(Hosting):
    """The driver starts the processes itself.

    Parameters
    ----------
    parts
        The fragments of the program.
    address, access
        Where the driver listens, and how to connect to it.
    on_error
        Called with the exception if what a process writes cannot be passed on.
    """

    is_here = True

    def __init__(
        self,
        parts: Sequence[Any],
        address: Address,
        access: Access,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.gpus = assign(
            "gpus", {part.name: part.gpus for part in parts}, gpus_for(part.gpus for part in parts)
        )
        cores = sorted(os.sched_getaffinity(0))
        self._cpus = assign("cpus", {part.name: part.cpus for part in parts}, cores)
        self._address = address
        self._access = access
        self._on_error = on_error

    def start(self, part: str, number: int, environment: Mapping[str, str]) -> Process:
        """Start the process of a part."""
        out, err = os.pipe(), os.pipe()
        try:
            started = start_process(
                self._address,
                self._access,
                part,
                number,
                variables=environment,
                cpus=self._cpus[part] or (),
                stdout=out[1],
                stderr=err[1],
            )
        except BaseException:
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            os.close(out[1])
            os.close(err[1])
        return LocalProcess(part, number, environment, started, (out[0], err[0]), self._on_error)


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
        self._agents: dict[Channel, str] = {}
        # The agent that runs each part, and the numbers of the starts that wait for one.
        self._runs: dict[str, Channel] = {}
        self._waiting: dict[str, int] = {}
        self.unanswered: dict[Channel, float] = {}
        self.own: threading.Thread | None = None
        """The agent of this host, if there is one."""

    def start(self, part: str, number: int, environment: Mapping[str, str]) -> Process:
        """Ask an agent for the process of a part, now or when one connects that runs it."""
        process = Process(part, number, environment)
        self.start_elsewhere(process)
        return process

    def start_elsewhere(self, process: Process) -> None:
        """Ask an agent for a process, now or when one connects that runs its part."""
        self._waiting[process.part] = process.number
        self._place()

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
        fragment = self._parts[part]
        number, may_return = self._waiting.pop(part), fragment.on_loss == RESTART
        # If the agent is gone, its connection says so next, and the part is started by another one.
        channel.post(StartPart(part, number, fragment.gpus, fragment.cpus, may_return))

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
        del self._agents[channel]
        self.note_answer(channel)
        lost = [part for part, runner in self._runs.items() if runner is channel]
        for part in lost:
            del self._runs[part]
        _log.warning("the worker at %s %s, which ran %s", channel.where, how, _listed(lost) or "no fragment")
        return lost

    def waits_for(self, parts: Sequence[str]) -> str:
        """Return which parts no worker runs."""
        waiting = [part for part in parts if part in self._waiting]
        if not waiting:
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
        if self.own is not None and self.own.is_alive():
            waits.join(self.own)


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names))


def open_here(parts: Sequence[Any], control: Any, _: Any) -> tuple[Reception, Hosting]:
    """Return where processes connect, and who starts them, if all of them are on this host.

    ``HEADRACE_LINK=tcp`` tries what links between hosts use.
    """
    is_tcp = os.environ.get("HEADRACE_LINK") == "tcp"
    access = Access(make_token() if is_tcp else b"")
    reception = Reception(("127.0.0.1", 0) if is_tcp else "", access)
    try:
        return reception, LocalHosting(parts, reception.address, access, control.fail)
    except BaseException:
        reception.close()
        raise


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
    hosting = Agents(parts, reception.address)

    def serve_here() -> None:
        try:
            fragments = options.get("HEADRACE_FRAGMENTS") or ANY
            serve(reception.address, access, fragments, host=worker_host(options), is_patient=False)
        except Exception as error:
            control.fail(error)

    if is_worker:
        hosting.own = threading.Thread(target=serve_here, name="headrace agent", daemon=True)
        hosting.own.start()
    return reception, hosting
