"""headrace bench and headrace demo."""

from __future__ import annotations

import re

import pytest

from headrace.cli import main
from headrace.cli.bench import LENGTH, _Chain
from headrace.cli.demo import demonstrate
from headrace.gpu import sim
from tests.harness.processes import run_python


def test_bench_prints_what_a_step_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--messages", "50", "--repeats", "1"]) == 0
    head, machine, _, title, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"headrace \S+ \((pure Python|compiled)\); \w+ \S+", head)
    assert re.fullmatch(r"\d+ cores, \S+, \S+", machine)
    assert title.endswith("µs per step")
    assert [row.split("  ")[0] for row in rows] == [
        "plain functions and deques in a loop",
        "headrace, greedy",
        "headrace, event-based, 2 workers",
        "with a stream each, greedy",
        "with a stream each, event-based, 2 workers",
    ]
    assert all(float(row.split()[-1]) > 0 for row in rows)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_each_operator_of_the_chain_gets_every_message(workers: int, streams: bool) -> None:
    chain = _Chain(20, workers, streams)
    outcome = chain.run()
    assert [operator.computes for operator in outcome.operators.values()] == [20] * LENGTH
    assert chain.ended > chain.began > 0


@pytest.mark.parametrize("streams", [False, True])
def test_steps_are_measured_without_capture(monkeypatch: pytest.MonkeyPatch, streams: bool) -> None:
    monkeypatch.setenv("HEADRACE_CAPTURE", "auto")
    assert _Chain(20, 0, streams).run().segments == ()


def test_bench_refuses_numbers_that_measure_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "--messages", "0"])
    assert "must be a whole number of at least 1" in capsys.readouterr().err


def test_the_demo_shows_what_a_slice_is_for() -> None:
    with sim.Machine("h200"):
        alone, shared, own = demonstrate(20)
    assert (alone.sms, shared.sms, own.sms) == (132, 132, 16)
    assert shared.p99 > 5 * alone.p99
    assert own.p99 < 1.5 * alone.p99
    assert alone.frames == 20
    assert shared.frames > 20
    assert alone.wrong == shared.wrong == own.wrong == 0


def test_the_demo_prints_a_table_and_that_it_is_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--frames", "12", "--device", "sim"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NVIDIA H200 (simulated): not measured, in virtual time; 12 critical frames")
    for case in ("alone", "shared SMs", "own SMs"):
        assert re.search(rf"^{case} +\d+ +\d+ µs +\d+ µs  █+$", out, re.MULTILINE)
    assert "Wrong frames: 0 of " in out


def test_the_demo_announces_the_time_that_it_runs_in() -> None:
    code = "import sys; sys.modules['cuda'] = None; from headrace.cli import main; main(['demo', '--frames', '10'])"
    done = run_python("-c", code, HEADRACE_DEVICE="auto")
    assert done.returncode == 0, done.stderr
    assert done.stderr.rstrip().endswith("running on a simulated device, in virtual time")


def test_the_demo_needs_some_frames(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--frames", "3"])
    assert "--frames must be at least 10" in capsys.readouterr().err
