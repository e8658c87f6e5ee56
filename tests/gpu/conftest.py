"""The tests in this folder state behaviour that a real and a simulated device share, and run on both.

Where there is no real device, `test_backends` says so, and the simulated one is used alone. ``make gpu-test`` runs
the folder with ``HEADRACE_DEVICE=cuda``: then a missing device is an error, and the simulated device and what needs
no device are left out.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import memory_pool
from tests.gpu.bench import Bench, cuda, lack_of_cuda, spin_host
from tests.harness import PATIENCE

# What is about the simulator, about stand-ins of libraries, or about choosing a device.
NEEDS_NO_DEVICE = ["sim", "test_ambient.py", "test_backends.py"]
if os.environ.get("HEADRACE_DEVICE") == "cuda":
    DEVICES, collect_ignore = ["cuda"], NEEDS_NO_DEVICE
elif lack_of_cuda() is None:
    DEVICES, collect_ignore = ["sim", "cuda"], []
else:
    DEVICES, collect_ignore = ["sim"], ["real"]


_bytes = itertools.cycle(range(1, 256))


def _used_before(size: int) -> np.ndarray:
    """Return memory that somebody has used before: each time it holds something else."""
    return np.full(size, next(_bytes), np.uint8)


@pytest.fixture(params=DEVICES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A simulated device, or a real one. New memory of either holds anything."""
    if request.param == "sim":
        with pytest.MonkeyPatch.context() as patch, sim.Machine("h200", driver=(13, 0)) as machine:
            patch.setattr(memory_pool, "new_memory", _used_before)
            device = sim.Device(0)
            device.set_current()
            yield Bench(sim, device, True, machine.sleep, lambda event: machine.wait(event.is_set))
        return
    names = cuda()
    device = names.Device(0)
    device.set_current()
    yield Bench(names, device, False, spin_host, lambda event: event.wait(PATIENCE))
    device.sync()


@pytest.fixture(params=DEVICES)
def two(request: pytest.FixtureRequest) -> Iterator[list[Bench]]:
    """Two devices of one kind, of which the first is current."""
    if request.param == "sim":
        with sim.Machine("h200", devices=2) as machine:
            benches = [
                Bench(sim, sim.Device(n), True, machine.sleep, lambda event: machine.wait(event.is_set))
                for n in (0, 1)
            ]
            benches[0].device.set_current()
            yield benches
        return
    names = cuda()
    if len(names.Device.get_all_devices()) < 2:
        pytest.skip("needs two devices")
    benches = [
        Bench(names, names.Device(n), False, spin_host, lambda event: event.wait(PATIENCE)) for n in (0, 1)
    ]
    benches[0].device.set_current()
    yield benches
    for bench in reversed(benches):
        bench.device.set_current()
        bench.device.sync()


@pytest.fixture
def of_this_process(bench: Bench) -> Bench:
    """The kind of device that the process uses, for pipelines, which run on no other."""
    if bench.is_simulated != (gpu.backend() == "sim"):
        pytest.skip("pipelines run on the kind of device that the process uses")
    return bench


@pytest.fixture
def real(bench: Bench) -> Bench:
    """A real device, for what a simulated one cannot show."""
    if bench.is_simulated or gpu.backend() != "cuda":
        pytest.skip("needs a real device and HEADRACE_DEVICE=cuda")
    return bench
