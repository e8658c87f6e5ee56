"""CudaStreamCondition: run when the work behind what waits at an input is done on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from penstock import gpu
from penstock._runtime import Message, is_passed
from penstock.core.condition import Condition, SchedulingStatusType

if TYPE_CHECKING:
    from penstock import _runtime
    from penstock.core.fragment import Fragment
    from penstock.core.protocols import Node, Queue

__all__ = ["CudaStreamCondition"]


class CudaStreamCondition(Condition):
    """Lets an operator run when the device is done with everything that its `compute` would take.

    It looks at every message that would be received, at all of the inputs it was given. A message that came
    without a stream does not hold it back. It comes beside the input's own condition, and no thread waits for
    it: it asks to be told. A message that arrives after it looked, and that the device is not done with, is left
    for the next time.

    Parameters
    ----------
    receiver
        The input.
    receivers
        Several inputs.
    """

    polled = False
    port_role = "receivers"

    def __init__(
        self,
        fragment: Fragment | None = None,
        receiver: str | None = None,
        *,
        receivers: Sequence[str] = (),
        name: str = "cuda_stream_condition",
    ) -> None:
        super().__init__(fragment, name=name)
        self.ports = (*([receiver] if receiver is not None else []), *receivers)
        self._queues: tuple[Queue, ...] = ()
        self._awaited: Message | None = None

    def join(self, node: Node) -> None:
        """Find the inputs' queues."""
        super().join(node)
        self._awaited = None
        ports = self.ports or tuple(node.input_queues)
        self._queues = tuple(queue for port in ports for queue in node.receiver(port).queues)

    def initialize(self) -> None:
        """Have its inputs give out only what the device is done with: more may arrive after it was asked."""
        if self._node is None:
            return  # it is not part of a run
        # Before the run begins: what is put around an input's `take` then, by others, stays around it.
        node = cast("_runtime.Node", self._node)
        for inlet in node.input.inlets:
            if any(queue in self._queues for queue in inlet.queues):
                inlet.take_only_done()

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Give READY when the device is done, or WAIT_EVENT, having asked to be told."""
        for queue in self._queues:
            # A queue is emptied by one receive, whatever its length, and has one message where it has length 1.
            for item in queue.snapshot():
                if type(item) is Message and not self._is_done(item):
                    return SchedulingStatusType.WAIT_EVENT, None
        self._awaited = None
        return SchedulingStatusType.READY, None

    def _is_done(self, message: Message) -> bool:
        """Say whether the device is done with a message, and if not, see to it that it is told when it is."""
        for trail, number, event in message.marks():
            if not is_passed(trail, number, event):
                return self._is_done_by_now(message, trail, number, event)
        return True

    def _is_done_by_now(self, message: Message, trail: _runtime.Trail, number: int, event: Any) -> bool:
        if message is not self._awaited:
            trail.lend(event)
            if number <= trail.passed:  # so late that the event may be another mark's by now
                return self._is_done(message)
            self._awaited = message

            def told(error: Exception | None) -> None:
                self._awaited = None
                self.notify_scheduler()

            gpu.when_done(trail.stream.stream, told, event=event)
        return False
