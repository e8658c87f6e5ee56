"""CudaStreamCondition: run when the device has finished the work behind the messages at an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace import gpu
from headrace._runtime import Envelope
from headrace.core.condition import Condition
from headrace.core.parameters import Converted, converted, declared, parameter
from headrace.core.ports import SchedulingStatusType, port_names
from headrace.core.values import boolean

if TYPE_CHECKING:
    from headrace import _runtime
    from headrace.core.node import Node, Queue


@declared(kw_only=False)
class CudaStreamCondition(Condition):
    """Lets an operator run when the device has finished the work behind all messages that `compute` would receive.

    It checks every message that would be received at its inputs; a message without a stream counts as finished. It
    applies in addition to the input's own condition. No thread waits for the device: the device calls back. If a
    message arrives later and its work is not finished, it stays in its queue for the next compute.

    Parameters
    ----------
    receiver
        The input.
    receivers
        The inputs, if there are several. If neither argument is given, all inputs.
    check_all_messages
        Whether it waits for all messages of its inputs, and not only for the oldest of each. A message whose work
        is not finished is not received in either case.
    """

    polled = False
    waits_for_streams = True
    port_role = "receivers"

    name = "cuda_stream_condition"
    _receiver: str | None = parameter(default=None, alias="receiver")
    _receivers: Converted[Sequence[str], tuple[str, ...]] = converted(
        port_names, default=(), alias="receivers", kw_only=True
    )
    check_all_messages: bool = parameter(default=True, convert=boolean, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ports = (*(() if self._receiver is None else (self._receiver,)), *self._receivers)
        self._queues: tuple[Queue, ...] = ()
        self._awaited: Envelope | None = None

    def join(self, node: Node) -> None:
        """Look up the queues of the inputs."""
        super().join(node)
        ports = self.ports or tuple(node.input_queues)
        self._queues = tuple(queue for port in ports for queue in node.receiver(port).queues)

    def initialize(self) -> None:
        """Restrict its inputs to messages whose work is finished, because more may arrive after the check."""
        self._awaited = None
        if self._headrace.node is None:
            return  # it is not part of a run
        # Before the run begins, so that later wrappers around an input's `take` stay outermost.
        node = cast("_runtime.Node", self._headrace.node)
        for port in node.input.ports:
            if any(queue in self._queues for queue in port.queues):
                port.take_only_done()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY if the work is finished, or else WAIT_EVENT; the device then calls back."""
        for queue in self._queues:
            # One receive empties a queue, so every message in it would be received.
            for item in queue.snapshot()[: None if self.check_all_messages else 1]:
                if type(item) is Envelope and not self._is_done(item):
                    return SchedulingStatusType.WAIT_EVENT, None
        self._awaited = None
        return SchedulingStatusType.READY, None

    def _is_done(self, message: Envelope) -> bool:
        """Return whether the work behind a message is finished; if not, request a callback for when it is."""
        for fences, number, event in message.all_fences():
            if not fences.is_complete(number, event):
                return self._is_done_by_now(message, fences, number, event)
        return True

    def _is_done_by_now(self, message: Envelope, fences: _runtime.Fences, number: int, event: Any) -> bool:
        if message is not self._awaited:
            fences.lend(event)
            if number <= fences.completed:  # by now the event may have been recorded again
                return self._is_done(message)
            self._awaited = message

            def on_done(error: Exception | None) -> None:
                self._awaited = None
                self.notify_scheduler()

            gpu.when_done(fences.stream.stream, on_done, event=event)
        return False
