"""Process: the process of a part as the driver sees it, wherever it runs."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from headrace.link.channel import Channel
from headrace.parts.messages import Address, Cancel, Gone


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

    def interrupt(self) -> bool:
        """Interrupt it; return False if it is not there yet, and ends with whoever was to start it."""
        if self.channel is not None:
            self.channel.post(Cancel())
        return self.channel is not None

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
