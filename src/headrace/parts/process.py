"""Process: the process of a part as the driver sees it, with its control channel, its board and its pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.link.memory import Board
from headrace.parts.control import Channel
from headrace.parts.lines import Lines

# By the folder of this package, so that the process finds the headrace of the driver. Imports leave no garbage.
_BOOT = (
    "import gc, sys; gc.disable(); sys.path.insert(0, {!r}); from headrace.parts.worker import main; gc.enable(); "
    "main({}, {!r}, {})"
)


class Process:
    """The process of a part, its control channel, its board and its pipes."""

    def __init__(
        self, part: str, environment: dict[str, str], on_error: Callable[[BaseException], None]
    ) -> None:
        self.part = part
        self.channel, theirs = Channel.pair()
        self.board, shared = Board.create()
        out, err = os.pipe(), os.pipe()
        root = str(Path(__file__).parents[2])
        command = [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            "-c",
            _BOOT.format(root, theirs.fileno(), part, shared),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out[1],
                stderr=err[1],
                env=environment,
                pass_fds=(theirs.fileno(), shared),
            )
        except BaseException:
            self.channel.close()
            os.close(out[0])
            os.close(err[0])
            raise
        finally:
            theirs.close()
            os.close(shared)
            os.close(out[1])
            os.close(err[1])
        self.stdout = Lines(out[0], lambda: sys.stdout, on_error)
        self.stderr = Lines(err[0], lambda: sys.stderr, on_error)
        self.pidfd = os.pidfd_open(self._process.pid)
        self._was_interrupted = False

    @property
    def beat(self) -> float:
        """When the process was last alive, as its board says."""
        return self.board.peer_beat[0]

    @property
    def sources(self) -> tuple[Any, ...]:
        """What the driver waits for."""
        return self.channel, self.pidfd, self.stdout, self.stderr

    def composed(self, _: Any) -> None:
        """Pass on what the process writes from now on."""
        self.stdout.open()
        self.stderr.open()

    def has_data(self) -> bool:
        """Return whether something waits in the channel."""
        return self.channel.has_data()

    def interrupt(self) -> None:
        """Send Ctrl-C."""
        self._was_interrupted = True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGINT)

    @property
    def has_ended(self) -> bool:
        """Whether it is gone."""
        looks = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PIDFD, self.pidfd, looks) is not None

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, which is near, and let go of everything."""
        self._process.wait()
        self.stdout.read_all()
        self.stderr.read_all()
        self.stdout.close()
        self.stderr.close()
        self.channel.close()
        os.close(self.pidfd)

    def how(self) -> str:
        """Return in words how it ended."""
        status = self._process.returncode
        process = f"its process {self._process.pid}"
        if status < 0:
            text = f"{process} was ended by {signal.Signals(-status).name}"
        else:
            text = f"{process} ended with status {status}"
        words = self.stderr.last_words
        return f"{text} (its last words: {words})" if words else text

    def interrupt_of_exit(self) -> BaseException | None:
        """Return what a program raises that was ended as this process was, if that was Ctrl-C or SIGTERM."""
        status = self._process.returncode
        return None if status == -signal.SIGINT and self._was_interrupted else interrupt_of(status)


def interrupt_of(status: int) -> BaseException | None:
    """Return what a program raises that ends with a status as after Ctrl-C or SIGTERM; None for every other."""
    if status == -signal.SIGINT:
        return KeyboardInterrupt()
    return SystemExit(128 + signal.SIGTERM) if status == -signal.SIGTERM else None
