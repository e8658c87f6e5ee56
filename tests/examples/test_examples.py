"""The examples run, and importing the package stays cheap in what it pulls in."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import noisy_neighbour
from headrace import gpu
from headrace.gpu import sim
from headrace.installation import installing
from tests.harness import PATIENCE
from tests.harness.processes import EXAMPLES, environment_of_programs, forking, output_of, run_forked

PLOTTING = ["matplotlib.pyplot", "rich.console", "rich.progress", "rich.table"]


def test_the_first_pipeline_shows_twenty_samples() -> None:
    assert len(output_of(EXAMPLES / "first_pipeline.py").splitlines()) == 20


def test_the_operators_example_loses_nothing_but_previews_that_are_too_slow() -> None:
    shown, _, counts = output_of(EXAMPLES / "operator_classes.py", forked=True).rpartition("dropped: ")
    dropped = ast.literal_eval(counts.partition(" left over: ")[0])
    assert dropped.keys() <= {"preview.frame"}
    assert shown.count("preview") + dropped.get("preview.frame", 0) == 8


def test_the_operators_example_can_be_drawn() -> None:
    assert output_of(EXAMPLES / "operator_classes.py", "--draw", forked=True).startswith("flowchart LR")


def lines_of(example: str, *arguments: str) -> list[str]:
    return output_of("-W", "error", EXAMPLES / example, *arguments, forked=True).splitlines()


def test_the_frames_of_two_cameras_are_paired() -> None:
    *pairs, dropped = lines_of("two_cameras.py")
    assert pairs[:3] == [
        "  0 ms: frames 0 and 0",
        " 33 ms: frames 1 and 2",
        " 60 ms: frames 2 and 3",
    ]
    assert len(pairs) == 9
    assert dropped == "{'unmatched': 6}"


def test_the_plant_prints_the_same_in_one_process_and_in_three() -> None:
    lines = lines_of("plant.py")
    assert lines[0] == "part of 9 x 5 pixels at 0, 0"
    assert lines[-1] == "finished, 25 computes"
    program = ["-W", "error", "-m", "headrace", "run", EXAMPLES / "plant.py", "--processes"]
    assert output_of(*program, forked=True).splitlines() == lines


def test_a_loop_measures_until_the_value_is_steady() -> None:
    assert lines_of("flow_control.py") == [
        *("measured 20", "control reads 20", "measured 95", "alarm: 95"),
        *("measured 40", "measured 31", "measured 30", "steady", "control reads 30", "control reads 30"),
    ]


def test_two_flows_run_on_two_slices() -> None:
    assert lines_of("parallel_slices.py") == [
        "NVIDIA H200 (simulated): 132 SMs",
        "flow 0: 16 SMs (16 asked for), 10 of 10 results right",
        "flow 1: 40 SMs (40 asked for), 10 of 10 results right",
    ]


def test_two_flows_say_what_their_slices_really_have() -> None:
    program = EXAMPLES / "parallel_slices.py"
    lines = output_of(program, "--sms", "8", "30", "--count", "3", forked=True).splitlines()  # rounding warns
    assert lines[1:] == [
        "flow 0: 8 SMs (8 asked for), 3 of 3 results right",
        "flow 1: 32 SMs (30 asked for), 3 of 3 results right",
    ]


@pytest.mark.parametrize(
    ("flags", "kind", "sms"),
    [
        ([], "a stream of its own", [132, 132, 132, 132]),
        (["--green-context"], "a stream of its own", [16, 16, 40, 40]),
        (["--default-stream"], "the default stream", [132, 132, 132, 132]),
        (["--default-stream", "--green-context"], "the default stream", [132, 132, 132, 132]),
    ],
    ids=["plain", "green context", "default stream", "both"],
)
def test_two_sources_are_combined(flags: list[str], kind: str, sms: list[int]) -> None:
    names = ["source1", "source2", "combiner", "receiver"]
    assert lines_of("combine_streams.py", "--count", "7", *flags) == [
        "NVIDIA H200 (simulated): 132 SMs",
        *(f"{name}: {kind}, {count} SMs" for name, count in zip(names, sms, strict=True)),
        "7 of 7 results right",
    ]


def test_a_chain_is_captured_and_nothing_else_changes() -> None:
    device, without, captured, report = lines_of("captured_chain.py", "--count", "40")
    assert device == "NVIDIA H200 (simulated)"
    assert without == "without capture: 40 of 40 results right"
    assert captured == "captured: 40 of 40 results right"
    assert report.startswith(
        "segment 'enhance' (dark, flat, balance, contrast, tone): captured; 39 of 40 frames replayed in "
    )


def test_the_noisy_neighbour_makes_its_point_and_says_that_it_is_simulated(tmp_path: Path) -> None:
    picture, again = tmp_path / "plots" / "demo.png", tmp_path / "again.png"
    program, saved = EXAMPLES / "noisy_neighbour.py", tmp_path / "demo.json"
    arguments = "--frames", "100", "--out", picture, "--save", saved
    out = output_of("-W", "error", program, *arguments, forked=True, modules=PLOTTING)
    assert "SIMULATED, not measured, 100 critical frames" in out
    assert "p99 is 15.0 times what it is alone; on its own 16 SMs it is 1.0 times. Wrong frames: 0." in out
    assert f"These figures are SIMULATED, not measured, in virtual time. The plot is in {picture}." in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    # What was saved is reported again, without running.
    table = out[out.index("NVIDIA H200") : out.index("The plot is in")]
    assert table in output_of(program, "--load", saved, "--out", again, forked=True, modules=PLOTTING)
    assert again.read_bytes() == picture.read_bytes()


def test_a_slice_brings_the_critical_flow_back_to_normal() -> None:
    with sim.Machine("h200"):
        rows = {(row.case, row.flow): row for row in noisy_neighbour.run(100)}
    alone, beside, apart = (rows[case, "critical"] for case in noisy_neighbour.CASES)
    assert [row.sms for row in rows.values()] == [132, 132, 132, 16, 116]
    assert beside.percentile(99) > 10 * alone.percentile(99)
    assert apart.percentile(99) < 1.05 * alone.percentile(99)
    assert [row.wrong for row in rows.values()] == [0] * 5
    assert all(row.rate == pytest.approx(400, rel=0.01) for row in (alone, beside, apart))
    assert rows["own SMs", "noisy"].rate > 0.85 * rows["shared SMs", "noisy"].rate


def test_the_noisy_neighbour_would_see_wrong_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")  # and is not ordered after it
        stream = context.allocate_cuda_stream("mine").stream
        length, number = np.int32(self.load.blocks), np.int64(self.received)
        gpu.launch(stream, self.config, self.kernel, frame, length, number, self.count, noisy_neighbour.LATE)
        self.received += 1

    monkeypatch.setattr(noisy_neighbour.Receiver, "compute", compute)
    with sim.Machine("h200"):
        assert noisy_neighbour.run(20)[0].wrong > 15


def test_the_isolation_benchmark_says_that_it_is_simulated(tmp_path: Path) -> None:
    picture = tmp_path / "isolation.png"
    out = output_of(
        "-m", "benchmarks.isolation", "--times", "2", "--out", picture, forked=True, modules=PLOTTING
    )
    assert f"These figures are SIMULATED, not measured, in virtual time. The plot is in {picture}." in out
    assert picture.exists()


@pytest.mark.parametrize("lacking", ["rich", "matplotlib"])
def test_the_noisy_neighbour_says_what_it_lacks_before_it_works(lacking: str, tmp_path: Path) -> None:
    program = EXAMPLES / "noisy_neighbour.py"
    code = (
        f"import sys, runpy; sys.modules[{lacking!r}] = None; sys.path.insert(0, {str(EXAMPLES)!r}); "
        f"sys.argv = [{str(program)!r}]; runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    done = run_forked("-c", code, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"noisy_neighbour.py needs {lacking}: ")
    assert line.endswith(f"; {installing('demo')}")
    assert not list(tmp_path.iterdir())


def test_importing_headrace_imports_nothing_heavy() -> None:
    heavy = {"cuda", "cupy", "torch", "yaml", "asyncio", "rich", "matplotlib"}
    assert output_of("-c", f"import sys, headrace; print({heavy!r} & set(sys.modules))").strip() == "set()"


def test_one_program_receives_what_another_publishes(tmp_path: Path) -> None:
    topics = str(tmp_path / "topics")
    camera = forking()(
        [sys.executable, str(EXAMPLES / "topics.py"), "camera"],
        env=environment_of_programs(HEADRACE_TOPICS=topics),
    )
    try:
        out = output_of(
            EXAMPLES / "topics.py", "brightness", forked=True, HEADRACE_TOPICS=topics, HEADRACE_COUNT="2"
        )
    finally:
        camera.kill()
        camera.wait(PATIENCE)
    first, second = (re.fullmatch(r"frame (\d+): brightness (\d+)", line) for line in out.splitlines())
    assert first is not None
    assert second is not None
    assert int(first[1]) < int(second[1])
