"""The three objects that `compute` is given: where it receives, where it emits, and the run it is part of.

A program names them in annotations. The runtime makes them, once for each operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.core.condition import SchedulingStatusType
    from penstock.core.operator import Operator
    from penstock.gpu import StreamHandle

__all__ = ["ExecutionContext", "InputContext", "OutputContext"]


class InputContext(Protocol):
    """What `compute` receives from: its first argument."""

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take what waits at an input.

        Parameters
        ----------
        name
            The input; not needed where there is only one.
        kind
            Accepted for compatibility.

        Returns
        -------
        Any
            The object that was emitted, or None where nothing waits. On an input whose queue is longer than one, a
            tuple of all that waits; on an ``ANY_SIZE`` input, a tuple with one object of each connection.
        """

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Order the operator's stream after the work behind what it received at an input, and return the stream.

        Call it after `receive`. The wait happens on the device, not here. The stream's device becomes current, and
        what the operator emits from now on carries this stream.

        Parameters
        ----------
        input_port_name
            The input; not needed where there is only one.
        allocate
            Take a stream of the operator's own from its pool, the first time. Otherwise, or where the pool has
            none left, the first stream found at the input is used in this compute; where there is none, the
            default stream is, and none is emitted.
        sync_to_default
            Order the default stream after it too.

        Returns
        -------
        StreamHandle
            An int that also has ``__cuda_stream__``, so that every library takes it.
        """

    def receive_cuda_streams(self, input_port_name: str = "") -> list[StreamHandle | None]:
        """Return the stream of each message received at an input, None for one without; nothing is ordered."""

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Return the timestamp of the first message received at an input in this compute, or None."""

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Return the timestamps of the messages received at an input in this compute that carried one."""


class OutputContext(Protocol):
    """What `compute` emits to: its second argument."""

    def emit(self, data: Any, name: str = "", emitter_name: str = "", acq_timestamp: Any = -1) -> None:
        """Send an object to every input that is connected to an output.

        Parameters
        ----------
        data
            Any object; it is passed on as it is. A dict of arrays is sent as a TensorMap, without copying.
        name
            The output; not needed where there is only one.
        emitter_name
            Accepted for compatibility.
        acq_timestamp
            When the data was acquired, in nanoseconds, as an int of any library; it travels with the data. Unless
            given, the data carries the oldest timestamp that was received in this compute, if there was one.
            None sends none.
        """

    def set_cuda_stream(self, stream: StreamHandle | int, output_port_name: str = "") -> None:
        """Send a stream with all that is emitted at an output from now on; call it before `emit`.

        It is not needed for the stream of `receive_cuda_stream`. The stream must be one that penstock manages.
        """


class ExecutionContext(Protocol):
    """The run that `compute` is part of: its third argument."""

    @property
    def input(self) -> InputContext:
        """What this operator receives from."""

    @property
    def output(self) -> OutputContext:
        """What this operator emits to."""

    def find_operator(self, op_name: str = "") -> Operator:
        """Return the operator with a name; this one without a name."""

    def get_operator_status(self, op_name: str = "") -> SchedulingStatusType:
        """Return the scheduling status of the operator with a name; of this one without a name."""

    def allocate_cuda_stream(self, stream_name: str = "") -> StreamHandle | None:
        """Return one more stream of the operator's pool, the same for the same name; None if there is none."""

    def synchronize_streams(
        self, cuda_streams: Iterable[StreamHandle | int | None], target_cuda_stream: StreamHandle | int | None
    ) -> None:
        """Order a stream after others, on the device; None and the target itself are ignored."""

    def device_from_stream(self, stream: StreamHandle | int) -> int:
        """Return the number of the device of a stream that penstock manages."""

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device, real or simulated."""

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp, in nanoseconds, of what this compute emits without naming one.

        It is the oldest of those received so far in this compute, or None. Set it to send another.
        """

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None: ...

    @property
    def frames_in_flight(self) -> int:
        """The number of received frames that are kept because this operator's streams may still read them."""

    @property
    def frames_held(self) -> int:
        """The number of received frames that are still held, by this operator or by those it passed them on to."""

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
