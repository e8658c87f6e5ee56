"""``import holoscan`` gives headrace, in a process that asks for it."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import run_forked

PROGRAM = """
import holoscan
import holoscan as hs
from holoscan.core import Application, Operator
from holoscan.conditions import CountCondition
from holoscan.operators import PingRxOp, PingTxOp
import holoscan.core, headrace_holoscan.core

class Ping(Application):
    def compose(self):
        self.add_flow(PingTxOp(self, CountCondition(self, 3), name="tx"), PingRxOp(self, name="rx"))

if __name__ == "__main__":
    assert holoscan.core is headrace_holoscan.core
    assert holoscan.core.__spec__.name == "headrace_holoscan.core"
    assert hs.as_tensor is holoscan.as_tensor
    Ping().run()
"""


def run(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "app.py").write_text(PROGRAM)
    return run_forked(*(("-m", *command) if command else ()), tmp_path / "app.py")


def test_a_program_that_imports_holoscan_runs(tmp_path: Path) -> None:
    for command in (("headrace", "run"), ("headrace_holoscan",), ()):
        done = run(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [f"Rx message value: {n}" for n in (1, 2, 3)]


def test_what_follows_the_program_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    monkeypatch.setattr(sys, "argv", ["holoscan", "app.py", "-v", "3"])
    monkeypatch.setattr("headrace.cli.main", given.append)
    with pytest.raises(SystemExit):
        runpy.run_module("headrace_holoscan", run_name="__main__")
    assert given == [["run", "app.py", "--", "-v", "3"]]
