"""Two hosts with a cable between them, for tests that pull it: network namespaces that have no names.

A namespace lives as long as a process in it. Here that is a `cat`, which ends with the process of the tests,
however that ends. So nothing is left of the namespaces, their devices and their rules.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from tests.limits import PATIENCE

T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_NEEDED = ("ip", "nft", "nsenter", "setpriv", "unshare")
# What a test does to a network, tried where nobody sees it. A shell that may do all of it says nothing.
_TRIAL = (
    "ip link add one type veth peer name other && nft add table ip t && "
    "nft 'add chain ip t c { type filter hook input priority 0 ; }' && "
    "nft add rule ip t c numgen inc mod 20 0 drop"
)


@cache
def why_not() -> str:
    """Return why there can be no networks here; empty if there can."""
    for tool in _NEEDED:
        if shutil.which(tool) is None:
            return f"needs {tool}"
    tried = subprocess.run(
        ["unshare", "--net", "sh", "-c", _TRIAL],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    said = " ".join(tried.stderr.split())
    return f"needs network namespaces with packet filters: {said}" if tried.returncode else ""


class Host:
    """A network namespace with the end of a cable.

    Attributes
    ----------
    address
        Its address in the network of both hosts.
    """

    def __init__(self, address: str, holder: int) -> None:
        self.address = address
        self.holder = holder

    def command(self, *words: object) -> list[str]:
        """Return a command that runs on this host."""
        # It ends with the process of the tests, like the namespace.
        entering = ("setpriv", "--pdeathsig", "KILL", "nsenter", f"--net=/proc/{self.holder}/ns/net")
        return [*entering, *map(str, words)]

    def do(self, text: str) -> str:
        """Run a command on this host that changes its network, or shows it; return its output."""
        command = self.command(*text.split())
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout

    def drop(self, hook: str, packets: str) -> None:
        """Drop packets that come (``input``) or go (``output``); all of them, if none are described."""
        self.do(
            f"nft add table ip faults ; add chain ip faults {hook} {{ type filter hook {hook} priority 0 ; }} ; "
            f"add rule ip faults {hook} {packets} counter drop"
        )

    def dropped(self, hook: str) -> int:
        """Return how many packets were dropped."""
        found = re.search(r"counter packets (\d+)", self.do(f"nft list chain ip faults {hook}"))
        assert found is not None
        return int(found[1])

    def pull_the_cable(self) -> None:
        """Take the device of this host down."""
        self.do("ip link set cable down")

    def make(self, function: Callable[[], T]) -> T:
        """Return what a function returns whose sockets are those of this host, on a thread that ends."""
        found: list[T] = []

        def run() -> None:
            with open(f"/proc/{self.holder}/ns/net") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            found.append(function())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(PATIENCE)
        return found[0]

    def processes(self) -> set[int]:
        """Return the processes on this host."""
        own, found = os.readlink(f"/proc/{self.holder}/ns/net"), set()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended meanwhile
                if folder.name.isdecimal() and os.readlink(folder / "ns/net") == own:
                    found.add(int(folder.name))
        return found - {self.holder}


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Give two hosts that are connected with each other and with nobody else."""
    with ExitStack() as stack:
        one, other = (Host(f"10.77.0.{number}", _hold(stack)) for number in (1, 2))
        one.do(f"ip link add cable type veth peer name cable netns {other.holder}")
        for host in (one, other):
            host.do(f"ip addr add {host.address}/24 dev cable")
            host.do("ip link set cable up")
            host.do("ip link set lo up")
        yield one, other


def _hold(stack: ExitStack) -> int:
    """Return a process in a network namespace of its own, which ends when its input does."""
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo && exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    stack.enter_context(process)
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process.pid


def connected(one: Host, other: Host) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection between two hosts."""
    with other.make(lambda: socket.create_server((other.address, 0))) as server:
        near = one.make(lambda: socket.create_connection(server.getsockname(), PATIENCE))
        return near, server.accept()[0]
