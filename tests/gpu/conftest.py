"""Every test here states behaviour that a real and a simulated device share, and runs on both.

The real one is skipped where there is none. ``make gpu-test`` runs with ``PENSTOCK_DEVICE=cuda``: there a
device that is missing is an error, not a skip.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock import gpu
from penstock.gpu import sim
from penstock.gpu.backends import DeviceUnavailable, why_not_cuda


@dataclass
class Bench:
    """A device on the test bench, the names that go with it, and its host clock."""

    names: Any
    device: Any
    is_simulated: bool
    sleep: Callable[[float], None]
    wait_for: Callable[[threading.Event], bool]

    def launch(self, stream: Any, kernel: gpu.kernel, *args: Any, grid: int = 1, block: int = 32) -> None:
        self.names.launch(
            stream, self.names.LaunchConfig(grid=grid, block=block), kernel.on(self.device), *args
        )

    def timed_event(self) -> Any:
        return self.device.create_event(self.names.EventOptions(timing_enabled=True))

    def zeros(self, count: int, stream: Any) -> Any:
        """Return a device buffer of that many int32, all zero."""
        buffer = self.device.allocate(4 * count, stream=stream)
        buffer.fill(0, stream=stream)
        return buffer

    def read(self, buffer: Any, stream: Any) -> np.ndarray:
        """Return what a buffer of int32 holds once the stream has got there."""
        host = self.names.LegacyPinnedMemoryResource().allocate(buffer.size)
        buffer.copy_to(host, stream=stream)
        stream.sync()
        return np.from_dlpack(host).view(np.int32).copy()

    def partitions(self, *counts: int) -> gpu.Partitions:
        return gpu.partition(self.device, list(counts))


@pytest.fixture(params=["sim", "cuda"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "sim":
        with sim.Machine("h200", driver=(13, 0)) as machine:
            device = sim.Device(0)
            device.set_current()
            yield Bench(sim, device, True, machine.sleep, lambda event: machine.wait(event.is_set))
        return
    names = _cuda()
    device = names.Device(0)
    device.set_current()
    yield Bench(names, device, False, _spin, lambda event: event.wait(10))
    device.sync()


@pytest.fixture
def real(bench: Bench) -> Bench:
    """A real device, for what a simulated one cannot show."""
    if bench.is_simulated or gpu.backend() != "cuda":
        pytest.skip("needs a real device and PENSTOCK_DEVICE=cuda")
    return bench


def _cuda() -> ModuleType:
    try:
        lack = why_not_cuda()
    except DeviceUnavailable as error:
        lack = str(error)
    if lack is not None:
        if os.environ.get("PENSTOCK_DEVICE") == "cuda":
            pytest.fail(lack)
        pytest.skip(lack)
    from penstock.gpu import cuda

    return cuda


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
