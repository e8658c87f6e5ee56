"""The configuration of a launch, and the limits that a device sets to it."""

from __future__ import annotations

import math
import operator

from headrace.gpu.sim.errors import CUDAError, invalid_launch
from headrace.gpu.sim.kernel import Kernel
from headrace.gpu.sim.profiles import Profile


class LaunchConfig:
    """The grid, the blocks and the options of a launch."""

    __slots__ = (
        "block",
        "cluster",
        "grid",
        "is_cooperative",
        "programmatic_stream_serialization",
        "shmem_size",
    )

    def __init__(
        self,
        grid: int | tuple[int, ...] | None = None,
        cluster: int | tuple[int, ...] | None = None,
        block: int | tuple[int, ...] | None = None,
        shmem_size: int | None = None,
        is_cooperative: bool = False,
        programmatic_stream_serialization: bool = False,
    ) -> None:
        self.grid = _dimensions("grid", grid)
        self.cluster = None if cluster is None else _dimensions("cluster", cluster)
        self.block = _dimensions("block", block)
        if not isinstance(shmem_size, int | None):
            raise TypeError(f"shmem_size must be an int, got {shmem_size!r}")
        self.shmem_size = shmem_size or 0
        self.is_cooperative = is_cooperative
        self.programmatic_stream_serialization = programmatic_stream_serialization

    @property
    def _grid_in_blocks(self) -> tuple[int, int, int]:
        """The grid in blocks; with a cluster, ``grid`` counts clusters."""
        if self.cluster is None:
            return self.grid
        (x, y, z), (a, b, c) = self.grid, self.cluster
        return x * a, y * b, z * c

    @property
    def _block_count(self) -> int:
        return math.prod(self._grid_in_blocks)

    @property
    def _threads_per_block(self) -> int:
        return math.prod(self.block)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LaunchConfig):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.__slots__))

    def __repr__(self) -> str:
        return f"LaunchConfig({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


def _dimensions(name: str, value: int | tuple[int, ...] | None) -> tuple[int, int, int]:
    if value is None:
        raise ValueError(f"LaunchConfig needs {name}")
    given = value if isinstance(value, tuple) else (value,)
    if len(given) > 3:
        raise ValueError(f"{name} has at most three dimensions, got {value}")
    for size in given:
        if not isinstance(size, int):
            raise ValueError(f"{name} must be an int or a tuple of them, got {value!r}")
        if size < 1:
            raise ValueError(f"{name} must be at least 1 in each dimension, got {value}")
    x, y, z = (*given, 1, 1, 1)[:3]
    return x, y, z


def check_limits(kernel: Kernel[...], config: LaunchConfig, limits: Profile) -> None:
    """Raise the driver's error for a configuration that exceeds the limits of a device."""
    if not _is_within_default_limits(config, limits):
        _check_limits(kernel, config, limits)


def _is_within_default_limits(config: LaunchConfig, limits: Profile) -> bool:
    """Return whether every kernel may be launched with a configuration: a quick check that nearly all pass."""
    x, y, z = config.grid
    a, b, c = config.block
    most_x, most_y, most_z = limits.max_grid
    most_a, most_b, most_c = limits.max_block
    return (
        config.cluster is None
        and x <= most_x
        and y <= most_y
        and z <= most_z
        and a <= most_a
        and b <= most_b
        and c <= most_c
        and a * b * c <= limits.threads_per_block
        and 0 <= config.shmem_size <= limits.shared_memory_per_block
    )


def _check_limits(kernel: Kernel[...], config: LaunchConfig, limits: Profile) -> None:
    """Raise an error if a configuration exceeds the limits of this kernel."""
    for noun, sizes, most in (
        ("grid", config._grid_in_blocks, limits.max_grid),
        ("block", config.block, limits.max_block),
    ):
        if any(map(operator.gt, sizes, most)):
            raise invalid_launch(kernel.name, f"a {noun} of {_joined(sizes)}; the maximum is {_joined(most)}")
    if config._threads_per_block > limits.threads_per_block:
        raise invalid_launch(
            kernel.name,
            f"a block of {config._threads_per_block} threads; the maximum is {limits.threads_per_block}",
        )
    most_shared = limits.shared_memory_per_block
    if kernel.max_dynamic_shared_size_bytes is not None:
        most_shared = min(kernel.max_dynamic_shared_size_bytes, limits.shared_memory_per_block_optin)
    if not 0 <= config.shmem_size <= most_shared:
        raise invalid_launch(
            kernel.name,
            f"{config.shmem_size} bytes of shared memory for a block; the maximum is {most_shared}, or "
            f"{limits.shared_memory_per_block_optin} with Kernel(max_dynamic_shared_size_bytes=...)",
        )
    if config.cluster is not None:
        _check_cluster(kernel, math.prod(config.cluster), limits)


def _check_cluster(kernel: Kernel[...], size: int, limits: Profile) -> None:
    if not limits.blocks_per_cluster:
        raise CUDAError(
            f"CUDA_ERROR_NOT_SUPPORTED: kernel {kernel.name!r}: thread-block clusters need compute capability "
            f"9.0; this device has {_joined(limits.compute_capability, '.')}"
        )
    most = limits.blocks_per_cluster
    if kernel.non_portable_cluster_size_allowed:
        most = limits.blocks_per_cluster_optin
    if size > most:
        raise invalid_launch(
            kernel.name,
            f"a cluster of {size} blocks; the maximum is {most}, or {limits.blocks_per_cluster_optin} with "
            "Kernel(non_portable_cluster_size_allowed=True)",
            "CUDA_ERROR_INVALID_CLUSTER_SIZE",
        )


def _joined(sizes: tuple[int, ...], separator: str = " x ") -> str:
    return separator.join(map(str, sizes))
