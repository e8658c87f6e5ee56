"""headrace run --capture, and how captured segments are drawn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli import main
from tests.observe.test_progress_line import Terminal

PROGRAM = """
from headrace import Application
from tests.harness.segments import branches, chain


class Live(Application):
    def compose(self):
        chain(self, 12)
        {then}
"""


@pytest.fixture
def app(folder: Path, machine: object) -> str:
    (folder / "app.py").write_text(PROGRAM.format(then=""))
    return "app.py"


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.splitlines()


def test_what_became_of_the_segments_is_printed_if_capture_is_asked_for(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", app, "--capture", "strict"]) == 0
    (line,) = said(capsys)
    assert line.startswith("segment 'middle' (one, two, three): captured; 11 of 12 frames replayed in ")
    assert main(["run", app, "--capture", "off"]) == 0
    assert said(capsys) == ["segment 'middle' (one, two, three): off"]
    assert main(["run", app, "--capture", "verify"]) == 0
    (line,) = said(capsys)
    assert line.startswith("segment 'middle' (one, two, three): captured; 11 of 12 frames replayed")


def test_capture_auto_finds_chains_by_itself(
    folder: Path, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    then = "self._headrace.segments.clear(); self.sink.capturable = 'it works on the host'"
    (folder / app).write_text(PROGRAM.format(then=then))
    assert main(["run", app]) == 0
    assert said(capsys) == []
    assert main(["run", app, "--capture", "auto"]) == 0
    (line,) = said(capsys)
    assert line.startswith("segment 'one...three' (one, two, three): captured")


def test_a_refusal_is_an_error_if_capture_is_strict(
    folder: Path, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / app).write_text(PROGRAM.format(then="self.stages[0].on_error = 'skip'"))
    assert main(["run", app, "--capture", "strict"]) == 1
    assert "CaptureError: segment 'middle' is not captured" in said(capsys)[0]


def test_the_last_lines_on_a_terminal_have_the_segments_once(
    app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["run", app, "--capture", "strict"]) == 0
    *_, outcome, segment = (
        terminal.getvalue().replace("\r\x1b[K", "\n").splitlines()
    )  # it may show progress first
    assert outcome.startswith("'Live' finished after ")
    assert outcome.endswith("60 computes, 1 of 1 segment captured")
    assert segment.startswith("segment 'middle' (one, two, three): captured")
    assert terminal.getvalue().count("segment 'middle'") == 1


def test_the_log_has_the_segments_once(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", app, "--capture", "strict", "--log-level", "info"]) == 0
    assert sum("segment 'middle'" in line for line in said(capsys)) == 1
