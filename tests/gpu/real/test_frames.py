"""Frames of CuPy and PyTorch on a real GPU, let go in every way while a kernel still reads them.

The same on the simulated device is in tests/random_programs; `benchmarks.gpu_frames` has more frames, and counts.
"""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu_frames import THOROUGH, WAYS, CupyFrames, Frames, TorchFrames, Way
from tests.random_programs.frames import run_on_streams

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(params=["cupy", "torch"])
def library(request: pytest.FixtureRequest) -> Any:
    for needed in ("cupy", request.param):
        pytest.importorskip(needed)
    return (CupyFrames if request.param == "cupy" else TorchFrames)(500_000)


@pytest.mark.parametrize("scheduler", THOROUGH.values(), ids=list(THOROUGH))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_no_frame_is_wrong_however_it_is_let_go(library: Any, way: Way, scheduler: Any) -> None:
    Frames(scheduler, way, library, 60).run()
    assert library.wrong == 0


@pytest.mark.parametrize("scheduler", THOROUGH.values(), ids=list(THOROUGH))
@pytest.mark.parametrize("seed", range(6))
def test_no_frame_is_wrong_whatever_a_program_does(library: Any, seed: int, scheduler: Any) -> None:
    program = run_on_streams(seed, library, scheduler)
    assert library.wrong == 0, program
