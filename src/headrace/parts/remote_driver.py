"""RemoteDriver: a driver whose parts run in processes that connect to it (`remote`), on this host and others."""

from __future__ import annotations

import os
import selectors
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from headrace.observe.events.clock_offsets import Answer, ClockOffset, OffsetMeasurement, clock_name
from headrace.parts.agent import ALL, Agent, parse_address
from headrace.parts.control import (
    Address,
    AskTime,
    Assignment,
    Beat,
    Channel,
    Composed,
    Connect,
    StartPart,
    TellTime,
)
from headrace.parts.driver import Driver
from headrace.parts.remote import AGENT, Reception, RemoteProcess
from headrace.parts.token import token_for

if TYPE_CHECKING:
    import socket

    from headrace.parts.cut_flow import CutFlow

_INHERITED = ("HEADRACE_", "HOLOSCAN_")
_OF_THE_DRIVER = frozenset(
    (
        "HEADRACE_ADDRESS",
        "HEADRACE_CLUSTER",
        "HEADRACE_DRIVER",
        "HEADRACE_FRAGMENTS",
        "HEADRACE_TOKEN",
        "HEADRACE_WORKER",
    )
)


class Hosting(Protocol):
    """Who starts the processes of parts."""

    def start(self, part: str) -> None:
        """Have the process of a part started; it connects to the driver."""

    def add_agent(self, fragments: str, channel: Channel) -> None:
        """Use an agent that has connected, and that runs these fragments."""

    def close(self) -> None:
        """End everything."""


class RemoteDriver(Driver):
    """The processes of one run, which connect to it.

    Parameters
    ----------
    reception
        Where they connect.
    hosting
        Who starts them.
    """

    def __init__(self, *arguments: Any, reception: Reception, hosting: Hosting) -> None:
        self._reception = reception
        self._hosting = hosting
        # Processes that connected before the driver had noticed that the former ones are gone.
        self._early: dict[str, socket.socket] = {}
        self._measured: dict[Any, OffsetMeasurement] = {}
        self._clock = clock_name()
        super().__init__(*arguments)
        self._selector.register(reception.descriptor, selectors.EVENT_READ, self._on_arrival)

    def run(self) -> None:
        """Have the processes started, and return when all have ended."""
        try:
            super().run()
        finally:
            for connection in self._early.values():
                connection.close()
            self._hosting.close()
            self._reception.close()

    def _spawn(self, part: str) -> None:
        self._processes[part] = RemoteProcess(part, lambda: self._hosting.start(part))
        if part in self._early:
            self._attach(self._processes[part], self._early.pop(part))

    def _on_arrival(self) -> None:
        for kind, name, connection in self._reception.take():
            if kind == AGENT:
                self._add_agent(name, connection)
                continue
            process = self._processes.get(name)
            if process is not None and process.channel is None:
                self._attach(process, connection)
            elif name in self.supervisor.parts and name not in self._early:
                self._early[name] = connection
            else:
                connection.close()

    def _add_agent(self, fragments: str, connection: socket.socket) -> None:
        self._hosting.add_agent(fragments, Channel.over(connection))

    def _attach(self, process: RemoteProcess, connection: socket.socket) -> None:
        process.attach(connection)
        process.tell(self._assignment(process.part))
        assert process.channel is not None
        self._selector.register(
            process.channel, selectors.EVENT_READ, lambda: self._on_message(process, process.channel)
        )

    def _assignment(self, part: str) -> Assignment:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_INHERITED) and name not in _OF_THE_DRIVER
        }
        environment["HEADRACE_PART"] = part
        return replace(super()._assignment(part), environment=environment)

    def _handle(self, process: Any, message: Any) -> None:
        if self._joined is not None and isinstance(message, (Composed, Beat)):
            process.tell(AskTime(perf_counter_ns()))
        super()._handle(process, message)

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
            process.tell(AskTime(perf_counter_ns()))

    def _on_closed(self, process: Any) -> None:
        self._selector.unregister(process.channel)
        self._on_exit(process, None)

    def _interrupt(self, process: RemoteProcess) -> None:
        if not process.interrupt():
            self._on_exit(process, None)

    def _kill(self, process: RemoteProcess) -> None:
        self._on_exit(process, None)

    def _join(self, flows: Sequence[CutFlow], parts: Sequence[str]) -> None:
        """Tell the processes where to connect the links."""
        ends: dict[str, list[tuple[str, int, Address]]] = {part: [] for part in parts}
        for flow in flows:
            epoch = sum(self.supervisor.parts[part].epoch for part in (flow.source, flow.target))
            for part in (flow.source, flow.target):
                ends.setdefault(part, []).append((flow.name, epoch, self._processes[flow.target].address))
        for part, own in ends.items():
            names, epochs, addresses = zip(*own, strict=True) if own else ((), (), ())
            self._processes[part].tell(Connect(names, epochs, addresses))
        for part in parts if self._request is not None else ():
            self._processes[part].tell(self._request)


class Agents:
    """The agents that have connected, and the parts that wait for one.

    Parameters
    ----------
    own
        Starts the processes of this host, if this host runs any.
    fragments
        The fragments that this host runs.
    """

    def __init__(self, own: Agent | None = None, fragments: str = "") -> None:
        self._own = own
        self._fragments = fragments
        self._agents: list[tuple[str, Channel]] = []
        self._waiting: list[str] = []

    def start(self, part: str) -> None:
        """Have the process of a part started by an agent that runs it, now or when it connects."""
        if self._own is not None and _runs(self._fragments, part):
            self._own.start(part, {})
            return
        for fragments, channel in self._agents:
            if _runs(fragments, part) and channel.send(StartPart(part, {})):
                return
        self._waiting.append(part)

    def add_agent(self, fragments: str, channel: Channel) -> None:
        """Use an agent from now on."""
        self._agents.append((fragments, channel))
        waiting, self._waiting = self._waiting, []
        for part in waiting:
            self.start(part)

    def close(self) -> None:
        """Let the agents end."""
        if self._own is not None:
            self._own.close()
        for _, channel in self._agents:
            channel.close()


def _runs(fragments: str, part: str) -> bool:
    return fragments == ALL or part in fragments.split(",")


def make_remote_driver(*arguments: Any) -> RemoteDriver:
    """Return the driver that the environment asks for (``headrace run --driver``)."""
    address = parse_address(os.environ.get("HEADRACE_ADDRESS", ""))
    token = token_for(address[0])
    reception = Reception(address, token, encrypted=bool(os.environ.get("HEADRACE_TLS")))
    own = Agent(reception.address, token) if os.environ.get("HEADRACE_WORKER") else None
    hosting = Agents(own, os.environ.get("HEADRACE_FRAGMENTS") or ALL)
    try:
        return RemoteDriver(*arguments, reception=reception, hosting=hosting)
    except BaseException:
        reception.close()
        raise
