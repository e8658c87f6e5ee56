"""Agent: starts the processes of parts on its host, for a driver that may be on another.

The processes connect to the driver by themselves. They end with the agent, which ends with the driver: the system
kills them with it, and it ends when its own connection does. The token of the run is in the environment of a
process and not on its command line, which other users can read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.link.connect import connect
from headrace.link.handshake import Purpose
from headrace.parts.control import TOKEN, Address, Channel, StartPart
from headrace.parts.remote import AGENT
from headrace.parts.token import token_for

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOT = (
    "import sys; sys.path.insert(0, {!r}); from headrace.parts.worker import join; join({!r}, {}, {!r}, {})"
)
DEFAULT_PORT = 8765
"""Where a driver listens, unless it is told a port."""
ALL = "all"
"""The name for every fragment that nobody else runs."""


class Agent:
    """The processes of parts on this host.

    Parameters
    ----------
    address
        Where the driver listens.
    token
        The token of the run.
    """

    def __init__(self, address: Address, token: bytes) -> None:
        self._address = address
        self._token = token
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, part: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the process of a part, with these variables beside those of this process."""
        self._processes = [process for process in self._processes if process.poll() is None]
        root = str(Path(__file__).parents[2])
        command = [
            sys.executable,
            *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]
            "-c",
            _BOOT.format(root, *self._address, part, os.getpid()),
        ]
        variables = {**os.environ, **environment, TOKEN: self._token.decode()}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=variables)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End the processes that are left, and wait until they are gone."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.kill()
        for process in self._processes:
            process.wait()


def serve(address: Address, token: bytes, fragments: str = ALL, *, encrypted: bool = False) -> None:
    """Start what a driver says, until the driver is gone.

    Parameters
    ----------
    address, token
        Of the driver.
    fragments
        The names of the fragments that this host runs, separated by commas, or ``"all"``.
    encrypted
        Whether connections use TLS.
    """
    carrier = connect(address, Purpose(AGENT, fragments), token, encrypted=encrypted)
    channel = Channel.over(carrier.detach())  # type: ignore[attr-defined]
    agent = Agent(address, token)
    try:
        while (messages := channel.receive()) is not None:
            for message, _ in messages:
                assert isinstance(message, StartPart)
                agent.start(message.part, message.environment)
    finally:
        agent.close()
        channel.close()


def serve_from_environment() -> None:
    """Do what ``headrace run --worker`` asks for."""
    address = parse_address(os.environ.get("HEADRACE_ADDRESS", ""))
    fragments = os.environ.get("HEADRACE_FRAGMENTS") or ALL
    serve(address, token_for(address[0]), fragments, encrypted=bool(os.environ.get("HEADRACE_TLS")))


def parse_address(text: str) -> Address:
    """Return the address and the port of a text such as ``192.168.1.7:8765``; loopback unless it has an address."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = (text, "") if not text.isdecimal() else ("", text)
    if port and not port.isdecimal():
        raise ValueError(f"--address {text!r}: the port must be a number, as in 192.168.1.7:8765")
    return host.strip("[]") or "127.0.0.1", int(port or DEFAULT_PORT)
