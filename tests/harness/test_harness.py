"""The examples in the docstring of the harness, and what `Step` passes to its body."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import CountCondition
from headrace.gpu import sim
from headrace.resources import MachineClock, ManualClock
from tests.harness import (
    PATIENCE,
    App,
    Consumer,
    MakeScheduler,
    Producer,
    Step,
    fork_server,
    run,
    sink,
    source,
    wait_until,
)
from tests.harness.processes import forking, run_forked, run_python


def test_a_sink_receives_what_a_source_emits(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        app.add_flow(source(app, [1, 2, 3]), sink(app, taken))

    assert isinstance(run(compose, scheduler).scheduler().clock, ManualClock)
    assert taken == [1, 2, 3]


def test_a_consumer_reads_what_a_producer_wrote(machine: sim.Machine) -> None:
    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), app.consumer)

    app = run(compose)
    assert isinstance(app.scheduler().clock, MachineClock)
    assert app.consumer.seen == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (lambda self, op_input, op_output: self.given.append(3), 3),
        (lambda self, op_input, op_output, context: self.given.append(4), 4),
        (lambda self, op_input, op_output, default=3: self.given.append(default), 3),
        (lambda self, *rest: self.given.append(1 + len(rest)), 4),
    ],
)
def test_a_body_is_passed_the_context_if_it_takes_it(body: Any, count: int) -> None:
    def compose(app: Any) -> None:
        app.step = Step(app, CountCondition(app, 1), body=body)
        app.step.given = []
        app.add_operator(app.step)

    assert run(compose).step.given == [count]


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


def test_a_forked_program_can_be_a_module(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_forked("-m", "program", "exit", cwd=tmp_path, COLOUR="red")
    assert done.returncode == 3
    assert done.stdout.startswith(f"__main__ ['exit'] {tmp_path} red")


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


def test_what_is_not_python_is_started_as_usual() -> None:
    assert forking()(["false"]).wait(PATIENCE) == 1


def test_a_forked_program_begins_when_the_one_that_asked_adopts_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that asked would get the children of a program that is killed before, and nobody waits for them."""
    begun = tmp_path / "begun"
    popen, asked = forking(), fork_server.ask
    had_begun: list[bool] = []

    def ask(*given: Any, **request: Any) -> Iterator[int]:
        with closing(asked(*given, **request)) as answers:
            yield (pid := next(answers))
            is_adopted = next(answers)
            # It sleeps soon; one that does not wait runs until it ends.
            wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "SZ", "a wait")
            had_begun.append(begun.exists())
            yield is_adopted

    monkeypatch.setattr(fork_server, "ask", ask)
    with popen([sys.executable, "-c", f"open({str(begun)!r}, 'w').close()"]) as process:
        assert process.wait(PATIENCE) == 0
    assert had_begun == [False]
    assert begun.exists()
