"""CudaGreenContextPool: a device divided into partitions that operators' streams can belong to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.runtime.managed_stream import ManagedStream, create_event
from penstock.runtime.stream_source import StreamSource

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["CudaGreenContextPool"]


class CudaGreenContextPool(StreamSource):
    """A device's SMs, divided.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device.
    flags
        Taken for compatibility; must be 0.
    num_partitions
        How many partitions; not needed where `sms_per_partition` is given.
    sms_per_partition
        The SMs of each; empty means equal shares. Counts the device has no groups for are rounded up.
        What is left over becomes one more partition.
    default_context_index
        The partition that is meant where no index is given: the last one unless set.
    min_sm_size
        The fewest SMs a partition may be asked for.
    """

    def __init__(
        self,
        fragment: Fragment | None = None,
        dev_id: int = 0,
        flags: int = 0,
        num_partitions: int = 0,
        sms_per_partition: Sequence[int] = (),
        default_context_index: int = -1,
        min_sm_size: int = 2,
        *,
        name: str = "cuda_green_context_pool",
    ) -> None:
        super().__init__(fragment, name=name)
        if flags:
            raise ValueError(f"{name!r}: flags must be 0, not {flags}")
        counts = list(sms_per_partition)
        if counts and num_partitions and num_partitions != len(counts):
            raise ValueError(
                f"{name!r}: num_partitions={num_partitions}, but sms_per_partition has {len(counts)}: {counts}"
            )
        if not counts and num_partitions < 1:
            raise ValueError(f"{name!r} needs num_partitions or sms_per_partition")
        for count in counts:
            if count < min_sm_size:
                raise ValueError(
                    f"{name!r}: a partition of {count} SMs is less than min_sm_size={min_sm_size}"
                )
        self.dev_id = dev_id
        self.num_partitions = num_partitions or len(counts)
        self.sms_per_partition = counts
        self.default_context_index = default_context_index
        self.min_sm_size = min_sm_size
        self._partitions: gpu.Partitions | None = None
        self._streams: list[Any] = []

    @property
    def plan(self) -> gpu.Plan:
        """What the device gives, asked without making anything."""
        if self._partitions is not None:
            return self._partitions.plan
        return gpu.partition(gpu.Device(self.dev_id), self._counts(), dry_run=True)

    @property
    def sm_counts(self) -> list[int]:
        """The SMs that each partition really gets, the leftover last."""
        return [share.sm_count for share in self.plan]

    def partition(self, index: int | None = None) -> gpu.Partition:
        """Give a partition by index, or the default one; the device is divided at the first call of a run."""
        if self._partitions is None:
            self._partitions = gpu.partition(gpu.Device(self.dev_id), self._counts())
        count = len(self._partitions)
        chosen = self.default_context_index if index is None else index
        if not -count <= chosen < count:
            sizes = [partition.sm_count for partition in self._partitions]
            raise IndexError(
                f"{self.name!r} has {count} partitions of {sizes} SMs, so no index {chosen}; 0 to {count - 1}"
            )
        return self._partitions[chosen]

    def take(self) -> ManagedStream:
        """Give a new stream of the default partition, for an operator that was given the pool itself."""
        return self.create_stream(0)

    def create_stream(self, priority: int, index: int | None = None) -> ManagedStream:
        """Make a stream whose work runs on one partition only, the default one unless `index` says which."""
        partition = self.partition(index)
        gpu.Device(self.dev_id).set_current()  # a stream is made on a thread that has a context
        stream = partition.context.create_stream(gpu.StreamOptions(priority=priority))
        self._streams.append(stream)
        return ManagedStream(stream, self.dev_id, partial(create_event, self.dev_id))

    def release(self) -> None:
        """Close the streams and the partitions."""
        while self._streams:
            self._streams.pop().close()
        partitions, self._partitions = self._partitions, None
        if partitions is not None:
            partitions.close()

    def _counts(self) -> list[int]:
        if self.sms_per_partition:
            return self.sms_per_partition
        sm = gpu.Device(self.dev_id).resources.sm
        step = max(sm.coscheduled_alignment, sm.min_partition_size)
        share = sm.sm_count // self.num_partitions // step * step
        if share < step:
            raise gpu.PartitionError(
                f"{self.name!r}: {self.num_partitions} equal partitions of {sm.sm_count} SMs would have fewer "
                f"than {step} SMs each; at most {sm.sm_count // step} are possible"
            )
        return [share] * self.num_partitions
