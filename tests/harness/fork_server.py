"""A server that has imported headrace, and forks for each program, which so starts without its imports.

`tests.harness.processes` starts it, as a script; `Popen` asks it for a process. A request is a message on a Unix
socket: the program, its arguments, folder and environment, with its files and a socket for the answer, the id of
its process. This is a child of the process that asked, which waits for it and sends it signals as to any other: the
process between it and the server ends at once, and the one that asked adopts what that leaves behind. The program
begins when the one that asked adopts nobody else any more: it would get the children of a program that is killed.

A program has a server of its own, a fork from before it began, for the programs that it starts. A shell that it
starts with that socket, whose number is in FORK_SERVER, has `fork_client` for ``python``.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import linecache
import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

if __name__ == "__main__":
    from fork_client import ask
else:
    from tests.harness.fork_client import ask

# What many programs import. None of these starts a thread, which would not survive a fork.
MODULES = [
    "numpy",
    "yaml",
    "asyncio",
    "argparse",
    "decimal",
    "fractions",
    "hashlib",
    "random",
    "secrets",
    "tempfile",
    "headrace.cli.run",
    "headrace.drawing",
    "headrace.notebook",
    "headrace.operators",
    "headrace.testing",
    "headrace.viewer",
    "headrace.parts.driver",
    "headrace.parts.worker",
    "headrace._runtime.lifecycle.run",
    "headrace.gpu.capture",
    "headrace.gpu.kernels",
    "headrace.gpu.partitions",
    "headrace.gpu.sim.backend",
    "headrace.observe.attachment",
    "headrace.observe.environment",
    "headrace.observe.events.recorder",
    "headrace.observe.events.reader",
    "headrace.observe.figures.run_figures",
    "headrace.tensor.copies",
    "headrace.tensor.device_arrays",
    "headrace.resources.cuda_green_context",
    "headrace.resources.cuda_stream_pool",
    "headrace.resources.clocks",
    "headrace.resources.allocators",
]
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
NAME = "fork server"
"""The name of these processes for the system. A process that adopts a program while another one is killed gets the
server of that one, too."""


class Popen(subprocess.Popen[Any]):
    """A process as `subprocess` starts one; if it is to run Python, it is a fork of the server."""

    server: ClassVar[socket.socket]
    _adopting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, *args: Any, modules: Sequence[str] = (), **more: Any) -> None:
        self._modules = list(modules)  # what to import before the fork
        super().__init__(*args, **more)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        _, preexec, _, passed, folder, environment, _, _, shell, *ends = rest[:15]
        is_python = not isinstance(args, str) and args[0] == sys.executable and _can_fork(args[1])
        if shell or preexec or not is_python:
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        # The ends of pipes that the program gets; without one, it has what this process has.
        files = {number: number if end < 0 else end for number, end in enumerate((ends[0], ends[3], ends[5]))}
        files.update({number: number for number in passed})
        is_session, group = rest[20:22]
        with self._adopting:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                answers = ask(
                    self.server,
                    files,
                    arguments=[os.fspath(argument) for argument in args[1:]],
                    folder=os.path.join(os.getcwd(), folder or ""),
                    environment=dict(os.environ if environment is None else environment),
                    modules=self._modules,
                    group=None if is_session else os.getpgrp() if group < 0 else group,
                    parent=os.getpid(),
                )
                self.pid = next(answers)
                next(answers)  # it is adopted
            finally:
                _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            answers.close()  # the program begins
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]


def _can_fork(argument: Any) -> bool:
    """Say whether a program, or one of the options that `become` knows, is Python's first argument."""
    text = os.fspath(argument)
    return text in ("-B", "-W", "-c", "-m") or not text.startswith("-")


_libc = ctypes.CDLL(None)


def serve(connection: socket.socket) -> dict[str, Any]:
    """Fork for each request; return the request in the new process."""
    os.setpgid(0, 0)  # Ctrl-C is for the programs
    _libc.prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
    while True:
        message, received, _, _ = socket.recv_fds(connection, 1 << 20, 64)
        if not message:
            os._exit(0)
        request = json.loads(message)
        for name in request["modules"]:
            importlib.import_module(name)
        gc.freeze()
        between = os.fork()
        if between:
            if "parent" in request:
                os.waitpid(between, 0)
                os.write(received[0], b"0")
            for file in received:
                os.close(file)
            continue
        connection.close()
        _libc.prctl(PR_SET_NAME, b"python", 0, 0, 0)
        program = os.fork()
        if program:
            os.write(received[0], b"%d" % program)
            if "parent" not in request:
                for file in (0, 1, 2, *received[1:]):
                    os.close(file)
                os.write(received[0], b"%d" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
            os._exit(0)
        if "parent" in request:
            with socket.socket(fileno=os.dup(received[0])) as answers:
                answers.recv(1)  # returns when the one that asked has closed it
            if os.getppid() != request["parent"]:
                os._exit(1)  # it has ended
        if request["group"] is None:
            os.setsid()
        else:
            os.setpgid(0, request["group"])
        Popen.server, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not os.fork():
            Popen.server.close()
            for file in received:
                os.close(file)
            return serve(its)
        its.close()
        os.close(received[0])
        _place(dict(zip(request["files"], received[1:], strict=True)))
        return request


def _place(files: dict[int, int]) -> None:
    """Give open files the numbers that a program expects."""
    above = max(files) + 1
    moved = {number: fcntl.fcntl(file, fcntl.F_DUPFD, above) for number, file in files.items()}
    for file in files.values():
        os.close(file)
    for number, file in moved.items():
        os.dup2(file, number)
        os.close(file)


def become(request: dict[str, Any]) -> None:
    """Run a program in this process as if Python had been started with it."""
    subprocess.Popen = Popen  # type: ignore[misc]
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"], FORK_SERVER=str(Popen.server.fileno()))
    arguments = request["arguments"]
    if arguments[0] == "-B":
        sys.dont_write_bytecode = True
        del arguments[0]
    if arguments[0] == "-W":
        warnings.simplefilter(arguments[1])
        del arguments[:2]
    paths = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = ["", *paths, *sys.path[1:]]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        _run(runpy.run_module, arguments[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    names = vars(main)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
        if sys.version_info >= (3, 13):  # which shows the lines of such a program in tracebacks
            lines = arguments[1].splitlines(keepends=True)
            linecache.cache["<string>"] = (len(arguments[1]), None, lines, "<string>")
    else:
        sys.argv = arguments
        program = names["__file__"] = os.path.abspath(arguments[0])
        sys.path[0] = os.path.dirname(program)
        with open(program, "rb") as file:
            code = compile(file.read(), program, "exec")
    _run(exec, code, names)


def _run(program: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Run the program; after an error end as it does without one, with the traceback from its own frame on."""
    try:
        program(*arguments, **options)
    except Exception as error:
        of_program = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, of_program)
        sys.exit(1)


def end(status: int) -> None:
    """End this process as Python does, but leave its memory to the system: to go through it takes 0.2 seconds."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        become(asked)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        end(ended.code if isinstance(ended.code, int) else ended.code is not None)
    end(0)
