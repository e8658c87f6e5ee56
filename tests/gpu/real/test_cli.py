"""The command on a GPU."""

from __future__ import annotations

import pytest

from headrace.cli import main
from headrace.cli.demo import demonstrate

pytestmark = pytest.mark.usefixtures("real")


def test_the_demo_measures_what_a_slice_is_for() -> None:
    alone, shared, own = demonstrate(200)
    assert own.sms < shared.sms == alone.sms
    assert shared.p99 > 2 * alone.p99
    assert own.p99 < shared.p99 / 2
    assert alone.wrong == shared.wrong == own.wrong == 0


def test_the_demo_says_that_it_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--frames", "40"]) == 0
    assert ": measured; 40 critical frames" in capsys.readouterr().out


def test_info_and_partition_describe_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert main(["partition", "16"]) == 0
    assert "Device   CUDA" in capsys.readouterr().out
