"""The kernels of the endoscope: the CUDA source computes what NumPy computes on the simulated device."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest

from examples.shared import endoscope_kernels as kernels
from headrace import gpu
from headrace.gpu import sim
from headrace.video import BayerSensor, Scene
from tests.operators.compiled_kernels import built_together

# What the kernels use beyond those of the operators.
WORDS = r"""
#include <atomic>
#include <mutex>
#include <stdlib.h>
static std::mutex one_at_a_time;
static inline void atomicAdd(int* sum, int value) {
    std::lock_guard<std::mutex> l(one_at_a_time);
    *sum += value;
}
static inline void atomicMin(unsigned long long* least, unsigned long long value) {
    std::lock_guard<std::mutex> l(one_at_a_time);
    if (value < *least) *least = value;
}
static inline unsigned __float_as_uint(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
"""
COUNTING = r"""
static inline int __syncthreads_count(int is_true) {
    static std::atomic<int> count;
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (is_true) count++;
    __syncthreads();
    return count;
}
"""


ALL = (kernels.DENOISE, kernels.SCORE, kernels.STEER)


def source_of(kernel: gpu.kernel) -> tuple[str, str]:
    """Return the name of a kernel, and its source with the words that it needs."""
    return kernel.name, WORDS + (COUNTING if "__syncthreads" in kernel.source else "") + kernel.source


def on_processor(kernel: gpu.kernel, grid: int, block: int, *args: Any) -> None:
    """Run a kernel's CUDA source, compiled for this machine."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    kinds = {np.int32: ctypes.c_int, np.float32: ctypes.c_float}
    given = [
        ctypes.c_void_p(arg.ctypes.data) if isinstance(arg, np.ndarray) else kinds[type(arg)](arg)
        for arg in args
    ]
    built_together(tuple(map(source_of, ALL)))[source_of(kernel)](grid, block, *given)


def simulated(kernel: gpu.kernel, *args: Any) -> None:
    """Run a kernel's model on the simulated device, on copies of arrays, which get the results."""
    with sim.Machine("h200"):
        device = sim.Device(0)
        device.set_current()
        stream = device.create_stream()
        buffers = {}
        for place, arg in enumerate(args):
            if isinstance(arg, np.ndarray):
                buffers[place] = device.allocate(arg.nbytes, stream=stream)
                sim.host_view(buffers[place])[:] = arg.reshape(-1).view(np.uint8)
        given = [buffers.get(place, arg) for place, arg in enumerate(args)]
        sim.launch(stream, sim.LaunchConfig(grid=1, block=32), kernel.on(device), *given)
        stream.sync()
        for place, buffer in buffers.items():
            args[place].reshape(-1).view(np.uint8)[:] = sim.host_view(buffer)


@pytest.mark.parametrize(("rows", "columns", "radius"), [(24, 40, 1), (18, 34, 3), (40, 20, 10)])
def test_the_noise_reduction_is_the_same_on_both(rows: int, columns: int, radius: int) -> None:
    random = np.random.default_rng(rows)
    image = np.kron(random.integers(0, 256, (rows // 2, columns // 2, 3)), np.ones((2, 2, 1)))
    image = np.clip(image + random.normal(0, 3, image.shape), 0, 255).astype(np.uint8)
    results = [np.zeros_like(image) for _ in range(2)]
    sizes = [np.int32(value) for value in (rows, columns, radius, radius)]
    tiles = -(-rows // kernels.TILE) * -(-columns // kernels.TILE)
    on_processor(kernels.DENOISE, tiles, kernels.TILE**2, results[0], image, *sizes)
    simulated(kernels.DENOISE, results[1], image, *sizes)
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != image).any()


def test_the_noise_reduction_smooths_and_keeps_edges() -> None:
    random = np.random.default_rng(2)
    clean = np.full((32, 32, 3), 60, np.uint8)
    clean[:, 16:] = (200, 90, 20)
    noisy = np.clip(clean + random.normal(0, 3, clean.shape), 0, 255).astype(np.uint8)
    smooth = np.zeros_like(noisy)
    simulated(kernels.DENOISE, smooth, noisy, *(np.int32(value) for value in (32, 32, 3, 3)))
    before, after = (np.abs(image.astype(int) - clean) for image in (noisy, smooth))
    assert after.mean() < before.mean() / 2
    assert after.max() < 10  # no pixel beside the edge was mixed with those beyond it


@pytest.mark.parametrize(("rows", "columns"), [(32, 24), (19, 31)])
def test_a_mask_is_scored_against_what_the_camera_saw(rows: int, columns: int) -> None:
    width, height, number, count = 96, 64, 2, 3
    sensor = BayerSensor(Scene(width, height, objects=count, seed=5), 10.0)
    discs = [[(one.x, one.y, one.radius) for one in sensor.truth(frame).objects] for frame in range(4)]
    labels = sensor.truth(number).labels
    down = (np.arange(rows) * height + height // 2) // rows
    across = (np.arange(columns) * width + width // 2) // columns
    truth = labels[down][:, across] > 0
    mask = (truth ^ (np.random.default_rng(1).random(truth.shape) < 0.1)).astype(np.uint8)
    expected = np.zeros((4, 2), np.int32)
    expected[number] = np.sum(truth & (mask > 0)), np.sum(truth | (mask > 0))
    assert 0 < expected[number, 0] < expected[number, 1]
    shapes = [np.int32(rows), np.int32(columns)]
    rest = [np.int32(value) for value in (count, number, width, height)]
    for run in (simulated, lambda *args: on_processor(args[0], -(-rows * columns // 256), 256, *args[1:])):
        counts, table = np.zeros((4, 2), np.int32), (np.array(discs) * 16).astype(np.int32)
        run(kernels.SCORE, counts, mask, *shapes, table, *rest)
        np.testing.assert_array_equal(counts, expected)


def test_the_control_loop_follows_its_target() -> None:
    ticks = 150
    target = np.sin(2 * np.pi * kernels.STEP * np.arange(ticks)).astype(np.float32)
    paths = []
    for run in (simulated, lambda *args: on_processor(args[0], kernels.CANDIDATES // 128, 128, *args[1:])):
        states = np.zeros((ticks, 2), np.float32)
        best = np.full(ticks, 2**64 - 1, np.uint64)
        for tick in range(ticks):
            run(kernels.STEER, states, best, np.int32(tick), target[tick])
        paths.append(states[:, 0])
    np.testing.assert_allclose(paths[0], paths[1], atol=1e-3)
    assert np.abs(paths[0] - target).max() < 0.35  # it follows at a distance
    assert paths[0].max() > 0.9
