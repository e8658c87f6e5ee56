"""Process, LocalProcess: the process of a part as the driver sees it, wherever it runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.parts.control import Address, Cancel, Channel, Gone, Printed
from headrace.parts.lines import Lines, write

if TYPE_CHECKING:
    import subprocess


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
        self.reason = "nobody ran it"
        """How it ended, in words."""
        self.status = 0
        """Its exit status, if whoever started it has said so."""
        self.was_attached = False
        """Whether it has connected, perhaps to be gone since."""
        self.is_gone = False
        """Whether whoever started it has said that it ended."""
        self._lines = {1: b"", 2: b""}

    def attach(self, channel: Channel) -> None:
        """Use the connection of the process."""
        self.where = channel.where
        self.reason = f"the connection to its process at {self.where} was closed"
        self.channel = channel
        self.was_attached = True

    def note_end(self, gone: Gone) -> None:
        """Note how it ended, as whoever started it says."""
        self.reason, self.status, self.is_gone = gone.how, gone.status, True

    @property
    def beat(self) -> float:
        """When the process was last heard of: it sends beats, and other messages in their way."""
        return 0.0 if self.channel is None else self.channel.heard_at

    def composed(self, address: Address, pid: int) -> None:
        """Note that it has composed the program, where it listens for links, and its number."""
        self.address, self.pid = address, pid

    def hear(self, printed: Printed) -> None:
        """Print in whole lines what the process has printed, so that those of several are not mixed."""
        whole, newline, rest = (self._lines[printed.stream] + printed.data).rpartition(b"\n")
        self._lines[printed.stream] = rest
        _print(printed.stream, whole + newline)

    def interrupt(self) -> bool:
        """Interrupt it; return False if it is not there yet, and ends with whoever was to start it."""
        if self.channel is not None:
            self.channel.post(Cancel())
        return self.channel is not None

    def kill(self) -> None:
        """End it at once; somewhere else it ends by the end of its connection."""

    def detach(self) -> None:
        """Let go of the connection, which has ended."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def close(self) -> None:
        """Let go of everything."""
        for stream, rest in self._lines.items():
            _print(stream, rest)
            self._lines[stream] = b""
        self.detach()

    def how(self) -> str:
        """Return in words how it ended."""
        return self.reason

    def interrupt_of_exit(self) -> BaseException | None:
        """Return what an interrupted program raises, if the process was interrupted before it had composed.

        Later it says so before it ends.
        """
        return interrupt_of(self.status)


class LocalProcess(Process):
    """The process of a part that the driver has started itself, with its pipes.

    Parameters
    ----------
    started
        The process.
    pipes
        What it writes to its standard output and its standard error.
    on_error
        Called with the exception if what it writes cannot be passed on.
    """

    def __init__(
        self,
        part: str,
        number: int,
        environment: Mapping[str, str],
        started: subprocess.Popen[bytes],
        pipes: tuple[int, int],
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__(part, number, environment)
        self._started = started
        self.pidfd = os.pidfd_open(started.pid)
        self.stdout = Lines(pipes[0], lambda: sys.stdout, on_error)
        self.stderr = Lines(pipes[1], lambda: sys.stderr, on_error)
        self._was_interrupted = False

    def composed(self, address: Address, pid: int) -> None:
        """Pass on what the process writes from now on."""
        super().composed(address, pid)
        self.stdout.open()
        self.stderr.open()

    def interrupt(self) -> bool:
        """Send Ctrl-C."""
        self._was_interrupted = True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGINT)
        return True

    def kill(self) -> None:
        """End it at once, also if it is frozen."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, which is near, and let go of everything."""
        self._started.wait()
        for lines in (self.stdout, self.stderr):
            lines.read_all()
            lines.close()
        super().close()
        os.close(self.pidfd)

    def how(self) -> str:
        """Return in words how it ended."""
        status, process = self._started.returncode, f"its process {self._started.pid}"
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        words = self.stderr.last_words
        return f"{process} {how} (its last words: {words})" if words else f"{process} {how}"

    def interrupt_of_exit(self) -> BaseException | None:
        """Return what a program raises that was ended as this process was, if that was Ctrl-C or SIGTERM."""
        status = self._started.returncode
        return None if status == -signal.SIGINT and self._was_interrupted else interrupt_of(status)


def interrupt_of(status: int) -> BaseException | None:
    """Return what a program raises that ends with a status as after Ctrl-C or SIGTERM; None for every other."""
    if status == -signal.SIGINT:
        return KeyboardInterrupt()
    return SystemExit(128 + signal.SIGTERM) if status == -signal.SIGTERM else None


def _print(stream: int, data: bytes) -> None:
    write(sys.stdout if stream == 1 else sys.stderr, data)
