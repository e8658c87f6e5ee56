"""What the dashboard tells of a device is the same on a GPU and on a simulated one."""

from __future__ import annotations

from typing import Any

import pytest

import noisy_neighbour
from headrace.observe import Dashboard
from tests.gpu.bench import Bench


class Told(Dashboard):
    """Keeps the figures at the end of a run."""

    def end(self, outcome: Any) -> None:
        assert self._page is not None
        self.run, self.last = self._page.run, self._page.figures()
        super().end(outcome)


def test_slices_operators_and_gpu_times_are_told(of_this_process: Bench) -> None:
    pytest.importorskip("aiohttp")
    app = noisy_neighbour.Neighbours(200, noise=True, partitioned=True)
    dashboard = Told(app, announce=lambda url: None)
    app.run()
    total = of_this_process.device.resources.sm.sm_count
    (device,) = dashboard.last["gpus"]
    assert device["sms"] == total
    assert [(each["name"], each["cells"]) for each in device["slices"]] == [
        ("critical", 16),
        ("leftover", total - 16),
    ]
    told = {
        info.name: figure
        for info, figure in zip(dashboard.run.operators, dashboard.last["operators"], strict=True)
    }
    assert told["critical_transmitter"]["slice"] == "0:critical"
    assert told["noisy_receiver"]["slice"] == "0:leftover"
    # Its kernels take 100 µs; the host's time to launch them is added.
    assert 95 <= told["critical_transmitter"]["gpu"][0] <= 200
