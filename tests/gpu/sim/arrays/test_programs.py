"""Programs give on a simulated device what they give with NumPy; `tests/gpu/real/test_arrays.py` has CuPy."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim import arrays as xp
from tests.gpu.array_programs import PROGRAMS, STRANGERS, compare, inputs_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_with_numpy(machine: sim.Machine, name: str) -> None:
    inputs = inputs_of(64)
    stream = sim.Device(0).create_stream()
    with gpu.use_stream(stream):
        found = PROGRAMS[name](xp, *map(xp.asarray, inputs))
        assert not stream.record().is_done, "nothing in it waits"
        np.testing.assert_allclose(found.get(), PROGRAMS[name](np, *inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("error::headrace.gpu.sim.UnorderedAccessWarning")
@pytest.mark.parametrize("name", STRANGERS)
def test_a_program_that_was_written_for_numpy_and_cupy_runs(machine: sim.Machine, name: str) -> None:
    with gpu.use_stream(sim.Device(0).create_stream()):
        compare(STRANGERS[name], xp)
