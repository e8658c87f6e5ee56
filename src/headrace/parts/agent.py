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
from dataclasses import dataclass
from errno import EHOSTUNREACH, ENETUNREACH
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.core.errors import GraphError, PeerLost
from headrace.link.channel import Channel
from headrace.link.handshake import Purpose
from headrace.link.listener import listen
from headrace.parts import messages
from headrace.parts.access import AGENT, Access, token_for
from headrace.parts.environment import BLAS_SPIN, assign, gpus_for, visible
from headrace.parts.lines import Lines, print_lines
from headrace.parts.messages import TOKEN, WORKER_ADDRESS, Address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


class Agent:
    """Starts the processes of parts on this host, as a driver says, until the run is over.

    Parameters
    ----------
    channel
        The connection to the driver.
    address, access
        Where the driver listens, and how the processes connect to it.
    program
        The program on this host; empty if it is where the driver has it.
    host
        The address at which the processes listen for links; that of the way to the driver if it is empty.
    write
        Called with the number of a stream and what a process has written to it, in whole lines; None lets the
        driver print it.
    is_driver
        Whether this is the process of the driver: Ctrl-C and Ctrl-Z on the terminal are for the processes as well.
    """

    def __init__(
        self,
        channel: Channel,
        address: Address,
        access: Access,
        program: str = "",
        host: str = "",
        *,
        write: Callable[[int, bytes], object] | None = print_lines,
        is_driver: bool = False,
    ) -> None:
        self.channel = channel
        self.address, self.access = address, access
        self.program, self._host = program, host
        self._write = write or (lambda number, data: channel.send(messages.Printed(number, data)))
        self._is_driver = is_driver
        self._processes: dict[str, _Started] = {}  # the last one of each part
        self._running: set[_Started] = set()
        self._gpus: dict[str, Sequence[int]] = {}
        self._cpus: dict[str, Sequence[int]] = {}
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self.is_wanted = False
        """Whether it runs a part that is started again if it is lost."""

    def run(self) -> None:
        """Start what the driver says; the first Ctrl-C or SIGTERM is passed on to the processes.

        They end as after a signal of their own: operators stop, and the driver learns of it, which ends the run.
        """
        interrupt: BaseException | None = None
        self._selector.register(self.channel, selectors.EVENT_READ, self._on_message)
        try:
            while not self._is_over:
                try:
                    for key, _ in self._selector.select():
                        if self._selector.get_map().get(key.fd) is key:  # else the one before has closed it
                            key.data()
                except (KeyboardInterrupt, SystemExit) as error:
                    if interrupt is not None or not self._running:
                        raise
                    interrupt = error
                    for each in self._running:
                        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
                        each.process.send_signal(number)
        finally:
            for each in list(self._running):
                each.process.kill()
                self._reap(each)
            self._selector.close()
            self.channel.close()
        if interrupt is not None:
            raise interrupt

    def _on_message(self) -> None:
        arrived = self.channel.take()
        if arrived is None:
            raise PeerLost(
                f"the driver at {named(self.address)} is gone: it was killed, or cannot be reached any "
                "more; the processes of this worker were ended"
            )
        for message in arrived:
            match message:
                case messages.RunOver():
                    self._is_over = True
                case messages.Refused(text):
                    raise GraphError(text)
                case messages.EndPart(part):
                    self._end(part)
                case messages.StartPart():
                    self.is_wanted |= message.may_return
                    self.channel.send(messages.Starting(message.part, message.number))
                    try:
                        self.start(message)
                    except (GraphError, OSError) as error:
                        how = f"its worker cannot start it: {error}"
                        self.channel.send(messages.Gone(message.part, message.number, how))

    def start(self, wanted: messages.StartPart) -> None:
        """Start the process of a part, with GPUs and cores of this host."""
        part = wanted.part
        self._end(part)  # the driver has given it up
        self._give("gpus", self._gpus, part, wanted.gpus, gpus_for([wanted.gpus]))
        self._give("cpus", self._cpus, part, wanted.cpus, sorted(os.sched_getaffinity(0)))
        variables = {**os.environ, **wanted.environment, WORKER_ADDRESS: self._host}
        variables.setdefault(*BLAS_SPIN)
        if part in self._gpus:
            variables.update(visible(variables, self._gpus[part]))
        if not isinstance(self.address, str):
            variables |= {
                TOKEN: self.access.token.decode(),
                "HEADRACE_TLS": "1" if self.access.encrypted else "",
            }
        words = (
            self.address,
            part,
            wanted.number,
            os.getpid(),
            tuple(self._cpus.get(part, ())),
            self.program,
        )
        command = [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            "-c",
            _BOOT.format(str(Path(__file__).parents[2]), *words),
        ]
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            # Ctrl-C on the terminal is for a worker, which passes it on.
            process_group=None if self._is_driver else 0,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = (
            Lines(process.stdout, partial(self._write, 1)),
            Lines(process.stderr, partial(self._write, 2)),
        )
        started = _Started(wanted, process, os.pidfd_open(process.pid), output, errors)
        self._processes[part] = started
        self._running.add(started)
        self._selector.register(started.pidfd, selectors.EVENT_READ, partial(self._on_exit, started))
        for lines in (started.output, started.errors):
            self._selector.register(lines, selectors.EVENT_READ, partial(self._on_lines, lines))

    def _end(self, part: str) -> None:
        """End the process of a part, if there is one."""
        if (started := self._processes.get(part)) in self._running:
            started.process.kill()

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

    def _on_lines(self, lines: Lines) -> None:
        lines.read()
        if lines.is_closed:
            self._selector.unregister(lines)

    def _on_exit(self, started: _Started) -> None:
        self._reap(started)
        status, where = started.process.returncode, "" if self._is_driver else f" on {socket.gethostname()}"
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        how = f"its process {started.process.pid}{where} {how}"
        if words := started.errors.last_words:
            how += f" (its last words: {words})"
        self.channel.send(messages.Gone(started.wanted.part, started.wanted.number, how, status))

    def _reap(self, started: _Started) -> None:
        """Wait for the end of a process, pass on what it has written, and let go of everything."""
        started.process.wait()
        self._running.discard(started)
        for source in (started.pidfd, started.output, started.errors):
            with suppress(KeyError):
                self._selector.unregister(source)
        os.close(started.pidfd)
        started.output.close()
        started.errors.close()


@dataclass(eq=False, slots=True)
class _Started:
    """A process that was started, and what it writes."""

    wanted: messages.StartPart
    process: subprocess.Popen[bytes]
    pidfd: int
    output: Lines
    errors: Lines


def serve(
    address: Address,
    access: Access,
    fragments: str = ANY,
    program: str = "",
    *,
    host: str = "",
    is_patient: bool = True,
    **options: Any,
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
    options
        Other ones of `Agent`.

    Raises
    ------
    PeerLost
        If the driver is gone before the run is over.
    """
    if host:
        listen(host).close()  # it fails here if this host has no such address
    lost: PeerLost | None = None
    while True:
        channel = Channel(_connect(address, access, fragments, is_patient, lost))
        agent = Agent(channel, address, access, program, host, **options)
        try:
            agent.run()
            return
        except PeerLost as error:
            if not agent.is_wanted:
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
