"""The examples with arrays on a real GPU; tests/examples/test_array_examples.py has those that need none."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples import array_examples
from tests.harness.libraries import numba_works

FRAMES = 100  # enough for memory to be used again and again


@pytest.fixture(autouse=True)
def real(bench: Any) -> Any:
    if bench.is_simulated:
        pytest.skip("tests/examples/test_array_examples.py has it")
    return bench


def show(example: str, out: Path, *arguments: str) -> list[str]:
    return array_examples.show(
        example, out, FRAMES, *arguments, HEADRACE_DEVICE="cuda", NUMBA_ENABLE_CUDASIM="0"
    )


def need(*libraries: str) -> None:
    """Skip the test where one is not installed; they are imported by the example, not here."""
    for library in libraries:
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    if "numba" in libraries and not numba_works():
        pytest.skip("Numba does not work with this NumPy")


def imported(library: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it says of its own parts is no concern of ours
        return importlib.import_module(library)


def check(lines: list[str], out: Path, expected: Callable[[int], np.ndarray], device: str = "cuda:0") -> None:
    assert lines == [array_examples.probed(expected(number), device) for number in range(FRAMES)]
    assert np.array_equal(array_examples.read_picture(out), expected(FRAMES - 1))


@pytest.mark.parametrize(
    ("example", "library", "expected"),
    [
        ("gain_cupy.py", "cupy", array_examples.louder),
        ("stage_numba.py", "numba", array_examples.inverted),
    ],
)
def test_an_example_shows_what_numpy_says(
    example: str, library: str, expected: Callable[[int], np.ndarray], tmp_path: Path
) -> None:
    need(library)
    out = tmp_path / "last.ppm"
    check(show(example, out), out, expected)


def test_pytorch_has_the_frames_on_the_gpu_if_it_finds_one(tmp_path: Path) -> None:
    need("torch")
    out = tmp_path / "last.ppm"
    on_gpu = imported("torch").cuda.is_available()
    check(show("gain_torch.py", out), out, array_examples.louder, "cuda:0" if on_gpu else "cpu")


def test_jax_has_the_frames_on_the_gpu_if_it_was_installed_for_it(tmp_path: Path) -> None:
    need("jax")
    out = tmp_path / "last.ppm"
    on_gpu = any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    check(show("stage_jax.py", out), out, array_examples.blurred, "cuda:0" if on_gpu else "cpu")


def test_opencv_has_the_frames_on_the_gpu_if_it_was_built_for_it(tmp_path: Path) -> None:
    need("cv2")
    out = tmp_path / "last.ppm"
    on_gpu = imported("cv2").cuda.getCudaEnabledDeviceCount() > 0
    check(show("stage_opencv.py", out), out, array_examples.mirrored, "cuda:0" if on_gpu else "cpu")


@pytest.mark.parametrize(
    ("hand_over", "device"),
    [
        ("numpy-from-cuda", "cpu"),
        ("cupy-from-numpy", "cuda:0"),
        ("cuda-array-interface", "cuda:0"),
        ("cupy-from-cuda", "cuda:0"),
    ],
)
def test_a_receiver_hands_frames_over_in_four_ways(hand_over: str, device: str, tmp_path: Path) -> None:
    need("cupy")
    out = tmp_path / "last.ppm"
    check(show("gain_cuda_python.py", out, "--hand-over", hand_over), out, array_examples.louder, device)


def test_cvcuda_makes_frames_twice_as_large(tmp_path: Path) -> None:
    need("cvcuda")
    out = tmp_path / "last.ppm"
    lines = show("stage_cvcuda.py", out)
    assert len(lines) == len(set(lines)) == FRAMES  # every frame is another
    assert all(line.startswith("(128, 128, 3) uint8 on cuda:0") for line in lines)
    difference = array_examples.read_picture(out) - array_examples.enlarged(FRAMES - 1)
    assert np.abs(difference).max() <= 1


@pytest.mark.filterwarnings("ignore")
def test_cucim_brings_out_contrast_as_it_does_outside_of_a_pipeline(tmp_path: Path) -> None:
    need("cupy", "cucim")
    out = tmp_path / "last.ppm"
    lines = show("stage_cucim.py", out)
    cupy, exposure, util = map(imported, ("cupy", "cucim.skimage.exposure", "cucim.skimage.util"))

    def equalized(number: int) -> np.ndarray:
        frame = util.img_as_float(cupy.asarray(array_examples.picture(number)))
        made: np.ndarray = cupy.asnumpy(util.img_as_ubyte(exposure.equalize_adapthist(frame)))
        return made

    check(lines, out, equalized)
    before, after = array_examples.picture(FRAMES - 1), array_examples.read_picture(out)
    assert after.max(axis=-1).std() > 2 * before.max(axis=-1).std()
