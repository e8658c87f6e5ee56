"""MemberContext: the context of an operator of a segment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace._runtime.contexts.execution import ExecutionContext

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime.capture.recorded_contexts import RecordedCompute
    from headrace._runtime.scheduling.node import Node

__all__ = ["MemberContext"]


class MemberContext(ExecutionContext):
    """The context of an operator of a segment: that of the run or, while it is recorded, that of the recording."""

    __slots__ = ("recorded",)

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.recorded: RecordedCompute | None = None

    def record(self, compute: RecordedCompute | None) -> None:
        """Stand for the context of a compute that is recorded, or again for that of the run."""
        self.recorded = compute
        self.input = self._node.input if compute is None else compute
        self.output = self._node.output if compute is None else compute

    def allocate_cuda_stream(self, stream_name: str = "") -> gpu.StreamHandle | None:
        """Return the operator's stream of this name."""
        if self.recorded is not None:
            return self.recorded.allocate_cuda_stream(stream_name)
        return super().allocate_cuda_stream(stream_name)

    def synchronize_streams(self, cuda_streams: Iterable[Any], target_cuda_stream: Any) -> None:
        """Order a stream after others, on the device."""
        if self.recorded is not None:
            self.recorded.synchronize_streams(cuda_streams, target_cuda_stream)
        else:
            super().synchronize_streams(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: Any) -> int:
        """Return the number of the device of a stream that headrace manages."""
        if self.recorded is not None:
            return int(stream.device.device_id)
        return super().device_from_stream(stream)

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp of messages that this compute emits."""
        if self.recorded is not None:
            self.recorded._refuse_timestamp()
        return super().acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        if self.recorded is not None:
            self.recorded._refuse_timestamp()
        self._choose_timestamp(timestamp)

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        if self.recorded is not None:
            self.recorded.refuse_clock()
        return super().timestamp
