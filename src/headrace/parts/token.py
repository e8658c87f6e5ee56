"""The token of a run whose processes connect by TCP: who knows it may take part, and run code in its processes.

On the loopback interface other users of the machine can connect as well. So a token is needed there, too; it is
made once for a user and kept in a file that nobody else can read. Between hosts the user has to give one.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from contextlib import suppress
from pathlib import Path

from headrace.core.errors import AuthenticationError
from headrace.link.handshake import check_token, make_token
from headrace.parts.control import TOKEN


def token_for(host: str) -> bytes:
    """Return the token for a driver that listens at an address of a host."""
    given = os.environ.get(TOKEN)
    if given:
        return check_token(given.encode())
    if not _is_loopback(host):
        raise AuthenticationError(
            f"a driver at {host} can be reached by other hosts, and a token says who may take part in the run: set "
            f"{TOKEN} to the same secret for the driver and its workers, such as one of: openssl rand -hex 32"
        )
    return _own_token()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _own_token() -> bytes:
    """Return the token of this user on this host, which the first who asks makes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    is_there = bool(runtime) and os.path.isdir(str(runtime))
    folder = Path(str(runtime)) / "headrace" if is_there else Path(f"/tmp/headrace-{os.geteuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise AuthenticationError(
            f"{str(folder)!r} is not a private folder of this user, so no token is kept there; set {TOKEN}"
        )
    path = folder / "token"
    if not path.exists():
        # Linked when it is complete. If somebody else was faster, theirs counts.
        made = folder / f".token-{os.getpid()}"
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(make_token())
        with suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return check_token(path.read_bytes())
