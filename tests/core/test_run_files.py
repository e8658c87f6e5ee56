"""The files of a run: what starts again goes on in another file, and a run replaces those of the run before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.run_files import PART_RESTARTS, path_of_start


def started(restarts: int) -> Any:
    """Return what is known of an operator that has been started again so often."""
    counts = SimpleNamespace(restarts=restarts)
    return SimpleNamespace(_headrace=SimpleNamespace(node=SimpleNamespace(counts=counts)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "run.mp4"
    path.touch()
    return path


def test_the_first_start_replaces_the_file_of_the_run_before(path: Path) -> None:
    assert path_of_start(path, started(0)) == path_of_start(path) == path


def test_a_further_start_of_an_operator_takes_the_first_free_name(path: Path) -> None:
    assert path_of_start(path, started(1)).name == "run-2.mp4"
    path.with_name("run-2.mp4").touch()
    assert path_of_start(path, started(1)).name == "run-3.mp4"


@pytest.mark.parametrize(("name", "second"), [("a.1.mp4", "a.1-2.mp4"), ("a.1.csv.gz", "a.1-2.csv.gz")])
def test_the_number_stands_before_what_says_the_kind_of_the_file(
    name: str, second: str, tmp_path: Path
) -> None:
    (tmp_path / name).touch()
    assert path_of_start(tmp_path / name, started(1)).name == second


def test_what_wrote_nothing_before_takes_the_name_itself(path: Path) -> None:
    path.unlink()
    assert path_of_start(path, started(1)) == path


def test_a_part_that_was_started_again_keeps_every_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PART_RESTARTS, "1")
    assert path_of_start(path, started(0)).name == path_of_start(path).name == "run-2.mp4"
