"""The command on a GPU."""

from __future__ import annotations

import pytest

from headrace.cli import main

pytestmark = pytest.mark.usefixtures("real")


def test_info_and_partition_describe_the_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    assert main(["partition", "16"]) == 0
    assert "Device   CUDA" in capsys.readouterr().out
