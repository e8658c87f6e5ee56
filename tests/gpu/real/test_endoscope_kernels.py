"""The kernels of the endoscope on a real GPU; tests/examples/test_endoscope_kernels.py compares their source."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from examples.shared import endoscope_kernels as kernels
from headrace import gpu
from tests.examples.test_endoscope_kernels import simulated
from tests.gpu.bench import Bench

pytestmark = pytest.mark.usefixtures("real")


def on_gpu(bench: Bench, kernel: gpu.kernel, grid: int, block: int, *args: Any) -> None:
    """Run a kernel on copies of arrays, which get the results."""
    stream = bench.device.create_stream()
    staged, buffers = {}, {}
    for place, arg in enumerate(args):
        if isinstance(arg, np.ndarray):
            staged[place] = bench.names.LegacyPinnedMemoryResource().allocate(arg.nbytes)
            ctypes.memmove(int(staged[place].handle), arg.ctypes.data, arg.nbytes)
            buffers[place] = bench.device.allocate(arg.nbytes, stream=stream)
            buffers[place].copy_from(staged[place], stream=stream)
    given = [buffers.get(place, arg) for place, arg in enumerate(args)]
    bench.launch(stream, kernel, *given, grid=grid, block=block)
    for place, buffer in buffers.items():
        buffer.copy_to(staged[place], stream=stream)
    stream.sync()
    for place, host in staged.items():
        ctypes.memmove(args[place].ctypes.data, int(host.handle), args[place].nbytes)


@pytest.mark.parametrize(("rows", "columns", "radius"), [(270, 480, 1), (67, 131, 10), (40, 100, 20)])
def test_the_noise_reduction_is_that_of_numpy(bench: Bench, rows: int, columns: int, radius: int) -> None:
    image = np.random.default_rng(rows).integers(90, 120, (rows, columns, 3)).astype(np.uint8)
    image[:, columns // 2 :] += 80
    found, expected = np.zeros_like(image), np.zeros_like(image)
    sizes = [np.int32(value) for value in (rows, columns, radius, radius)]
    tiles = -(-rows // kernels.TILE) * -(-columns // kernels.TILE)
    on_gpu(bench, kernels.DENOISE, tiles, kernels.TILE**2, found, image, *sizes)
    simulated(kernels.DENOISE, expected, image, *sizes)
    np.testing.assert_array_equal(found, expected)


def test_the_score_is_that_of_numpy(bench: Bench) -> None:
    random = np.random.default_rng(4)
    mask = (random.random((256, 256)) < 0.3).astype(np.uint8)
    discs = (random.random((5, 3, 3)) * (3840, 2160, 400) * 16).astype(np.int32)
    sizes = [np.int32(value) for value in (3, 4, 3840, 2160)]
    counts = [np.zeros((5, 2), np.int32) for _ in range(2)]
    shape = np.int32(256), np.int32(256)
    on_gpu(bench, kernels.SCORE, 256, 256, counts[0], mask, *shape, discs, *sizes)
    simulated(kernels.SCORE, counts[1], mask, *shape, discs, *sizes)
    np.testing.assert_array_equal(counts[0], counts[1])
    assert counts[0][4].min() > 0


def test_the_control_loop_is_that_of_numpy(bench: Bench) -> None:
    paths = []
    for step in (0, 1):
        states, best = np.zeros((40, 2), np.float32), np.full(40, 2**64 - 1, np.uint64)
        for tick in range(40):
            arguments = kernels.STEER, states, best, np.int32(tick), np.float32(tick / 100)
            if step:
                simulated(*arguments)
            else:
                on_gpu(bench, arguments[0], kernels.CANDIDATES // 128, 128, *arguments[1:])
        paths.append(states[:, 0])
    np.testing.assert_allclose(paths[0], paths[1], atol=1e-2)
