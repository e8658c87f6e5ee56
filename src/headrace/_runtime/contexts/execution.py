"""ExecutionContext: the third argument of `compute`.

The interface that programs see is described in `core/contexts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace._runtime.contexts.output import whole_timestamp
from headrace.core.condition import ticks_of

if TYPE_CHECKING:
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.core.metadata import MetadataDictionary
    from headrace.core.operator import Operator
    from headrace.gpu import StreamHandle


class ExecutionContext:
    """The context of a run, as `compute` uses it; created once and reused."""

    __slots__ = ("_node", "input", "output")

    def __init__(self, node: RunningOperator) -> None:
        self._node = node
        self.input = node.input
        self.output = node.output

    def find_operator(self, op_name: str = "") -> Operator:
        """Return an operator of this fragment by name; without a name, this operator."""
        operator = self._node.operator
        return operator.fragment._headrace.find_operator(op_name) if op_name else operator

    def get_operator_status(self, op_name: str = "") -> Any:
        """Return what an operator does; without a name, this operator."""
        operator = self.find_operator(op_name)
        if operator is None:  # type: ignore[redundant-expr, unused-ignore]  # a fragment may answer so
            raise RuntimeError(f"there is no operator {op_name!r}")
        node = operator._headrace.node
        return operator._headrace.run_phase if node is None else node.activity()

    def allocate_cuda_stream(self, stream_name: str = "") -> StreamHandle | None:
        """Return the operator's stream of this name, from its pool at the first call; None if none is left."""
        handle: StreamHandle | None = self._node.streams.allocate(stream_name)
        return handle

    def synchronize_streams(
        self, cuda_streams: Iterable[StreamHandle | int | None], target_cuda_stream: StreamHandle | int | None
    ) -> None:
        """Order a stream after others, on the device; None and the target itself are skipped."""
        self._node.streams.synchronize_streams(cuda_streams, target_cuda_stream)

    def device_from_stream(self, stream: StreamHandle | int) -> int:
        """Return the number of the device of a stream that headrace manages."""
        return self._node.streams.device_of(stream)

    def knob(self, name: str, dtype: Any, value: Any = None) -> Any:
        """Return a scalar in device memory, whose value may change from frame to frame."""
        return self._node.streams.knob(name, dtype, value)

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device, real or simulated."""
        return self._node.streams.is_gpu_available

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp, in nanoseconds, of messages that this compute emits without an explicit one.

        It is the oldest timestamp received so far in this compute, or None. Set it to send a different one.
        """
        return self.output.acq_timestamp

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None:
        self._node.expect_details()
        self.output.choose(None if timestamp is None else whole_timestamp(timestamp))

    @property
    def due(self) -> int | None:
        """When this compute was due by the operator's clock, in nanoseconds; None if nobody knows."""
        ticks = ticks_of(self._node.operator.conditions.values())
        return None if ticks is None else ticks.due

    @property
    def metadata(self) -> MetadataDictionary:
        """The operator's metadata; of an operator that joins its inputs, by port."""
        return self._node.operator.metadata

    @property
    def frames_in_flight(self) -> int:
        """The number of received frames that are kept because the operator's stream may still read them."""
        lifetimes = self._node.lifetimes
        return 0 if lifetimes is None else lifetimes.frames.count

    @property
    def frames_held(self) -> int:
        """The number of received frames that this operator, or operators it passed them on to, still hold."""
        lifetimes = self._node.lifetimes
        return 0 if lifetimes is None else len(lifetimes.held.watched)

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
        return self._node.clock.timestamp()
