"""A frame passes the files that CONTRIBUTING.md draws, and no others."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import CountCondition, Operator, gpu
from headrace._runtime import is_compiled
from tests.harness import App, Step
from tests.harness.processes import ROOT, output_of

PACKAGE = Path(headrace.__file__).parent
PAGE = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text()
WARM_UP, FRAMES = 120, 30  # the first hundred messages pass `resends`, too
PLAIN = {"contexts/output.py", "contexts/input.py", "scheduling/engine.py"}
WITH_STREAMS = PLAIN | {
    "messages/fences.py",
    "streams/node_streams.py",
    "streams/owners.py",
    "streams/lifetimes.py",
}
CAPTURED = {
    "capture/segment.py",
    "capture/replay.py",
    "capture/graph.py",
    "gpu/executables.py",
    "tensor/lent_arrays.py",
}
SEEN = ("_runtime/", "capture/", "gpu/executables", "tensor/lent_arrays")

pytestmark = [
    pytest.mark.usefixtures("machine"),
    pytest.mark.skipif(is_compiled(), reason="compiled functions are not seen"),
]


def files(kind: str) -> dict[str, float]:
    """Return the files that frames pass from one operator through a second one to a third, and how many of them."""
    found: Counter[str] = Counter()
    inside: set[str] = set()

    def see(frame: Any, event: str, argument: Any) -> None:
        folder, _, file = frame.f_code.co_filename.partition(f"{PACKAGE}/")
        if event == "call" and not folder and file.startswith(SEEN):
            inside.add(file.removeprefix("_runtime/"))

    def emit(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = 1 if kind == "plain" else gpu.arrays().empty(8)
        if self.ticks > WARM_UP:
            inside.clear()
            sys.setprofile(see)
        op_output.emit(frame)

    def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive()
        if self.ticks > WARM_UP:
            sys.setprofile(None)
            found.update(inside)

    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, WARM_UP + FRAMES), outputs=("out",), body=emit, name="source")
        member = Member(app, is_captured=kind == "captured", name="member")
        source >> member >> Step(app, inputs=("in",), body=take, name="sink")
        if kind == "captured":
            app.capture(member, check_every=None)

    try:
        App(compose).run()
    finally:
        sys.setprofile(None)
    return {file: count / FRAMES for file, count in found.items()}


class Member(Operator):
    """Adds one if it is captured, or else passes frames on."""

    capturable = True

    def setup(self, spec: Any) -> None:
        spec.param("is_captured", False)
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive()
        op_output.emit(frame + 1 if self.is_captured else frame)


def usual_files(kind: str) -> set[str]:
    """Return the files that more than one frame in ten passes."""
    return {file for file, share in files(kind).items() if share > 0.1}


def section(title: str) -> str:
    return PAGE.partition(f"## The path of a {title}\n")[2].partition("\n## ")[0]


def test_a_plain_frame_passes_the_files_of_the_page() -> None:
    program = "from tests.test_paths_of_frames import usual_files; print(*usual_files('plain'))"
    # In a process in which nothing uses a device.
    assert set(output_of("-c", program, cwd=ROOT, forked=True).split()) == PLAIN
    assert [file for file in PLAIN if Path(file).name not in section("frame")] == []


def test_a_frame_on_streams_passes_the_files_of_the_page() -> None:
    assert usual_files("streams") == WITH_STREAMS
    assert [
        file for file in WITH_STREAMS if Path(file).name not in section("frame") + section("stream")
    ] == []


def test_a_captured_frame_passes_the_files_of_the_page() -> None:
    assert {file for file in usual_files("captured") if file.startswith(SEEN)} == CAPTURED
    assert [file for file in CAPTURED if file not in section("captured frame")] == []
