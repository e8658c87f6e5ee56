"""The arrays of a simulated H200 beside CuPy on a GPU: values, and times within a factor of five.

The times are those of the profile of an H200, so they are compared on that GPU only. Larger deviations of a program
mean that the model of its kernels (`headrace.gpu.sim.arrays.work`) is wrong. A time is that between two events
around the program, the median of several runs after two that are not counted. A kernel that spins comes first, so
that the host has launched the program when the first event is reached: its time is no part of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import arrays as simulated
from headrace.tensor import as_tensor
from tests.gpu.array_programs import PROGRAMS, ROWS, STRANGERS, compare, inputs_of
from tests.gpu.bench import Bench
from tests.gpu.kernels import spin

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.usefixtures("real")

FACTOR = 5.0
RUNS = 9
SPIN = 3_000_000  # nanoseconds


@pytest.fixture
def machine() -> Iterator[sim.Machine]:
    with sim.Machine("h200") as machine:
        sim.Device(0).set_current()
        yield machine


def test_the_arrays_of_a_gpu_are_cupys() -> None:
    assert gpu.arrays() is cupy
    assert as_tensor(gpu.arrays().ones(3)).device.is_cuda


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_values(machine: sim.Machine, name: str) -> None:
    inputs, program = inputs_of(256), PROGRAMS[name]
    real = program(cupy, *map(cupy.asarray, inputs)).get()
    found = program(simulated, *map(simulated.asarray, inputs)).get()
    assert (found.shape, found.dtype) == (real.shape, real.dtype)
    np.testing.assert_allclose(found, real, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", STRANGERS)
def test_a_program_that_was_written_for_numpy_runs_with_cupy_too(name: str) -> None:
    compare(STRANGERS[name], cupy)


def seconds(xp: Any, stream: Any, names: Any, name: str, inputs: tuple[Any, ...]) -> float:
    """Return how long a program takes on a stream."""
    found = []
    options = names.EventOptions(timing_enabled=True)
    with gpu.use_stream(stream):
        given = [xp.asarray(one) for one in inputs]
        for _ in range(RUNS):
            stream.sync()
            names.launch(stream, names.LaunchConfig(grid=1, block=1), spin.on(stream.device), np.int64(SPIN))
            began = stream.record(options=options)
            PROGRAMS[name](xp, *given)
            ended = stream.record(options=options)
            stream.sync()
            found.append((ended - began) / 1e3)
    return median(found[2:])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_takes_about_as_long(machine: sim.Machine, bench: Bench, name: str) -> None:
    if "H200" not in bench.device.name:
        pytest.skip("the model is that of an H200")
    inputs = inputs_of(ROWS)
    # NumPy computes the values of the simulated run, so that is run less often.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "RUNS", 3)
        model = seconds(simulated, sim.Device(0).create_stream(), sim, name, inputs)
    bench.device.set_current()
    measured = seconds(cupy, bench.device.create_stream(), gpu, name, inputs)
    print(f"{name}: {measured * 1e6:.1f} µs measured, {model * 1e6:.1f} µs simulated")
    assert 1 / FACTOR <= model / measured <= FACTOR
