"""Agent: starts the processes of parts on its host, for a driver that may be on another.

The processes connect to the driver by themselves. They end with the agent, which ends with the driver: the system
kills them with it, and it ends when its own connection does. An agent tells the driver when a process has ended, as
that may happen before the process could connect. The token of the run is in the environment of a process and not on
its command line, which other users can read.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EHOSTUNREACH, ENETUNREACH
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import GraphError, PeerLost
from headrace.link.handshake import Purpose
from headrace.link.listener import listen
from headrace.parts.access import AGENT, Access, token_for
from headrace.parts.control import (
    TOKEN,
    WORKER_ADDRESS,
    Address,
    Channel,
    EndPart,
    Gone,
    Refused,
    RunOver,
    Starting,
    StartPart,
)
from headrace.parts.environment import assign, gpus_for, visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# By the folder of this package, so that the process finds this headrace. Imports leave no garbage. Ctrl-C ends the
# process without a traceback until it can tell the driver (`join`). Ray blocks it in its processes, which this one
# would inherit.
_BOOT = (
    "import gc, signal, sys; gc.disable(); s = signal.SIGINT; "
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, {{s}}); "
    "signal.getsignal(s) is signal.SIG_IGN or signal.signal(s, signal.SIG_DFL); "
    "sys.path.insert(0, {!r}); from headrace.parts.worker import join; gc.enable(); "
    "join({!r}, {!r}, {!r}, {!r}, {!r}, {!r})"
)
_AGAIN = 0.2  # seconds between two attempts to connect
DEFAULT_PORT = 8765
"""Where a driver listens, unless it is told a port."""
ALL = "all"
"""The name for every fragment that nobody else runs."""
ANY = ""
"""The name for one fragment, which the driver chooses."""

_log = logging.getLogger("headrace.parts")


def start_process(
    address: Address,
    access: Access,
    part: str,
    number: int,
    *,
    variables: Mapping[str, str],
    cpus: Sequence[int] = (),
    program: str = "",
    **options: Any,
) -> subprocess.Popen[bytes]:
    """Start the process of a part, which ends with this one.

    Parameters
    ----------
    address, access
        Where the driver listens, and how to connect to it.
    number
        Which start it is.
    variables
        Its environment.
    cpus
        The cores that it may use; all if there are none.
    program
        The program on this host; empty if it is where the driver has it.
    options
        Other ones of `subprocess.Popen`.
    """
    variables = {**variables}
    if not isinstance(address, str):
        variables |= {TOKEN: access.token.decode(), "HEADRACE_TLS": "1" if access.encrypted else ""}
    words = (address, part, number, os.getpid(), tuple(cpus), program)
    command = [
        sys.executable,
        *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
        "-c",
        _BOOT.format(str(Path(__file__).parents[2]), *words),
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=variables, **options)


@dataclass
class Agent:
    """The processes of parts on this host.

    Parameters
    ----------
    address, access
        Where the driver listens, and how to connect to it.
    program
        The program on this host; empty if it is where the driver has it.
    host
        The address at which the processes listen for links; that of the way to the driver if it is empty.
    """

    address: Address
    access: Access
    program: str = ""
    host: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The last process of each part."""
    _gpus: dict[str, Sequence[int]] = field(default_factory=dict)
    _cpus: dict[str, Sequence[int]] = field(default_factory=dict)

    def start(
        self,
        part: str,
        number: int,
        gpus: int | Sequence[int] | None = None,
        cpus: int | Sequence[int] | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.Popen[bytes]:
        """Start the process of a part, with GPUs and cores of this host.

        `environment` has variables beside those of this process.
        """
        self.end(part)  # the driver has given it up
        self._give("gpus", self._gpus, part, gpus, gpus_for([gpus]))
        self._give("cpus", self._cpus, part, cpus, sorted(os.sched_getaffinity(0)))
        variables = {**os.environ, **environment, WORKER_ADDRESS: self.host}
        if part in self._gpus:
            variables.update(visible(variables, self._gpus[part]))
        self.processes[part] = start_process(
            self.address,
            self.access,
            part,
            number,
            variables=variables,
            cpus=self._cpus.get(part, ()),
            program=self.program,
            # Ctrl-C on the terminal is for the agent or the driver, which pass it on.
            process_group=0,
        )
        return self.processes[part]

    def end(self, part: str) -> None:
        """End the process of a part, if there is one."""
        if self._runs(part):
            self.processes[part].kill()

    def _give(
        self,
        what: str,
        given: dict[str, Sequence[int]],
        part: str,
        wanted: int | Sequence[int] | None,
        there: Sequence[int],
    ) -> None:
        """Assign to a part what it wants of what is there; it has the same when it is started again."""
        if wanted is not None and part not in given:
            others = {other: tuple(own) for other, own in given.items()}
            given[part] = assign(what, {**others, part: wanted}, there)[part]

    def _runs(self, part: str) -> bool:
        process = self.processes.get(part)
        return process is not None and process.poll() is None

    def interrupt(self, number: int) -> bool:
        """Pass on a signal; return whether there is a process that it may end."""
        running = [process for part, process in self.processes.items() if self._runs(part)]
        for process in running:
            process.send_signal(number)
        return bool(running)

    def close(self) -> None:
        """End the processes that are left, and wait until they are gone."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                process.kill()
        for process in self.processes.values():
            process.wait()


class AgentServer:
    """An agent that does what a driver says, until the run is over.

    Parameters
    ----------
    channel
        The connection to the driver.
    agent
        Starts the processes.
    """

    def __init__(self, channel: Channel, agent: Agent) -> None:
        self._channel = channel
        self._agent = agent
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self.is_wanted = False
        """Whether it runs a part that is started again if it is lost."""

    def run(self) -> None:
        """Start what the driver says; the first Ctrl-C or SIGTERM is passed on to the processes.

        They end as after a signal of their own: operators stop, and the driver learns of it, which ends the run.
        """
        interrupt: BaseException | None = None
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_message)
        try:
            while not self._is_over:
                try:
                    for key, _ in self._selector.select():
                        key.data()
                except (KeyboardInterrupt, SystemExit) as error:
                    number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
                    if interrupt is not None or not self._agent.interrupt(number):
                        raise
                    interrupt = error
        finally:
            self._agent.close()
            for key in list(self._selector.get_map().values()):
                if key.fileobj is not self._channel:
                    os.close(key.fd)
            self._selector.close()
            self._channel.close()
        if interrupt is not None:
            raise interrupt

    def _on_message(self) -> None:
        messages = self._channel.take()
        if messages is None:
            raise PeerLost(
                f"the driver at {named(self._agent.address)} is gone: it was killed, or cannot be reached any "
                "more; the processes of this worker were ended"
            )
        for message in messages:
            match message:
                case RunOver():
                    self._is_over = True
                case Refused(text):
                    raise GraphError(text)
                case EndPart(part):
                    self._agent.end(part)
                case StartPart():
                    self._start(message)

    def _start(self, wanted: StartPart) -> None:
        self.is_wanted |= wanted.may_return
        self._channel.send(Starting(wanted.part, wanted.number))
        try:
            process = self._agent.start(wanted.part, wanted.number, wanted.gpus, wanted.cpus)
        except (GraphError, OSError) as error:
            self._channel.send(Gone(wanted.part, wanted.number, f"its worker cannot start it: {error}"))
            return
        descriptor = os.pidfd_open(process.pid)

        def on_exit() -> None:
            self._selector.unregister(descriptor)
            os.close(descriptor)
            status = process.wait()
            how = f"its process {process.pid} on {socket.gethostname()} ended with status {status}"
            self._channel.send(Gone(wanted.part, wanted.number, how, status))

        self._selector.register(descriptor, selectors.EVENT_READ, on_exit)


def serve(
    address: Address,
    access: Access,
    fragments: str = ANY,
    program: str = "",
    *,
    host: str = "",
    is_patient: bool = True,
) -> None:
    """Start what a driver says, until the run is over.

    If this host is cut off from the driver for a while, its processes end. If one of them may be restarted, the
    worker comes back when the driver can be reached again.

    Parameters
    ----------
    address, access
        Where the driver listens, and how to connect to it.
    fragments
        The names of the fragments that this host runs, separated by commas; ``"all"`` for those that nobody else
        runs; empty for one that the driver chooses.
    program
        The program on this host; empty if it is where the driver has it.
    host
        The address at which the processes listen for links; that of the way to the driver if it is empty.
    is_patient
        Whether to wait for a driver that does not listen yet.

    Raises
    ------
    PeerLost
        If the driver is gone before the run is over.
    """
    if host:
        listen(host).close()  # it fails here if this host has no such address
    lost: PeerLost | None = None
    while True:
        carrier = _connect(address, access, fragments, is_patient, lost)
        server = AgentServer(Channel(carrier), Agent(address, access, program, host))
        try:
            server.run()
            return
        except PeerLost as error:
            if not server.is_wanted:
                raise
            lost = error
            _log.warning("%s; waiting until it can be reached again", error)
        except GraphError:
            if lost is None:
                raise
            waits.wait(threading.Event(), _AGAIN)  # it has not noticed yet that the former connection is lost


def _connect(
    address: Address, access: Access, fragments: str, is_patient: bool, lost: PeerLost | None
) -> Any:
    """Connect to a driver, which may not listen yet; raise `lost` if it listens no more."""
    was_told = lost is not None
    while True:
        try:
            return access.connect(address, Purpose(AGENT, fragments))
        except PeerLost as error:
            cause = error.__cause__
            if lost is not None and isinstance(cause, ConnectionRefusedError):
                raise lost from None
            if not (is_patient or lost) or not _may_come(cause):
                raise
            if not was_told:
                _log.warning("no driver at %s yet: %s; waiting for one", named(address), cause)
                was_told = True
            waits.wait(threading.Event(), _AGAIN)


def named(address: Address) -> str:
    """Return an address as a text."""
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def _may_come(error: BaseException | None) -> bool:
    """Return whether an error of a connection means that nobody listens there now."""
    if isinstance(error, OSError) and error.errno in (EHOSTUNREACH, ENETUNREACH):
        return True
    return isinstance(error, (ConnectionRefusedError, TimeoutError))


def serve_from_options(options: Mapping[str, str], program: str) -> None:
    """Do what ``headrace run PROGRAM --worker`` asks for; the options are variables."""
    address = parse_address(options.get("HEADRACE_ADDRESS", ""))
    fragments = options.get("HEADRACE_FRAGMENTS") or ANY
    access = Access(token_for(address[0]), bool(options.get("HEADRACE_TLS")))
    serve(address, access, fragments, program, host=worker_host(options))


def worker_host(options: Mapping[str, str]) -> str:
    """Return the address at which the processes of a worker listen, if the options have one."""
    given = options.get(WORKER_ADDRESS, "")
    host = given.strip("[]")
    if host in ("0.0.0.0", "::"):
        return ""  # of all addresses, the others reach the one that leads to the driver
    if "]:" in given or given.count(":") == 1:
        raise ValueError(
            f"--worker-address {given}: it takes no port; each fragment listens at a free port of that address"
        )
    return host


def parse_address(text: str) -> tuple[str, int]:
    """Return the address and the port of a text such as ``192.168.1.7:8765``; loopback unless it has an address."""
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, port = text, ""
    elif not colon:
        host, port = (text, "") if not text.isdecimal() else ("", text)
    if port and not (port.isdecimal() and int(port) < 1 << 16):
        raise ValueError(f"--address {text!r}: the port must be a number, as in 192.168.1.7:8765")
    return host.strip("[]") or "127.0.0.1", int(port or DEFAULT_PORT)
