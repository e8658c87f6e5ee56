"""The examples with arrays do what plain NumPy does; those that need a GPU say so. tests/gpu has them there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headrace.installation import installing
from tests.examples import array_examples
from tests.harness.processes import EXAMPLES, run_forked

GAINS = ("gain_cuda_python.py", "gain_cupy.py", "gain_numpy.py", "gain_torch.py")
STAGES = ("stage_cucim.py", "stage_cvcuda.py", "stage_jax.py", "stage_numba.py", "stage_opencv.py")


@pytest.mark.parametrize(
    ("example", "library", "expected"),
    [
        ("gain_numpy.py", "numpy", array_examples.louder),
        ("gain_torch.py", "torch", array_examples.louder),
        ("stage_opencv.py", "cv2", array_examples.mirrored),
        ("stage_jax.py", "jax", array_examples.blurred),
        ("stage_numba.py", "numba", array_examples.inverted),
    ],
)
def test_without_a_gpu_it_shows_what_numpy_says(
    example: str, library: str, expected: Callable[[int], np.ndarray], tmp_path: Path
) -> None:
    if importlib.util.find_spec(library) is None:  # no import: the program runs in another process
        pytest.skip(f"{library} is not installed")
    out = tmp_path / "made" / "last.ppm"
    frames = 1 if library == "numba" else 3  # its simulator takes a second for each
    lines = array_examples.show(example, out, frames, forked=True, NUMBA_ENABLE_CUDASIM="1")
    assert lines == [array_examples.probed(expected(number), "cpu") for number in range(frames)]
    assert np.array_equal(array_examples.read_picture(out), expected(frames - 1))


@pytest.mark.parametrize(
    "example",
    [
        "gain_cuda_python.py",
        "gain_cupy.py",
        "stage_cucim.py",
        "stage_cvcuda.py",
        "stage_numba.py",
        "two_jobs.py",
    ],
)
def test_without_the_gpu_that_it_needs_it_says_so_in_one_line(example: str) -> None:
    done = run_forked(EXAMPLES / example, NUMBA_ENABLE_CUDASIM="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{example} needs a GPU: HEADRACE_DEVICE=sim\n"


@pytest.mark.parametrize(
    ("example", "library", "remedy"),
    [
        ("gain_torch.py", "torch", installing("torch")),
        ("stage_jax.py", "jax", "pip install jax"),
        ("stage_opencv.py", "cv2", installing("operators")),
        ("embed_web_server.py", "aiohttp", installing("view")),
    ],
)
def test_without_the_library_that_it_needs_it_says_so_in_one_line(
    example: str, library: str, remedy: str
) -> None:
    path = EXAMPLES / example
    program = f"""
import runpy, sys
sys.modules[{library!r}] = None  # as if it were not installed
sys.path.insert(0, {str(path.parent)!r})
sys.argv = [{str(path)!r}]
runpy.run_path({str(path)!r}, run_name="__main__")
"""
    done = run_forked("-c", program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{example} needs {library}: ")
    assert done.stderr.endswith(f"; {remedy}\n")
    assert done.stderr.count("\n") == 1


def test_the_examples_are_all_here_and_short_enough_to_be_read_at_once() -> None:
    found = sorted(path.name for path in EXAMPLES.glob("[gs]*_*.py"))
    assert [name for name in found if name.startswith(("gain_", "stage_"))] == [*GAINS, *STAGES]
    for name in (*GAINS, *STAGES):
        assert len((EXAMPLES / name).read_text().splitlines()) < 85, name
