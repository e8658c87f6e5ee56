"""RunningOperator: an operator in a run, as its contexts and its streams see it.

The engine adds what scheduling needs (`scheduling.node.Node`). So the contexts and the streams know nothing of
schedulers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.streams.context_protocols import Inputs, Outputs
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace._runtime.streams.node_streams import NodeStreams
    from headrace.core.clock import Clock
    from headrace.core.operator import Operator


class RunningOperator:
    """An operator in a run.

    The clock, the queues and the contexts are set before the run begins. The rest is changed in the operator's
    computes, except `remaining`, which the engine changes after each of them.

    Attributes
    ----------
    input_queues, output_queues
        The queues by port.
    inputs, outputs
        The same as flat tuples.
    compute
        What runs as its compute.
    lifetimes
        The received frames that its streams may still read, once it uses streams.
    has_extra_work
        Whether its step consists of more than its compute.
    has_details
        Whether it has metadata, a timestamp, or details of received messages to clear after its compute.
    remaining
        The number of computes left; without a limit, it counts down from -1. It is different in each compute.
    """

    __slots__ = (
        *("clock", "compute", "context", "has_details", "has_extra_work", "input", "input_queues", "inputs"),
        *("lifetimes", "operator", "output", "output_queues", "outputs", "remaining", "streams"),
    )

    def __init__(self, operator: Operator, clock: Clock) -> None:
        self.operator = operator
        self.clock = clock
        self.input: Inputs
        self.output: Outputs
        self.context: Any
        self.streams: NodeStreams
        self.input_queues: dict[str, tuple[Queue, ...]] = {}
        self.output_queues: dict[str, tuple[Queue, ...]] = {}
        self.inputs: tuple[Queue, ...] = ()
        self.outputs: tuple[Queue, ...] = ()
        self.compute = operator.compute
        self.lifetimes: Lifetimes | None = None
        self.has_extra_work = False
        self.has_details = False
        self.remaining = -1

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self.operator.name

    def expect_details(self) -> None:
        """From now on, clear the metadata and timestamps of messages after each compute."""
        self.has_extra_work = self.has_details = True

    def clear_details(self) -> None:
        """Clear the metadata and timestamps of one compute's messages."""
        self.operator.metadata.clear()
        self.input.clear()
        self.output.clear()
        self.has_details = False
