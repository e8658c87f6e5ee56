"""The demo: an endoscope with a control loop beside it, on the simulated device."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import endoscope
from examples.shared import endoscope_kernels, endoscope_report, segmentation_model
from examples.shared.progress import Progress
from headrace import gpu
from headrace.gpu import sim
from headrace.installation import installing
from tests.harness.processes import EXAMPLES, ROOT, run_forked

for needed in ("onnx", "onnxruntime", "PIL"):
    pytest.importorskip(needed)

# What the program imports, and takes longer to import than it runs.
MODULES = ["matplotlib.pyplot", "onnx", "onnxruntime", "rich.console", "rich.progress", "rich.table"]

SETTINGS = endoscope.Settings(3840, 2160, 60.0, 0.15)  # 9 frames and 17 steps of the control loop


@pytest.fixture(scope="module")
def result() -> tuple[endoscope.Report, np.ndarray]:
    report, picture = endoscope.measure(SETTINGS)
    return report, picture


def copy_image(out: np.ndarray, image: np.ndarray, *sizes: int) -> None:
    out[:] = image


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[endoscope.Network]:
    """The network, while the simulated machine is there; it finds the discs with the noise, too."""
    quick: Any = gpu.kernel(
        "denoise", source="", seconds=endoscope_kernels._denoise_seconds, effect=copy_image
    )
    monkeypatch.setattr(endoscope, "DENOISE", quick)
    with sim.Machine("h200"):
        yield endoscope.choose_network(tmp_path)


def run_case(name: str, network: endoscope.Network, frames: int = 5) -> endoscope_report.Case:
    settings = endoscope.Settings(960, 540, 60.0, frames / 60)
    return endoscope.run_case(name, settings, network)[0]


def report_of(case: endoscope_report.Case) -> endoscope_report.Report:
    return endoscope_report.Report("", False, 960, 540, 60.0, 5 / 60, 9.0, [case])


def test_on_its_own_sms_the_control_loop_misses_no_deadline(result: Any) -> None:
    report, _ = result
    shared, own = report.cases
    assert [(case.vision_sms, case.control_sms) for case in (shared, own)] == [(132, 132), (124, 8)]
    assert len(shared.control) == len(own.control) == SETTINGS.ticks == 17
    assert 0 < report.misses(shared) < SETTINGS.ticks // 2
    assert report.causes(shared) == (report.misses(shared), 0)
    assert report.misses(own) == 0
    assert max(own.control) < 0.05


def test_a_step_that_waits_for_the_noise_reduction_waits_on_the_gpu(result: Any) -> None:
    for case in result[0].cases:
        assert len(case.on_gpu) == len(case.begun) == len(case.control)
        assert max(case.begun) == 0
        np.testing.assert_allclose(case.on_gpu, case.control, atol=0.02)  # all but the launch and the report


def test_every_frame_is_scored_and_right(result: Any) -> None:
    report, _ = result
    for case in report.cases:
        assert (case.sent, case.scored, case.unscored, case.late, case.wrong) == (9, 9, 0, 0, 0)
        assert case.common > 0.9
        assert case.rate == pytest.approx(60, rel=0.01)
        assert len(case.latencies) == len(case.denoise) == 9
        assert case.network == "ONNX Runtime (CPUExecutionProvider)"


def test_headroom_is_what_is_left_of_the_frame_period(result: Any) -> None:
    report, _ = result
    for case in report.cases:
        # 32,400 blocks of the noise reduction, eight on each SM, are most of a frame's time.
        waves, taps = -(-32_400 // (8 * case.vision_sms)), 41**2
        expected = waves * taps * endoscope_kernels.TAP_SECONDS * 1e3
        assert min(case.denoise) == pytest.approx(expected, rel=0.02)
        assert expected < min(case.latencies) < expected + 2
        assert report.headroom(case) == pytest.approx(1 - np.percentile(case.latencies, 99) * 0.06)


def test_a_run_is_the_same_every_time(network: endoscope.Network) -> None:
    assert run_case("own SMs", network) == run_case("own SMs", network)


def test_the_picture_shows_what_the_network_found(result: Any) -> None:
    _, picture = result
    camera = endoscope.CameraSimOp(
        endoscope.Endoscope(SETTINGS, endoscope.Network("onnxrt", Path(), True), partitioned=False),
        width=480,
        height=270,
        frame_rate=60.0,
        objects=endoscope.DISCS,
    )
    truth = camera.truth(SETTINGS.frames - 1).objects
    assert len(truth) == endoscope.DISCS
    width, height = endoscope.VIEW
    assert picture.shape == (height, width, 3)
    layer, color = endoscope.LAYERS[1]["opacity"], np.array(endoscope.COLORS[1][:3]) * 255
    for one in truth:
        found = picture[round(one.y * height / 270), round(one.x * width / 480)]
        expected = layer * color + (1 - layer) * np.array(one.color)
        assert np.abs(found - expected).max() < 12, one


def test_a_wrong_frame_is_counted(network: endoscope.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    number = itertools.count()

    def third_is_blank(out: np.ndarray, image: np.ndarray, *sizes: int) -> None:
        out[:] = 90 if next(number) == 2 else image

    kernel: Any = gpu.kernel("denoise", source="", seconds=1e-6, effect=third_is_blank)
    monkeypatch.setattr(endoscope, "DENOISE", kernel)
    case = run_case("own SMs", network)
    assert (case.wrong, case.scored, case.common) == (1, 5, 0.0)


def test_a_network_that_finds_nothing_is_wrong_in_every_frame(
    network: endoscope.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.segmentation_model.THRESHOLD", 2.0)
    blind = endoscope.choose_network(network.path.parent)
    case = run_case("shared SMs", blind)
    assert (case.wrong, case.scored) == (5, 5)


def test_a_missed_deadline_is_counted(network: endoscope.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = itertools.count()
    slow: Any = gpu.kernel("steer", source="", seconds=lambda *_: 11e-3 if next(tick) == 4 else 1e-6)
    monkeypatch.setattr(endoscope, "STEER", slow)
    case = run_case("own SMs", network)
    report = report_of(case)
    assert (report.misses(case), report.causes(case)) == (1, (1, 0))
    assert case.control[4] > 11
    assert 2 < case.control[5] < 2.1  # it waited for the slow one, and was still in time
    assert 2 < case.on_gpu[5] < 2.1
    assert max(case.on_gpu[:4] + case.on_gpu[6:]) < 0.05


def test_a_deadline_that_the_host_missed_is_not_the_gpus(
    network: endoscope.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, number = endoscope.Score.compute, itertools.count()

    def compute(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        original(self, op_input, op_output, context)
        if next(number) == 2:
            sim.current_machine().sleep(20e-3)  # on the only thread: no step is launched meanwhile

    monkeypatch.setattr(endoscope.Score, "compute", compute)
    case = run_case("own SMs", network)
    report = report_of(case)
    assert report.misses(case) >= 1
    assert report.causes(case) == (0, report.misses(case))
    assert max(case.begun) > 9
    assert max(case.on_gpu) < 0.05
    assert (
        f"(0 due to the GPU, {report.misses(case)} due to the host)"
        in replace(report, cases=[case, case]).conclusion()
    )


@pytest.mark.parametrize(
    ("latency", "on_gpu", "expected"),
    [(9.0, 9.0, (0, 0)), (9.1, 4.6, (1, 0)), (9.1, 4.5, (0, 1)), (30.0, 11.0, (0, 1)), (30.0, 19.0, (1, 0))],
)
def test_the_longer_part_of_a_missed_step_is_its_cause(
    result: Any, latency: float, on_gpu: float, expected: tuple[int, int]
) -> None:
    case = replace(result[0].cases[0], control=[0.1, latency], on_gpu=[0.1, on_gpu])
    assert report_of(case).causes(case) == expected


def test_a_file_without_the_times_of_the_gpu_can_be_loaded(result: Any, tmp_path: Path) -> None:
    report, picture = result
    saved = tmp_path / "samples.json"
    endoscope_report.save(report, picture, saved)
    assert asdict(endoscope_report.load(saved)[0]) == asdict(report)
    content = json.loads(saved.read_text())
    for case in content["cases"]:
        del case["on_gpu"]
    saved.write_text(json.dumps(content))
    older, _ = endoscope_report.load(saved)
    assert endoscope_report.rows(older) == endoscope_report.rows(report)


def test_a_frame_that_never_arrives_is_counted(
    network: endoscope.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = endoscope.Denoise.compute

    def compute(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        if len(self.events) == 3:
            op_input.receive("in")
            self.events.append(self.events[0])
        else:
            original(self, op_input, op_output, context)

    monkeypatch.setattr(endoscope.Denoise, "compute", compute)
    case = run_case("own SMs", network)
    assert (case.sent, case.scored, case.unscored, case.wrong) == (5, 4, 1, 0)


@pytest.mark.thorough  # exporting a program takes seconds
def test_the_network_is_the_same_in_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from headrace.inference import load_model

    onnx = load_model(segmentation_model.build(tmp_path / "discs.onnx", 32, 48))
    program = load_model(segmentation_model.build_torch(tmp_path / "discs.pt2", 32, 48), backend="torch")
    frame = np.random.default_rng(3).random((1, 32, 48, 3), np.float32)
    with torch.no_grad():
        (ours,), (theirs,) = (model.run_on_host([frame]) for model in (onnx, program))
    np.testing.assert_allclose(np.asarray(theirs), np.asarray(ours), atol=1e-6)


def run_program(lacking: str, *arguments: object, cwd: Path, device: str = "sim") -> Any:
    """Run the program where a module cannot be imported."""
    program = EXAMPLES / "endoscope.py"
    code = (
        f"import sys, runpy; sys.modules[{lacking!r}] = None; sys.path.insert(0, {str(EXAMPLES)!r}); "
        f"sys.argv[0] = {str(program)!r}; runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    arguments = "-W", "error", "-c", code, *arguments
    return run_forked(*arguments, cwd=cwd, modules=MODULES, HEADRACE_DEVICE=device)


def test_the_program_reports_and_reports_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_SIM_TIME", "virtual")  # the program sets it, too
    saved, first, again = tmp_path / "samples.json", tmp_path / "plots" / "first.png", tmp_path / "again.png"
    arguments = "--seconds", "0.1", "--save", saved, "--out", first
    done = run_program("cuda", *arguments, cwd=tmp_path, device="auto")
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    assert "NVIDIA H200 (simulated): SIMULATED, not measured" in out
    assert "3840x2160 at 60 frames/s for 0.1 s" in out
    assert re.search(
        r"missed by the control loop: (\d) of 11 \(\1 due to the GPU, 0 due to the host\) on shared SMs, "
        r"0 of 11 on its own 8 SMs",
        out,
    )
    assert re.search(r"│ missed by the GPU / the host +│ +[1-9] / 0 │ +0 / 0 │", out)
    assert "Wrong frames: 0 of 12." in out
    assert f"These figures are SIMULATED, not measured, in virtual time. The picture is in {first}." in out
    for line in ("frames per second", "frame latency, p50 / p99", "headroom of frame period", "wrong frames"):
        assert line in out
    assert "shared SMs: 6 of 6" in done.stderr.splitlines()  # there is no terminal
    assert "running on a simulated device, in virtual time" in done.stderr.splitlines()[0]
    monkeypatch.setattr(sys, "argv", ["endoscope.py", "--load", str(saved), "--out", str(again)])
    endoscope.main()
    repeated = capsys.readouterr().out
    assert out.replace(str(first), "") == repeated.replace(str(again), "")
    assert again.read_bytes() == first.read_bytes()
    assert first.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("lacking", ["rich", "matplotlib", "onnxruntime"])
def test_the_program_says_what_it_lacks_before_it_works(lacking: str, tmp_path: Path) -> None:
    done = run_program(lacking, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"endoscope.py needs {lacking}: ")
    assert done.stderr.endswith(f"; {installing('demo')}\n")
    assert not list(tmp_path.iterdir())


def test_too_few_frames_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_SIM_TIME", "virtual")
    monkeypatch.setattr(sys, "argv", ["endoscope.py", "--seconds", "0.01"])
    with pytest.raises(SystemExit, match="2"):
        endoscope.main()
    assert "at least four" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with Progress() as progress:
        task = progress.task("frames", 10)
        for _ in range(10):
            task.advance()
    assert "frames" in screen.getvalue()
    assert "━" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_progress_is_a_line_now_and_then_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as progress:
        task = progress.task("frames", 9)
        for _ in range(9):
            task.advance()
    assert capsys.readouterr().err.splitlines() == [f"frames: {done} of 9" for done in (2, 4, 6, 8, 9)]


def test_the_benchmark_says_that_it_is_simulated_and_keeps_the_samples(tmp_path: Path) -> None:
    arguments = "-m", "benchmarks.endoscope", "--size", "960", "540", "--seconds", "0.07", "--save"
    done = run_forked(*arguments, cwd=ROOT, modules=MODULES, HEADRACE_RESULTS=str(tmp_path))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "endoscope.md").read_text()
    assert "SIMULATED, not measured" in text
    assert re.search(r"^\| denoise \| [\d.]+ / [\d.]+ / [\d.]+ \| ", text, re.MULTILINE)
    assert "Wrong frames: 0 of 8." in text
    report, picture = endoscope_report.load(tmp_path / "endoscope.json")
    assert [case.scored for case in report.cases] == [4, 4]
    assert picture.shape[1::-1] == endoscope.VIEW


def test_the_page_of_both_runs_has_one_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("aiohttp")
    monkeypatch.setattr(endoscope, "draw", lambda *arguments: None)
    for name in ("HEADRACE_VIEW_PORT", "HEADRACE_VIEW_TOKEN", "HEADRACE_SIM_TIME"):
        monkeypatch.setenv(name, "")  # what the program sets is undone
        monkeypatch.delenv(name)
    arguments = "--size", "480", "270", "--seconds", "0.07", "--view", "--out", str(tmp_path / "out.png")
    monkeypatch.setattr(sys, "argv", ["endoscope.py", *arguments])
    endoscope.main()
    addresses = re.findall(r"http://127\.0\.0\.1:\d+/\S+", capsys.readouterr().out)
    assert len(addresses) == 2
    assert addresses[0] == addresses[1]
