"""The three arguments of `compute`: the inputs to receive from, the outputs to emit to, and the context of the run.

A program names these types in annotations. The runtime creates the objects, once for each operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from headrace.core.metadata import MetadataDictionary
    from headrace.core.operator import Operator
    from headrace.core.ports import OperatorStatus
    from headrace.gpu import StreamHandle


class InputContext(Protocol):
    """The inputs of an operator: the first argument of `compute`."""

    def receive(self, name: str = "", *, kind: str = "") -> Any:
        """Take the waiting message or messages from an input.

        Parameters
        ----------
        name
            The input; not needed where there is only one.
        kind
            ``"single"`` for one message, ``"multi"`` for a tuple of all that wait, whatever the input declares.

        Returns
        -------
        Any
            The emitted object, or None if no message waits. On an input whose queue is longer than one, a tuple of
            all waiting messages; on an ``ANY_SIZE`` input, a tuple with one object from each connection.
        """

    def has_ended(self, name: str = "") -> bool:
        """Return whether all operators that send to an input have ended; messages may still wait there.

        Parameters
        ----------
        name
            The input; not needed where there is only one.
        """

    def receive_cuda_stream(
        self, input_port_name: str = "", allocate: bool = True, sync_to_default: bool = False
    ) -> StreamHandle:
        """Return the operator's stream, which comes after the work behind everything that was received.

        Call it after `receive`. The stream waits on the device; this call does not wait. It is the stream that is
        current for libraries in `compute`, and its device is current.

        Parameters
        ----------
        input_port_name
            The input; not needed where there is only one.
        allocate
            Accepted for compatibility: every operator has a stream. If its pool has none left for it, that is the
            default stream of the device.
        sync_to_default
            Whether to order the default stream after it too, and what is emitted after the default stream.

        Returns
        -------
        StreamHandle
            An int that also has ``__cuda_stream__``, so that every library takes it.
        """

    def receive_cuda_streams(self, input_port_name: str = "") -> list[StreamHandle | None]:
        """Return the stream of each message received at an input, or None if its sender has none."""

    def get_acquisition_timestamp(self, input_port_name: str = "") -> int | None:
        """Return the timestamp of the first message received at an input in this compute, or None."""

    def get_acquisition_timestamps(self, input_port_name: str = "") -> list[int | None]:
        """Return the timestamps of the messages received at an input in this compute that carried one."""


class OutputContext(Protocol):
    """The outputs of an operator: the second argument of `compute`."""

    def emit(
        self,
        data: Any,
        name: str = "",
        emitter_name: str = "",
        acq_timestamp: Any = -1,
        *,
        after: Any = None,
        constant: bool = False,
    ) -> None:
        """Send an object to every input that is connected to an output.

        What was emitted must not be changed while others may read it.

        Parameters
        ----------
        data
            Any object; it is passed on unchanged. Each receiver of a dict gets a dict of its own, with the same
            keys and values. Arrays are never copied.
        name
            The output; not needed where there is only one.
        emitter_name
            Accepted for compatibility.
        acq_timestamp
            When the data was acquired, in nanoseconds, as an int of any library; it travels with the data. By
            default, the data carries the oldest timestamp received in this compute, if any. None sends no
            timestamp.
        after
            An event of any library, or a list of events, that what makes the data is complete with: for data that
            was made on other streams, as by a thread of the program.
        constant
            Whether the data is never changed, such as a table that is sent again and again.
        """

    def set_cuda_stream(self, stream: StreamHandle | int, output_port_name: str = "") -> None:
        """Attach a stream to all messages emitted at an output from now on; call it before `emit`.

        It is not needed for the operator's own stream. The stream must be one that headrace manages. It is ordered
        after the operator's other streams before each message.
        """


class ExecutionContext(Protocol):
    """The context of the run: the third argument of `compute`."""

    @property
    def input(self) -> InputContext:
        """The inputs of this operator."""

    @property
    def output(self) -> OutputContext:
        """The outputs of this operator."""

    def find_operator(self, op_name: str = "") -> Operator:
        """Return the operator with the given name; without a name, this operator.

        In an application of several fragments, an operator of the same fragment is also found by the name that it
        has there.
        """

    def get_operator_status(self, op_name: str = "") -> OperatorStatus:
        """Return what the operator with the given name does; without a name, this operator.

        It takes no lock. What other operators do may have changed when the answer arrives.
        """

    def allocate_cuda_stream(self, stream_name: str = "") -> StreamHandle | None:
        """Return the operator's stream of this name, from its pool at the first call; None if none is left."""

    def synchronize_streams(
        self, cuda_streams: Iterable[StreamHandle | int | None], target_cuda_stream: StreamHandle | int | None
    ) -> None:
        """Order a stream after others, on the device; None and the target itself are ignored."""

    def device_from_stream(self, stream: StreamHandle | int) -> int:
        """Return the number of the device of a stream that headrace manages."""

    def knob(self, name: str, dtype: Any, value: Any = None) -> Any:
        """Return a scalar in device memory, whose value may change from frame to frame.

        It is for values that kernels use, such as a gain. Work on the device reads it, so a segment that was
        recorded (`Fragment.capture`) sees a new value, while a number that `compute` passes to a kernel stays what
        it was. It may be used in any operator, on the streams that the operator has from this context.

        The value is that of the operator's attribute of this name, such as a parameter, whose changes it follows.
        If there is none, it is what :meth:`Operator.set_knob` set last, else `value`, else 0. It is read when a
        compute begins, or a frame of a segment, and never changes in the middle of one. Work that is still to be
        done for earlier frames sees the earlier value.

        Parameters
        ----------
        name
            The name of the knob.
        dtype
            Its type, always the same: bool, integers, floats and complex numbers of 1 to 16 bytes.
        value
            The value until somebody sets another; always the same.

        Returns
        -------
        Tensor
            A tensor of shape (), always the same, which every library takes; ``tensor.owner.buffer`` is for
            `gpu.launch`. Its memory lasts as long as the run. Send a copy of it, not the tensor itself.
        """

    @property
    def is_gpu_available(self) -> bool:
        """Whether there is a device, real or simulated."""

    @property
    def acq_timestamp(self) -> Any:
        """The acquisition timestamp, in nanoseconds, of messages that this compute emits without an explicit one.

        It is the oldest timestamp received so far in this compute, or None. Set it to send a different one.
        """

    @acq_timestamp.setter
    def acq_timestamp(self, timestamp: Any) -> None: ...

    @property
    def due(self) -> int | None:
        """When this compute was due by the operator's `PeriodicCondition`, in nanoseconds of the run's clock.

        None without one, and at the first tick, which comes at once.
        """

    @property
    def metadata(self) -> MetadataDictionary:
        """The operator's metadata; of an operator that joins its inputs, by port: ``metadata["left"]``."""

    @property
    def frames_in_flight(self) -> int:
        """The number of received frames that are kept because this operator's streams may still read them."""

    @property
    def frames_held(self) -> int:
        """The number of received frames that this operator, or operators it passed them on to, still hold."""

    @property
    def timestamp(self) -> int:
        """The time of the run's clock in nanoseconds."""
