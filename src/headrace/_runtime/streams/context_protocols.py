"""The contexts of an operator (`_runtime.contexts`), as its streams and the engine use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.contexts import InputContext, OutputContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.messages.ports import InputPort, OutputPort
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.streams.node_streams import NodeStreams


class Inputs(InputContext, Protocol):
    """The inputs of an operator (`contexts.input.InputContext`)."""

    ports: list[InputPort]
    announces: bool
    usual_on: int
    is_usual: bool

    def keep(self, port: InputPort, data: Any, kept: list[Any]) -> Any:
        """Keep a received object alive, and return it; of a map, return the receiver's own copy."""

    def connect(self, name: str, queues: tuple[Queue, ...]) -> None:
        """Receive from other queues at an input."""

    def watch(self, streams: NodeStreams | None) -> None:
        """Pass every received message to `streams`; None ends this."""

    def announce_room(self, announce: Callable[[Any, tuple[Queue, ...]], None] | None) -> None:
        """Announce the room that a receive makes to producers at once; None ends this."""

    def clear(self) -> None:
        """Clear what one compute received."""


class Outputs(OutputContext, Protocol):
    """The outputs of an operator (`contexts.output.OutputContext`)."""

    ports: dict[str, OutputPort]
    acq_timestamp: int | None
    has_details: bool

    def pass_on(self, acq_timestamp: int) -> None:
        """Send a received timestamp with the messages of this compute."""

    def pass_to(self, message: Any, queues: tuple[Queue, ...]) -> None:
        """Put a message into queues as it is."""

    def clear(self) -> None:
        """Clear what one compute sends."""
