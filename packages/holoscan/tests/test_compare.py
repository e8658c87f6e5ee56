"""The comparison with a checkout of the SDK: what it counts, and how."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_holoscan.compare import main
from tests.harness.processes import forking

EXAMPLE = """
from holoscan.core import Application
from holoscan.conditions import CountCondition
from holoscan.operators import PingRxOp, PingTxOp


class Ping(Application):
    def compose(self):
        self.add_flow(PingTxOp(self, CountCondition(self, 1), name="tx"), PingRxOp(self, name="rx"))


if __name__ == "__main__":
    Ping().run()
"""
TESTS = """
import pytest
from holoscan.core import Fragment


@pytest.mark.parametrize("name", ["a", "b"])
def test_names(name):
    assert Fragment(name=name).name == name


class TestOthers:
    def test_fails(self):
        assert False

    def test_is_skipped(self):
        pytest.skip("not now")
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in (
        ("examples/ping/python/ping.py", EXAMPLE),
        (
            "examples/broken/python/broken.py",
            EXAMPLE.replace("    Ping()", "    raise ValueError('so')  #"),
        ),
        ("examples/module.py", "import holoscan"),
        ("tests/unit/test_names.py", TESTS),
        ("tests/unit/test_missing.py", "from holoscan.core import NothingOfThisName"),
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_examples_end_well_and_tests_pass(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "Popen", forking())
    assert main([str(checkout / "examples"), str(checkout / "tests")]) == 0
    printed = capsys.readouterr().out
    assert "| ping/python/ping.py | ends well |" in printed
    assert "| broken/python/broken.py | headrace run: ValueError: so" in printed
    assert "1 of 2 examples end well." in printed
    assert "| unit/test_names.py | 4 | 2 | 1 |" in printed
    assert "| unit/test_missing.py | 1 | 0 | 0 |" in printed
    assert "2 of 5 tests pass, and 1 are skipped." in printed


def test_another_interpreter_says_what_counts(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interpreter without the SDK: nothing ends well there."""
    monkeypatch.setattr(subprocess, "Popen", forking())
    shutil.rmtree(checkout / "examples" / "broken")
    (checkout / "tests" / "unit" / "test_missing.py").unlink()
    bare = checkout / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    main([str(checkout / "examples"), str(checkout / "tests"), "--sdk", str(bare)])
    printed = capsys.readouterr().out
    assert "0 of the 0 that end well on the SDK do." in printed
    assert "0 of the 0 that pass on the SDK do." in printed


def test_a_folder_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nowhere"])
    assert "there is no folder 'nowhere' of examples" in capsys.readouterr().err
