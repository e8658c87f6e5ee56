"""Profiles of simulated devices: the number of SMs, their grouping and capacity, and the cost of a launch.

A profile holds the published data of a chip. Only three figures are measured: ``launch_overhead``, the time from
launching a kernel on an idle stream until its first block runs, which ``benchmarks/agreement.py`` calibrates on the
real device; ``graph_launch_overhead`` and ``graph_node_overhead``, the costs of a graph, which
``benchmarks/graph_costs.py`` calibrates. Nothing else is fitted.

The clusters of SMs matter because the driver takes its smallest groups from whole clusters. An H200 has 132
SMs, but splitting it into groups of 8 gives 15 groups and 12 remaining SMs, not 16 and 4. The clusters of the
chip are not published; those of the ``h200`` profile reproduce the driver's splits.
"""

from __future__ import annotations

from dataclasses import dataclass

_AT_LEAST_1 = (
    *("min_partition_size", "coscheduled_alignment", "threads_per_sm", "blocks_per_sm"),
    *("threads_per_block", "concurrency_limit"),
)


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of a simulated device.

    Attributes
    ----------
    clusters : tuple of int
        The number of SMs in each cluster (GPC) of the chip.
    min_partition_size, coscheduled_alignment : int
        The smallest group of SMs that the driver provides, and the number that group sizes are multiples of.
    max_grid, max_block : tuple of int
        The largest grid and block in each dimension; ``threads_per_block`` limits a block as a whole.
    shared_memory_per_block, shared_memory_per_block_optin : int
        Bytes of shared memory that a block may have by default, and if its kernel opted in to more.
    blocks_per_cluster, blocks_per_cluster_optin : int
        The same for the blocks of a thread-block cluster; 0 if the chip has no thread-block clusters.
    launch_overhead : float
        Seconds from a launch on an idle stream until its first block runs.
    graph_launch_overhead : float
        Seconds from launching a graph on an idle stream until its first node begins.
    graph_node_overhead : float
        Seconds from the end of a graph's node until a node that depends on it begins.
    copy_bandwidth : float
        Bytes per second between host and device.
    memory_bandwidth : float
        Bytes per second within the device's memory.
    operations_per_sm : float
        Operations on float32 per second of one SM, for the kernels of arrays.
    """

    name: str
    device_name: str
    compute_capability: tuple[int, int]
    clusters: tuple[int, ...]
    min_partition_size: int
    coscheduled_alignment: int
    launch_overhead: float
    graph_launch_overhead: float = 5.57e-6
    graph_node_overhead: float = 0.53e-6
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    threads_per_block: int = 1024
    max_grid: tuple[int, int, int] = (2**31 - 1, 65_535, 65_535)
    max_block: tuple[int, int, int] = (1024, 1024, 64)
    shared_memory_per_block: int = 48 << 10
    shared_memory_per_block_optin: int = 99 << 10
    blocks_per_cluster: int = 0
    blocks_per_cluster_optin: int = 0
    memory: int = 16 << 30
    copy_bandwidth: float = 25e9
    memory_bandwidth: float = 500e9
    operations_per_sm: float = 500e9
    highest_priority: int = -5
    concurrency_limit: int = 8

    def __post_init__(self) -> None:
        for name in _AT_LEAST_1:
            self._require(name, getattr(self, name) >= 1, "be at least 1")
        for name in ("copy_bandwidth", "memory_bandwidth", "operations_per_sm"):
            self._require(name, getattr(self, name) > 0, "be positive")
        for name in ("launch_overhead", "graph_launch_overhead", "graph_node_overhead"):
            self._require(name, getattr(self, name) >= 0, "not be negative")
        self._require("clusters", min(self.clusters, default=0) >= 1, "list positive SM counts")
        if self.threads_per_block > self.threads_per_sm:  # such a block could never be placed
            raise ValueError(
                f"Profile {self.name!r}: a block of {self.threads_per_block} threads does not fit on an SM "
                f"of {self.threads_per_sm}"
            )

    def _require(self, name: str, is_right: bool, must: str) -> None:
        if not is_right:
            raise ValueError(f"Profile {self.name!r}: {name} must {must}, got {getattr(self, name)}")

    @property
    def sm_count(self) -> int:
        """The number of SMs of the device."""
        return sum(self.clusters)


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            name="h200",
            device_name="NVIDIA H200 (simulated)",
            compute_capability=(9, 0),
            clusters=(18, 18, 18, 18, 18, 16, 16, 10),
            min_partition_size=8,
            coscheduled_alignment=8,
            launch_overhead=7.5e-6,
            shared_memory_per_block_optin=227 << 10,
            blocks_per_cluster=8,
            blocks_per_cluster_optin=16,
            memory=141 << 30,
            copy_bandwidth=50e9,
            memory_bandwidth=4.3e12,
        ),
        Profile(
            name="orin",
            device_name="NVIDIA Jetson AGX Orin (simulated)",
            compute_capability=(8, 7),
            clusters=(8, 8),
            min_partition_size=4,
            coscheduled_alignment=2,
            launch_overhead=15e-6,
            threads_per_sm=1536,
            blocks_per_sm=16,
            shared_memory_per_block_optin=163 << 10,
            memory=32 << 30,
            copy_bandwidth=20e9,
            memory_bandwidth=180e9,
        ),
        Profile(
            name="l4",
            device_name="NVIDIA L4 (simulated)",
            compute_capability=(8, 9),
            clusters=(12, 12, 12, 12, 10),
            min_partition_size=4,
            coscheduled_alignment=2,
            launch_overhead=8e-6,
            threads_per_sm=1536,
            blocks_per_sm=24,
            memory=24 << 30,
            memory_bandwidth=270e9,
        ),
    )
}


def find_profile(which: str | Profile) -> Profile:
    """Return the profile of that name, or the given profile."""
    if isinstance(which, Profile):
        return which
    try:
        return PROFILES[which]
    except KeyError:
        raise ValueError(f"unknown profile {which!r}; the profiles are {', '.join(PROFILES)}") from None
