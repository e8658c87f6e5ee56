"""``headrace check``: the lint of captured operators, as a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main

PROGRAM = """\
from headrace import Application, CountCondition, Operator, op

@op
def numbers():
    yield from range(3)

class Blur(Operator):
    capturable = True
    {attribute}

    def setup(self, spec):
        spec.input("in")
        {declared}

    def compute(self, op_input, op_output, context):
        op_input.receive("in")
        print(self.gain)

class App(Application):
    def compose(self):
        self.add_flow(numbers(self), Blur(self, name="blur"))

App().run()
"""


def write(folder: Path, attribute: str, declared: str) -> None:
    (folder / "app.py").write_text(PROGRAM.format(attribute=attribute, declared=declared))


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_not_declared_is_listed_with_its_line(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(in_folder, "gain = 2.0", "pass")
    assert main(["check", "app.py"]) == 1
    first, contract, last = capsys.readouterr().out.splitlines()
    assert first.endswith("app.py:17: operator 'blur': compute reads `self.gain`, which is not declared")
    assert contract.startswith("The contract: a captured operator's result depends on its messages")
    assert last == "1 findings in 1 operators that may be captured"


def test_a_program_that_declares_what_it_uses_is_right(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(in_folder, "", 'spec.param("gain", 2.0)')
    assert main(["check", "app.py"]) == 0
    assert capsys.readouterr().out.splitlines() == ["0 findings in 1 operators that may be captured"]


def test_a_program_that_runs_nothing_is_an_error(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "app.py").write_text("x = 1\n")
    assert main(["check", "app.py"]) == 2
    assert "nothing to check" in capsys.readouterr().err
