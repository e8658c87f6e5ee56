"""headrace bench."""

from __future__ import annotations

import re

import pytest

from headrace.cli import main
from headrace.cli.bench import LENGTH, _Chain


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
