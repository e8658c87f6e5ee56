"""Fragments in processes of their own: real processes, which end as one process would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli import main
from tests.harness import PATIENCE, wait_until
from tests.harness.logs import logging_of_a_program
from tests.harness.processes import environment_of_programs, output_of

PLANT = str(Path(__file__).with_name("plant.py"))
SHOWN = [f"shown: {10 * number}" for number in range(5)]


@pytest.fixture(scope="module")
def byte_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("byte_code")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, byte_code: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, logging as a program finds it, and byte code that all processes share."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_DEVICE", "sim")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(byte_code))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    with logging_of_a_program():
        yield


def children() -> set[str]:
    return {
        child
        for task in os.listdir("/proc/self/task")
        for child in Path(f"/proc/self/task/{task}/children").read_text().split()
    }


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = children(), len(os.listdir("/proc/self/fd"))
    yield
    assert (children(), len(os.listdir("/proc/self/fd"))) == before


def run(*arguments: str, options: tuple[str, ...] = ()) -> int:
    """Run the program in processes; return the exit status of the command."""
    return main(["run", PLANT, "--processes", *options, "--", *arguments])


def lines(capfd: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    captured = capfd.readouterr()
    return captured.out.splitlines(), captured.err


@pytest.mark.parametrize("link", ["", "tcp"])
def test_the_program_prints_the_same_in_one_process_and_in_several(
    link: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_LINK", link)
    assert main(["run", PLANT]) == 0
    alone = lines(capfd)
    assert alone[0] == ["begins", *SHOWN, "finished 16 0 {} {}"]
    assert run() == 0
    assert lines(capfd) == alone
    assert os.listdir(".") == []


@pytest.mark.parametrize("moment", ["import", "compose", "start", "run", "stop"])
def test_a_killed_process_ends_the_run(moment: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"kill@{moment}") == 1
    out, err = lines(capfd)
    assert "PartLost: part 'b': its process " in err
    assert " was ended by SIGKILL " in err
    assert out == ["begins", *(SHOWN[:2] if moment == "run" else SHOWN if moment == "stop" else [])]


@pytest.mark.parametrize("moment", ["import", "start", "run"])
def test_an_error_comes_out_as_itself(moment: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"raise@{moment}") == 1
    err = lines(capfd)[1]
    assert err.startswith("headrace run: LookupError: no such part number; ")
    assert "raised in the process of part 'b'; " in err
    assert os.listdir(".") == []


@pytest.mark.parametrize(("name", "status"), [("int", 130), ("term", 143)])
@pytest.mark.parametrize("moment", ["import", "run"])
def test_a_signal_to_any_process_ends_all_with_its_status(name: str, status: int, moment: str) -> None:
    assert run(f"{name}@{moment}") == status
