"""A server that has imported headrace, and forks for each program, which so starts without its imports.

`tests.harness.processes.run_forked` starts it, as a script, and asks it. A request is a message on a Unix socket:
the program, its arguments, folder and environment, with the files for what it prints. The answers are the id of its
process, and its exit status once it has ended. One program runs at a time.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import traceback
import warnings
from types import ModuleType
from typing import Any

# What many programs import. None of these starts a thread, which would not survive a fork.
MODULES = (
    *(
        "numpy",
        "yaml",
        "asyncio",
        "headrace.notebook",
        "headrace.operators",
        "headrace.testing",
        "headrace.viewer",
    ),
    *(
        "headrace.gpu.sim.backend",
        "headrace.gpu.capture",
        "headrace.gpu.declared_kernels",
        "headrace.tensor.copies",
    ),
    *(
        "headrace.observe.events.recorder",
        "headrace.observe.figures.statistics_watcher",
        "headrace.resources",
    ),
)


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return the request in the new process, and None in the server at its end."""
    while True:
        message, files, _, _ = socket.recv_fds(connection, 1 << 20, 2)
        if not message:
            return None
        request = json.loads(message)
        for name in request["modules"]:
            importlib.import_module(name)
        gc.freeze()
        pid = os.fork()
        if not pid:
            connection.close()
            for number, file in enumerate(files, 1):
                os.dup2(file, number)
                os.close(file)
            return request
        for file in files:
            os.close(file)
        connection.send(b"%d" % pid)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def become(request: dict[str, Any]) -> None:
    """Run a program in this process as if Python had been started with it."""
    gc.unfreeze()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    arguments = request["arguments"]
    if arguments[0] == "-W":
        warnings.simplefilter(arguments[1])
        del arguments[:2]
    paths = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = ["", *paths, *sys.path[1:]]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    names = vars(main)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.argv = arguments
        program = names["__file__"] = os.path.abspath(arguments[0])
        sys.path[0] = os.path.dirname(program)
        with open(program, "rb") as file:
            code = compile(file.read(), program, "exec")
    try:
        exec(code, names)
    except Exception as error:  # of the program: the traceback begins with its own frame
        of_program = error.__traceback__.tb_next if error.__traceback__ else None
        traceback.print_exception(type(error), error, of_program)
        sys.exit(1)


if __name__ == "__main__":
    for name in MODULES:
        importlib.import_module(name)
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        become(asked)
