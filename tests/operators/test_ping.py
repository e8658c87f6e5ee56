"""PingTxOp, PingRxOp and ProbeOp."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import CountCondition
from headrace.operators import PingRxOp, PingTxOp, ProbeOp
from headrace.testing import run_operator
from tests.harness import App, run, sink


def test_a_ping_counts_from_1_again_in_the_next_run() -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        app.add_flow(PingTxOp(app, CountCondition(app, 2)), sink(app, taken))

    app = run(compose)
    app.run()
    assert taken == [1, 2, 1, 2]


def test_what_a_ping_brings_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run_operator(PingRxOp, inputs=[1, "two", None])
    assert capsys.readouterr().out == "Rx message value: 1\nRx message value: two\nRx message value: None\n"


def test_a_probe_describes_tensors_and_passes_the_message_on(capsys: pytest.CaptureFixture[str]) -> None:
    sent = [{"picture": np.zeros((4, 6, 3), np.uint8)[:, ::2]}, 7, np.zeros(2, np.float32), {}]
    outcome = run_operator(ProbeOp, inputs=sent, name="probe")
    assert capsys.readouterr().out.splitlines() == [
        "probe: 'picture': shape (4, 3, 3), dtype uint8, strides (18, 6, 1), device cpu, not contiguous",
        "probe: not a tensor: int",
        "probe: shape (2,), dtype float32, strides (4,), device cpu, contiguous",
        "probe: no tensors",
    ]
    first, second, third, _ = outcome["out"]
    assert np.shares_memory(np.asarray(first["picture"]), sent[0]["picture"])
    assert (second, third is sent[2]) == (7, True)


def test_a_probe_says_that_memory_must_not_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    frame = np.zeros(3)
    frame.flags.writeable = False
    run_operator(ProbeOp, inputs=[frame])
    assert capsys.readouterr().out.endswith("contiguous, read-only\n")
