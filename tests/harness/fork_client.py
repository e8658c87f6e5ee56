"""How the fork server is asked for a program. As a script this is ``python`` in a shell, and ends as that does."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Generator
from typing import Any


def ask(server: socket.socket, files: dict[int, int], **request: Any) -> Generator[int]:
    """Ask a server for a program with some files, by their numbers there; return its answers."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with its:
            message = json.dumps({"files": list(files), **request}).encode()
            socket.send_fds(server, [message], [its.fileno(), *files.values()])
        while answer := ours.recv(100):
            yield int(answer)


if __name__ == "__main__":
    environment = dict(os.environ)
    _, status = ask(
        socket.socket(fileno=int(environment["FORK_SERVER"])),
        {number: number for number in (0, 1, 2)},
        arguments=sys.argv[1:],
        folder=os.getcwd(),
        environment=environment,
        modules=[],
        group=os.getpgrp(),
    )
    os._exit(status if status >= 0 else 128 - status)
