"""The check of a step's instructions says what is dearer, and by how much it may be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import instructions


@pytest.mark.parametrize(
    ("now", "is_dearer"), [(10_000, False), (10_299, False), (10_301, True), (5_000, False)]
)
def test_more_than_the_margin_fails(
    now: int, is_dearer: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path("/other")

    def counted(source: Path, is_tracked: bool, folder: Path) -> float:
        return 10_000 if source == other / "src" else now

    monkeypatch.setattr(instructions, "per_step", counted)
    assert instructions.compare(other) is is_dearer
    assert capsys.readouterr().out.startswith(f"a step: {now:,} instructions, {now / 10_000:.3f} of 10,000")


@pytest.mark.parametrize("is_tracked", [False, True])
def test_the_program_whose_instructions_are_counted_runs(is_tracked: bool, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    text = instructions.PROGRAM.format(last=4, length=5, tracked=is_tracked)
    program.write_text(text + "\nprint(app.outcome.computes)\n")
    environment = instructions._environment(instructions.ROOT / "src", tmp_path)
    done = subprocess.run(
        [sys.executable, program, "3"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "15"


def test_a_machine_without_valgrind_skips_the_check_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["instructions"])
    assert instructions.main() == 0
    assert capsys.readouterr().out == "skipped: valgrind is not installed\n"
