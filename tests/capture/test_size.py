"""Capture stays small: its lines, the words of its page, and the files that a frame passes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import headrace
from headrace._runtime import is_compiled
from headrace.capture.segment import CapturedSegment
from tests.harness import App
from tests.harness.segments import chain

PACKAGE = Path(headrace.__file__).parent
# From the messages of a frame to the launch of its graph; CONTRIBUTING describes it.
WALK = (
    "capture/segment.py",
    "capture/replay.py",
    "capture/graph.py",
    "gpu/executables.py",
)


def test_capture_has_at_most_3300_lines() -> None:
    files = (PACKAGE / "capture").rglob("*.py")  # with the lint and direct computes
    assert sum(len(file.read_text().splitlines()) for file in files) <= 3_300


@pytest.mark.skipif(is_compiled(), reason="calls between compiled files are not seen")
@pytest.mark.usefixtures("machine")
def test_a_replayed_frame_passes_few_files_in_one_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[set[tuple[str, str]]] = []
    compute = CapturedSegment.compute

    def followed(self: CapturedSegment, *arguments: Any) -> None:
        calls.append(set())
        sys.setprofile(note)
        try:
            compute(self, *arguments)
        finally:
            sys.setprofile(None)

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_back is not None:
            caller, called = place_of(frame.f_back), place_of(frame)
            if caller != called:
                calls[-1].add((caller, called))

    monkeypatch.setattr(CapturedSegment, "compute", followed)
    app: Any = App(chain)
    app.run()
    assert app.segment.replayed == 19
    ways = {
        (one, two) for one, two in calls[-1] if one in WALK and (two in WALK or two.startswith("capture/"))
    }
    assert {two for _, two in ways} == set(WALK[1:])  # and no other file of capture
    assert all(WALK.index(one) < WALK.index(two) for one, two in ways)
    assert len(WALK) <= 6


def place_of(frame: FrameType) -> str:
    """Return the file of a call, below the package if it is there."""
    return frame.f_code.co_filename.removeprefix(f"{PACKAGE}/")
