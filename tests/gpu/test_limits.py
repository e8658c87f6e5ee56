"""The limits of a launch: what CUDA documents is what a device takes, states and enforces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace.gpu import sim
from tests.gpu.bench import Bench
from tests.gpu.kernels import spin

KIB = 1 << 10


def launch(bench: Bench, **config: Any) -> None:
    stream = bench.device.create_stream()
    bench.names.launch(stream, bench.names.LaunchConfig(**config), spin.on(bench.device), np.int64(0))
    stream.sync()


def test_the_properties_state_the_limits(bench: Bench) -> None:
    properties = bench.device.properties
    assert properties.max_threads_per_block == 1024
    assert [getattr(properties, f"max_block_dim_{axis}") for axis in "xyz"] == [1024, 1024, 64]
    assert [getattr(properties, f"max_grid_dim_{axis}") for axis in "xyz"] == [2**31 - 1, 65_535, 65_535]
    assert properties.max_shared_memory_per_block == 48 * KIB
    assert properties.max_shared_memory_per_block_optin >= 99 * KIB


@pytest.mark.parametrize("block", [(1024,), (1, 1024), (16, 1, 64), (32, 32)], ids=str)
def test_blocks_up_to_the_limits_run(bench: Bench, block: Any) -> None:
    launch(bench, grid=1, block=block)


@pytest.mark.parametrize("block", [1025, (1, 1025), (1, 1, 65), (33, 32), (2, 16, 64)], ids=str)
def test_a_block_beyond_a_limit_is_refused(bench: Bench, block: Any) -> None:
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        launch(bench, grid=1, block=block)


@pytest.mark.parametrize("grid", [(1, 65_535), (1, 1, 65_535)], ids=str)
def test_grids_up_to_the_limits_run(bench: Bench, grid: Any) -> None:
    launch(bench, grid=grid, block=32)


@pytest.mark.parametrize("grid", [2**31, (1, 65_536), (1, 1, 65_536)], ids=str)
def test_a_grid_beyond_a_limit_is_refused(bench: Bench, grid: Any) -> None:
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
        launch(bench, grid=grid, block=32)


@pytest.mark.parametrize("name", ["grid", "block", "cluster"])
@pytest.mark.parametrize("size", [0, -1, (1, 0), (1, 1, -5), 1.0, "8", [8], (1, 2.0), (1, 1, 1, 1)], ids=str)
def test_dimensions_are_up_to_three_whole_numbers_from_1_on(bench: Bench, name: Any, size: Any) -> None:
    with pytest.raises(ValueError):
        bench.names.LaunchConfig(**{"grid": 1, "block": 32, name: size})


def test_a_block_has_48_kib_of_shared_memory_without_asking(bench: Bench) -> None:
    launch(bench, grid=1, block=32, shmem_size=48 * KIB)
    for size in (48 * KIB + 1, 10_000 * KIB):
        with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_VALUE"):
            launch(bench, grid=1, block=32, shmem_size=size)


def test_clusters_have_up_to_8_blocks(bench: Bench) -> None:
    if bench.device.compute_capability < (9, 0):
        pytest.skip("this device has no clusters of blocks")
    launch(bench, grid=2, cluster=8, block=32)
    launch(bench, grid=2, cluster=(2, 2, 2), block=32)
    for cluster in (16, 32, (3, 3)):
        with pytest.raises(bench.names.CUDAError):
            launch(bench, grid=2, cluster=cluster, block=32)


def test_a_grid_of_clusters_is_counted_in_blocks(bench: Bench) -> None:
    if bench.device.compute_capability < (9, 0):
        pytest.skip("this device has no clusters of blocks")
    with pytest.raises(bench.names.CUDAError):
        launch(bench, grid=(1, 32_768), cluster=(1, 2), block=32)


# -- what a kernel asks for, which cuda.core has no call for -------------------------------------------


@pytest.fixture
def stream() -> Iterator[sim.Stream]:
    with sim.Machine("h200"):
        sim.Device(0).set_current()
        yield sim.Device(0).create_stream()


def test_a_kernel_may_ask_for_the_devices_shared_memory(stream: Any) -> None:
    greedy = sim.Kernel("greedy", 1e-6, max_dynamic_shared_size_bytes=1000 * KIB)
    config = sim.LaunchConfig(grid=1, block=32, shmem_size=227 * KIB)
    sim.launch(stream, config, greedy)
    with pytest.raises(sim.CUDAError, match=r"'plain': 232448 bytes .* the maximum is 49152, or 232448 with"):
        sim.launch(stream, config, sim.Kernel("plain", 1e-6))
    with pytest.raises(sim.CUDAError, match="the maximum is 232448"):
        sim.launch(stream, sim.LaunchConfig(grid=1, block=32, shmem_size=227 * KIB + 1), greedy)
    modest = sim.Kernel("modest", 1e-6, max_dynamic_shared_size_bytes=64 * KIB)
    sim.launch(stream, sim.LaunchConfig(grid=1, block=32, shmem_size=64 * KIB), modest)
    with pytest.raises(sim.CUDAError, match="the maximum is 65536"):
        sim.launch(stream, sim.LaunchConfig(grid=1, block=32, shmem_size=64 * KIB + 1), modest)


def test_a_kernel_may_ask_for_clusters_of_16(stream: Any) -> None:
    big = sim.Kernel("big", 1e-6, non_portable_cluster_size_allowed=True)
    sim.launch(stream, sim.LaunchConfig(grid=2, cluster=16, block=32), big)
    with pytest.raises(
        sim.CUDAError, match="CUDA_ERROR_INVALID_CLUSTER_SIZE.*a cluster of 17 blocks; the maximum is 16"
    ):
        sim.launch(stream, sim.LaunchConfig(grid=2, cluster=17, block=32), big)
    with pytest.raises(sim.CUDAError, match="a cluster of 9 blocks; the maximum is 8, or 16 with"):
        sim.launch(stream, sim.LaunchConfig(grid=2, cluster=9, block=32), sim.Kernel("plain", 1e-6))


def test_a_chip_before_hopper_has_no_clusters() -> None:
    with sim.Machine("l4"):
        sim.Device(0).set_current()
        with pytest.raises(
            sim.CUDAError, match=r"clusters need compute capability 9\.0; this device has 8\.9"
        ):
            config = sim.LaunchConfig(grid=1, cluster=1, block=32)
            sim.launch(sim.Device(0).create_stream(), config, sim.Kernel("k", 1e-6))


def test_an_error_says_which_kernel_and_what_the_most_is(stream: Any) -> None:
    with pytest.raises(
        sim.CUDAError, match=r"'k': a grid of 1 x 65536 x 1; the maximum is 2147483647 x 65535 x 65535"
    ):
        sim.launch(stream, sim.LaunchConfig(grid=(1, 65_536), block=32), sim.Kernel("k", 1e-6))
