"""The commands `headrace ps` and `headrace stop`, and the list of runs behind them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from headrace.application.listed_runs import listed, listed_runs
from headrace.cli import main
from tests.harness import App, Step
from tests.harness.processes import forking, output_of

# The clock waits now and then: CPython 3.11 does not run the handler of a signal that a thread of NumPy's BLAS was
# given until the main thread has let go of the interpreter's lock.
PROGRAM = """
from headrace import Application, Fragment, PeriodicCondition, op

@op
def clock():
    number = 0
    while True:
        yield number
        number += 1

@op
def show(number):
    if number == 5:
        print("five", flush=True)

class Edge(Fragment):
    def compose(self):
        self.add_operator(clock(self, PeriodicCondition(self, "1ms")))

class Server(Fragment):
    def compose(self):
        self.add_operator(show(self))

class Plant(Application):
    def compose(self):
        self.add_flow(Edge(self, "edge"), Server(self, "server"), {("clock.out", "show.number")})

Plant().run()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs are listed."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "headrace" / "runs"


@contextmanager
def running(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program in a process, until it has shown five numbers."""
    file = tmp_path / "plant.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "headrace", "run", str(file), *options]
    with forking()(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "five\n"
            yield process
        finally:
            process.kill()


def rows(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the rows that `headrace ps` prints."""
    assert main(["ps"]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()[2:]]


def test_a_run_is_listed_while_it_lasts(folder: Path) -> None:
    seen: list[Any] = []

    def compute(step: Any, op_input: Any, op_output: Any) -> None:
        seen.extend(listed_runs())
        step.stop_execution()

    app = App(lambda app: app.add_operator(Step(app, body=compute)))
    app.run()
    (run,) = seen
    assert (run.process, run.name, run.part, run.run) == (os.getpid(), app.name, "", app.run_id)
    assert listed_runs() == []
    assert list(folder.iterdir()) == []


def test_a_list_ends_no_lock_of_its_own_process(tmp_path: Path) -> None:
    with listed("Mine", "1"):
        assert [each.name for each in listed_runs()] == ["Mine"]
        script = "from headrace.application.listed_runs import listed_runs; print(listed_runs()[0].name)"
        for _ in range(2):
            assert output_of("-c", script, forked=True) == "Mine\n"


def test_a_child_that_survives_its_parent_is_not_taken_for_the_run(folder: Path) -> None:
    script = """
import os, time
from headrace.application.listed_runs import listed
with listed("Gone", "1"):
    if os.fork() == 0:
        os.close(1)
        time.sleep(600)
    print(os.getpid(), flush=True)
    os.kill(os.getpid(), 9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            process.wait()
            assert len(list(folder.iterdir())) == 1
            assert listed_runs() == []
            assert list(folder.iterdir()) == []
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_folder_that_others_may_enter_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    with listed("Mine", "1"):
        assert listed_runs() == []
        assert list(folder.iterdir()) == []


def test_the_parts_of_a_run_are_listed_and_stopped_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path, "--processes", "--metrics", "127.0.0.1:0") as process:
        plant, edge, server = rows(capsys)
        assert (plant[0], plant[1]) == ("Plant", str(process.pid))
        assert [edge[:2], server[:2]] == [["Plant", "edge"], ["Plant", "server"]]
        assert len({plant[1], edge[2], server[2]}) == 3
        assert process.stderr is not None
        address = process.stderr.readline().removeprefix("metrics: ").strip().removesuffix("/metrics")
        with urlopen(f"{address}/health") as answer:
            health = json.load(answer)["applications"]["Plant"]
        assert health["process"] == process.pid
        assert health["parts"] == {"edge": int(edge[2]), "server": int(server[2])}
        assert main(["stop", "nobody"]) == 1
        assert "there are Plant (process" in capsys.readouterr().err
        assert main(["stop", "edge"]) == 0  # as SIGTERM to any of its processes
        assert process.wait() == 143
    assert rows(capsys) == []


def test_a_run_is_stopped_by_its_name_or_its_process(tmp_path: Path) -> None:
    with running(tmp_path) as first, running(tmp_path) as second:
        assert main(["stop", "Plant"]) == 1  # which of the two?
        assert main(["stop", str(first.pid)]) == 0
        assert first.wait() == 143
        assert main(["stop", "Plant"]) == 0
        assert second.wait() == 143


def test_a_process_that_does_not_end_in_time_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        assert main(["stop", "Plant", "--timeout", "10ms"]) == 1
        assert f"process {process.pid}) has not ended yet" in capsys.readouterr().err
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 143
