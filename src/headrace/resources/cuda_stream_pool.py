"""CudaStreamPool: streams for operators."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

from headrace import gpu
from headrace._runtime import ManagedStream, StreamSource, create_event
from headrace.core.errors import GraphError
from headrace.core.parameters import declared, parameter
from headrace.gpu.backend import active
from headrace.resources.cuda_green_context import CudaGreenContext, CudaGreenContextPool

_NON_BLOCKING = 1


@declared(kw_only=False)
class CudaStreamPool(StreamSource):
    """Streams on one device, created when needed and destroyed at the end of the last run that uses them.

    Parameters
    ----------
    fragment
        The fragment it belongs to.
    dev_id
        The device.
    stream_flags
        0, or 1 for streams that are not ordered with the default stream; streams of a green context never are.
    stream_priority
        0, or a negative number for a higher priority.
    reserved_size
        The number of streams to create at the start of the run.
    max_size
        The maximum number of streams; 0 means no limit.
    cuda_green_context
        The partition that the streams belong to; a pool stands for its default partition. Without it, streams may
        use all SMs.
    """

    name = "cuda_stream_pool"
    dev_id: int = parameter(default=0, minimum=0)
    stream_flags: int = parameter(default=0, choices=(0, _NON_BLOCKING))
    stream_priority: int = parameter(default=0, maximum=0)
    reserved_size: int = parameter(default=1, minimum=0)
    max_size: int = parameter(default=0, minimum=0)
    cuda_green_context: CudaGreenContext | CudaGreenContextPool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_size and self.reserved_size > self.max_size:
            raise ValueError(
                f"{self.name!r}: reserved_size={self.reserved_size} is more than max_size={self.max_size}"
            )
        context = self.cuda_green_context
        if not isinstance(context, CudaGreenContext | CudaGreenContextPool | None):
            raise TypeError(
                f"{self.name!r}: cuda_green_context must be a CudaGreenContext or a CudaGreenContextPool, not "
                f"{context!r}"
            )
        if context is not None and context.dev_id != self.dev_id:
            raise ValueError(
                f"{self.name!r} is on device {self.dev_id}, but its green context is on device {context.dev_id}"
            )
        self._made: list[ManagedStream] = []
        self._free: deque[ManagedStream] = deque()

    @property
    def stands_on(self) -> StreamSource | None:
        """The slice of the device that its streams belong to."""
        return self.cuda_green_context

    @property
    def limit(self) -> int:
        """The largest number of its streams; 0 if there is none."""
        return self.max_size

    def check(self) -> None:
        """Raise if there is no such device."""
        if self.dev_id and active().has_devices:  # device 0 exists if any device does
            count = len(gpu.Device.get_all_devices())
            if self.dev_id >= count:
                raise GraphError(
                    f"{self.name!r} is on device {self.dev_id}, but there are {count} devices, numbered from 0"
                )

    def _open(self) -> None:
        for _ in range(self.reserved_size):
            self._free.append(self._make())

    def _take(self) -> ManagedStream | None:
        if self._free:
            return self._free.popleft()
        if self.max_size and len(self._made) >= self.max_size:
            return None
        return self._make()

    def _give_back(self, managed: ManagedStream) -> None:
        self._free.append(managed)

    def _close(self) -> None:
        made, self._made = self._made, []
        self._free.clear()
        for managed in made:
            managed.stream.close()

    def _make(self) -> ManagedStream:
        context = self.cuda_green_context
        if context is not None:
            managed = context.create_stream(self.stream_priority)
        else:
            with gpu.on_device(self.dev_id):  # creating a stream needs a current context
                stream: Any = gpu.Device(self.dev_id).create_stream(
                    options=gpu.StreamOptions(
                        nonblocking=bool(self.stream_flags & _NON_BLOCKING), priority=self.stream_priority
                    )
                )
            managed = ManagedStream(stream, self.dev_id, partial(create_event, self.dev_id))
        self._made.append(managed)
        return managed
