"""Programs that run in a process of their own."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.harness.fork_server import NAME, Popen
from tests.limits import PATIENCE

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

    That saves the time of the imports. It is not for tests of what is imported, of variables that the interpreter
    reads itself, or of what it does at its end; and it is for no device but the simulated one.

    Parameters
    ----------
    arguments
        As for Python: a file, ``-c`` or ``-m``, with ``-W`` before it or not, and the arguments of the program.
    modules
        What to import before the fork, because several programs use it.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command, variables = [sys.executable, *map(str, arguments)], environment_of_programs(**environment)
        process = forking()(
            command, modules=modules, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=variables
        )
        try:
            status = process.wait(PATIENCE)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


@cache
def forking() -> type[Popen]:
    """Return what can take the place of `subprocess.Popen`: if they run Python, its processes are forks."""
    Popen.server, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    script = Path(__file__).with_name("fork_server.py")
    process = subprocess.Popen(
        [sys.executable, str(script), str(its.fileno())],
        env=environment_of_programs(),
        stdin=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
    )
    its.close()

    def end() -> None:
        Popen.server.close()
        process.wait()

    atexit.register(end)
    return Popen


def is_fork_server(pid: str) -> bool:
    """Return whether a process is a server of these, perhaps one that was adopted and has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == NAME
    except FileNotFoundError:
        return False


def output_of(
    *arguments: object,
    cwd: Path | None = None,
    forked: bool = False,
    modules: Sequence[str] = (),
    **environment: str | None,
) -> str:
    """Return what a program prints that must succeed; `modules` as for `run_forked`."""
    if forked:
        done = run_forked(*arguments, cwd=cwd, modules=modules, **environment)
    else:
        done = run_python(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def signal_python(number: signal.Signals, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python, and send it a signal once it has printed a first line."""
    process = forking()(
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
