"""Programs that run in a process of their own."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.harness.threads import PATIENCE

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run_python(
    *arguments: object, cwd: Path | None = None, timeout: float = 300, **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the modules of this process, on the simulated device unless the environment says otherwise.

    Parameters
    ----------
    environment
        Variables to set, or with None to unset.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=environment_of_programs(**environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_forked(
    *arguments: object, cwd: Path | None = None, modules: Sequence[str] = (), **environment: str | None
) -> subprocess.CompletedProcess[str]:
    """Run a program as `run_python` does, in a fork of a process that has imported headrace already.

    That saves the time of the imports. It is not for tests of what is imported, of how a signal ends a process, or
    of variables that the interpreter reads itself; and it is for no device but the simulated one.

    Parameters
    ----------
    arguments
        As for Python: a file, ``-c`` or ``-m``, with ``-W`` before it or not, and the arguments of the program.
    modules
        What to import before the fork, because several programs use it.
    """
    request = {
        "arguments": [str(argument) for argument in arguments],
        "folder": str(cwd or Path.cwd()),
        "environment": environment_of_programs(**environment),
        "modules": list(modules),
    }
    server = _fork_server()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        socket.send_fds(server, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
        pid = int(server.recv(100))
        try:
            server.settimeout(PATIENCE)
            status = int(server.recv(100))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            server.settimeout(None)
            server.recv(100)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(request["arguments"], status, out.read(), err.read())


@cache
def _fork_server() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = Path(__file__).with_name("fork_server.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(its.fileno())],
        env=environment_of_programs(),
        stdin=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def output_of(
    *arguments: object, cwd: Path | None = None, forked: bool = False, **environment: str | None
) -> str:
    """Return what a program prints that must succeed."""
    done = (run_forked if forked else run_python)(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def signal_python(number: signal.Signals, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python, and send it a signal once it has printed a first line."""
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment_of_programs(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def environment_of_programs(**changes: str | None) -> dict[str, str]:
    """Return the environment of a program that uses the modules of this process, with changes."""
    path = os.pathsep.join(filter(None, sys.path))
    changed = {**os.environ, "HEADRACE_DEVICE": "sim", "PYTHONPATH": path, **changes}
    return {name: value for name, value in changed.items() if value is not None}
