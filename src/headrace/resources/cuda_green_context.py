"""CudaGreenContextPool: a device in partitions, for the streams of operators; CudaGreenContext: one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime import ManagedStream, StreamSource, create_event
from headrace.core.errors import choices
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.gpu.backend import active
from headrace.gpu.partitions import counts_by_name

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime import ManagedStream


@declared(kw_only=False)
class CudaGreenContextPool(StreamSource):
    """The SMs of a device, divided into partitions.

    The device is divided from the start of the first run that uses the pool to the end of the last.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device.
    flags
        Accepted for compatibility; must be 0.
    num_partitions
        The number of partitions; not needed if `sms_per_partition` is given.
    sms_per_partition
        The number of SMs of each partition, as a sequence or by name: ``[16, 40]`` or ``{"control": 16, "vision":
        40}``. Empty means equal shares. Counts that the device cannot provide exactly are rounded up. The remaining
        SMs form a last partition, named ``leftover``.
    default_context_index
        The default partition, by position or by name; the last one unless set.
    min_sm_size
        The smallest number of SMs that may be requested for a partition.
    """

    divides = True

    name = "cuda_green_context_pool"
    dev_id: int = parameter(default=0, minimum=0)
    flags: int = parameter(default=0, choices=(0,))
    num_partitions: int = 0
    _sms: Sequence[int] | Mapping[str, int] = parameter(default=(), alias="sms_per_partition")
    default_context_index: int | str = -1
    min_sm_size: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self._request = counts_by_name(self._sms, "sms_per_partition", f"{self.name!r}: ")
        counts, number = self.sms_per_partition, self.num_partitions
        if counts and number and number != len(counts):
            raise ValueError(
                f"{self.name!r}: num_partitions={number}, but sms_per_partition has {len(counts)}: {counts}"
            )
        if not counts and number < 1:
            raise ValueError(f"{self.name!r} needs num_partitions or sms_per_partition")
        self.num_partitions = number or len(counts)
        for partition, count in self._request.items():
            if count < self.min_sm_size:
                raise gpu.PartitionError(
                    f"{self.name!r}: partition {partition!r} requests {count} SMs, which is less than "
                    f"min_sm_size={self.min_sm_size}"
                )
        self._partitions: gpu.Partitions | None = None

    @property
    def sms_per_partition(self) -> list[int]:
        """The number of SMs requested for each partition; empty for equal shares."""
        return list(self._request.values())

    @property
    def names(self) -> list[str]:
        """The names of the requested partitions, or their positions if they have no names."""
        return list(self._request) or [str(position) for position in range(self.num_partitions)]

    @property
    def plan(self) -> gpu.Plan:
        """The partitions that the device would provide; nothing is created on it."""
        partitions = self._partitions
        if partitions is not None:
            return partitions.plan
        device = self._device()
        try:
            return gpu.partition(device, self._counts(device), dry_run=True)
        except gpu.PartitionError as error:
            raise gpu.PartitionError(f"{self.name!r}: {error}") from None

    @property
    def sm_counts(self) -> list[int]:
        """The number of SMs that each partition gets, the leftover last."""
        return [share.sm_count for share in self.plan]

    @property
    def slice(self) -> gpu.Share:
        """The default partition, with its SM count."""
        return self.share()

    def share(self, index: int | str | None = None) -> gpu.Share:
        """Return the share of a partition, by position or by name, or of the default one."""
        return self.plan[self._position(index, self.plan)]

    def partition(self, index: int | str | None = None) -> gpu.Partition:
        """Return a partition by position or by name, or the default one; a run must be using the pool."""
        with self._lock:
            if self._partitions is None:
                raise RuntimeError(
                    f"{self.name!r} divides device {self.dev_id} only while a run uses it, and no run uses it now; "
                    "gpu.partition divides a device without a run"
                )
            return self._partitions[self._position(index, self._partitions.plan)]

    def create_stream(self, priority: int, index: int | str | None = None) -> ManagedStream:
        """Create a stream whose work runs on one partition only; the caller closes it."""
        context = self.partition(index).context
        with gpu.on_device(self.dev_id):  # creating a stream needs a current context
            stream: Any = context.create_stream(gpu.StreamOptions(priority=priority))
        return ManagedStream(stream, self.dev_id, partial(create_event, self.dev_id))

    def check(self, index: int | str | None = None) -> None:
        """Raise if the device cannot be divided like this, or has no such partition; create nothing on it."""
        if not active().has_devices:
            # Without a device it is unknown whether SMs remain, so allow the leftover.
            self._position(index, [*self.names, "leftover"])
        else:
            self.share(index)

    def joined_with(self, other: StreamSource) -> str:
        """Return the arguments of a pool that has the partitions of both."""
        assert isinstance(other, CudaGreenContextPool)
        if not (self._request and other._request):
            return f"num_partitions={self.num_partitions + other.num_partitions}"
        both = {**self._request, **other._request}
        have_names = isinstance(self._sms, Mapping) and isinstance(other._sms, Mapping)
        if have_names and len(both) == len(self._request) + len(other._request):
            return f"sms_per_partition={both}"
        return f"sms_per_partition={self.sms_per_partition + other.sms_per_partition}"

    def _open(self) -> None:
        device = self._device()
        self._partitions = gpu.partition(device, self._counts(device))

    def _take(self) -> ManagedStream:
        return self.create_stream(0)

    def _close(self) -> None:
        partitions, self._partitions = self._partitions, None
        if partitions is not None:
            partitions.close()

    def _position(self, index: int | str | None, shares: gpu.Plan | Sequence[str]) -> int:
        """Return the position of the selected partition, counted from 0."""
        chosen = self.default_context_index if index is None else index
        names = [share if isinstance(share, str) else share.name for share in shares]
        if isinstance(chosen, str):
            if chosen in names:
                return names.index(chosen)
            raise gpu.PartitionError(f"{self.name!r} has no partition {chosen!r}; it has {choices(names)}")
        if not isinstance(chosen, int) or isinstance(chosen, bool):
            raise TypeError(
                f"{self.name!r}: a partition must be given by position or by name, not {chosen!r}"
            )
        count = len(names)
        if -count <= chosen < count:
            return chosen % count
        sizes = [share.sm_count for share in shares if not isinstance(share, str)]
        have = f"{count} partitions of {sizes} SMs" if sizes else f"at most {count} partitions"
        raise gpu.PartitionError(f"{self.name!r} has {have}, so no index {chosen}; use 0 to {count - 1}")

    def _device(self) -> Any:
        count = len(gpu.Device.get_all_devices())
        if self.dev_id >= count:
            raise gpu.PartitionError(
                f"{self.name!r} divides device {self.dev_id}, but there are {count} devices, numbered from 0"
            )
        return gpu.Device(self.dev_id)

    def _counts(self, device: Any) -> Sequence[int] | Mapping[str, int]:
        if self._request:
            return self._request
        sm = device.resources.sm
        step = max(sm.coscheduled_alignment, sm.min_partition_size)
        least = max(step, self.min_sm_size)
        share = sm.sm_count // self.num_partitions // step * step
        if share < least:
            raise gpu.PartitionError(
                f"{self.num_partitions} equal partitions of {sm.sm_count} SMs would have fewer than {least} SMs "
                f"each; at most {sm.sm_count // (-(-least // step) * step)} are possible"
            )
        return [share] * self.num_partitions


def _pool(pool: object, what: str) -> CudaGreenContextPool:
    if not isinstance(pool, CudaGreenContextPool):
        raise TypeError(f"{what} must be the CudaGreenContextPool it is a partition of, not {pool!r}")
    return pool


def _chosen(index: Any, what: str) -> Any:
    return None if index == -1 else index


@declared(kw_only=False)
class CudaGreenContext(StreamSource):
    """A slice of a device: one partition of a pool, by position or by name.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    cuda_green_context_pool
        The pool.
    index
        The partition, by position or by name; -1 means the pool's default one.
    """

    name = "cuda_green_context"
    pool: Converted[CudaGreenContextPool | None, CudaGreenContextPool] = converted(
        _pool, default=None, alias="cuda_green_context_pool"
    )
    index: Converted[int | str, int | str | None] = converted(_chosen, default=-1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool is None:
            raise TypeError(
                f"{self.name!r} needs cuda_green_context_pool=, the CudaGreenContextPool it is a partition of"
            )
        self.dev_id = self.pool.dev_id

    @property
    def stands_on(self) -> StreamSource:
        """The pool it is a partition of."""
        return self.pool

    @property
    def slice(self) -> gpu.Share:
        """The partition, with its SM count."""
        return self.pool.share(self.index)

    @property
    def sm_count(self) -> int:
        """The number of SMs it gets."""
        return self.pool.share(self.index).sm_count

    def check(self) -> None:
        """Raise if the pool has no such partition."""
        self.pool.check(self.index)

    def create_stream(self, priority: int) -> ManagedStream:
        """Create a stream whose work runs on this slice only; the caller closes it."""
        return self.pool.create_stream(priority, self.index)

    def _take(self) -> ManagedStream:
        return self.create_stream(0)
