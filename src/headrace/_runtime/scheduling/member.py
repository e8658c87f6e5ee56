"""The node and the context of an operator that is a member of a group.

They derive from compiled classes, so they are compiled as well, and have a file of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace._runtime.contexts.execution import ExecutionContext
from headrace._runtime.scheduling.node import Node

if TYPE_CHECKING:
    from headrace import gpu
    from headrace._runtime.scheduling.direct_compute import DirectCompute
    from headrace._runtime.scheduling.engine import Engine
    from headrace.core.operator import Operator


class MemberNode(Node):
    """An operator of a group: it computes when the group does, and is not scheduled itself.

    Attributes
    ----------
    replayed
        Returns the number of frames that passed without a compute of its own, which count as computes.
    """

    __slots__ = ("_scheduled", "replayed")

    def __init__(self, engine: Engine, operator: Operator) -> None:
        super().__init__(engine, operator)
        self._scheduled: Node = self
        self.replayed: Callable[[], int] = int

    @property
    def computes(self) -> int:
        """The number of frames that it has computed or that were replayed."""
        return self.granted - self.remaining + self.replayed()

    @property
    def scheduled(self) -> Node:
        """The node that is scheduled in its place."""
        return self._scheduled

    @scheduled.setter
    def scheduled(self, node: Node) -> None:
        self._scheduled = node

    def status(self) -> Any:
        """Return the state of the group."""
        return self._scheduled.status()

    def announce(self) -> None:
        """Announce that something the group waits for may have happened."""
        self._scheduled.announce()

    def request_stop(self) -> None:
        """Never run the group again: without this operator it has nothing to do."""
        self.stop_requested = True
        self._scheduled.request_stop()


class MemberContext(ExecutionContext):
    """The context of an operator of a group: that of the run or, in a direct compute, that of the compute."""

    __slots__ = ("direct",)

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.direct: DirectCompute | None = None

    def stand_for(self, compute: DirectCompute | None) -> None:
        """Stand for the context of a direct compute, or again for that of the run."""
        self.direct = compute
        self.input = self._node.input if compute is None else compute
        self.output = self._node.output if compute is None else compute

    def allocate_cuda_stream(self, stream_name: str = "") -> gpu.StreamHandle | None:
        """Return the operator's stream of this name."""
        if self.direct is not None:
            return self.direct.allocate_cuda_stream(stream_name)
        return super().allocate_cuda_stream(stream_name)

    def synchronize_streams(self, cuda_streams: Iterable[Any], target_cuda_stream: Any) -> None:
        """Order a stream after others, on the device."""
        if self.direct is not None:
            self.direct.synchronize_streams(cuda_streams, target_cuda_stream)
        else:
            super().synchronize_streams(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: Any) -> int:
        """Return the number of the device of a stream that headrace manages."""
        if self.direct is not None:
            return int(stream.device.device_id)
        return super().device_from_stream(stream)

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp of messages that this compute emits."""
        if self.direct is not None:
            self.direct.refuse_timestamp()
        return super().acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        if self.direct is not None:
            self.direct.refuse_timestamp()
        self._choose_timestamp(timestamp)

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        if self.direct is not None:
            self.direct.refuse_clock()
        return super().timestamp
