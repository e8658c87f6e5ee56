"""The examples in the docstring of the harness, and what `Step` passes to its body."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import (
    PATIENCE,
)
from tests.harness.processes import forking, run_forked, run_python

PROGRAM = """
import os, sys, warnings
import headrace
print(__name__, sys.argv[1:], os.getcwd(), os.environ["COLOUR"], "HOME" in os.environ, flush=True)
print("said aside", file=sys.stderr)
def end(how):
    match how:
        case "raise": raise ValueError("as asked")
        case "exit": sys.exit(3)
        case "warn": warnings.warn("as asked")
end(sys.argv[1])
"""


@pytest.mark.turns("form")
@pytest.mark.parametrize("how", ["return", "raise", "exit", "warn"])
@pytest.mark.parametrize("form", ["file", "-c"])
def test_a_forked_program_does_what_one_of_its_own_process_does(how: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    named = ["program.py"] if form == "file" else ["-c", PROGRAM]
    alone, forked = (
        python("-W", "error", *named, how, cwd=tmp_path, COLOUR="red", HOME=None)
        for python in (run_python, run_forked)
    )
    assert forked.stdout.startswith("__main__ ")
    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_a_module_that_raises_ends_like_a_program(tmp_path: Path) -> None:
    """The interpreter does not go through its memory: what a library left there may wait for threads."""
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_forked("-m", "program", "raise", cwd=tmp_path, COLOUR="red")
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: as asked\n")
    assert "fork_server" not in done.stderr


CHILD = """
import os, subprocess, sys

print(os.getppid(), os.getpgrp() == os.getpid(), os.read(int(sys.argv[1]), 1), flush=True)
subprocess.run([sys.executable, "-c", "import os; print(os.getppid(), flush=True)"])
sys.stdin.read(1)
sys.exit("no more")
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_forked_process_is_a_child_like_any_other(is_killed: bool) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x")
    command = [sys.executable, "-c", CHILD, str(reading)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with forking()(command, text=True, pass_fds=[reading], process_group=0, **pipes) as process:
        assert process.stdout.readline() == f"{os.getpid()} True b'x'\n"
        assert process.stdout.readline() == f"{process.pid}\n"
        if is_killed:
            process.kill()
        rest = process.communicate("x", timeout=PATIENCE)
    assert (process.returncode, *rest) == ((-signal.SIGKILL, "", "") if is_killed else (1, "", "no more\n"))
    os.close(reading)
    os.close(writing)
