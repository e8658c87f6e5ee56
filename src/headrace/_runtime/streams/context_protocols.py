"""The contexts of an operator (`_runtime.contexts`), as its streams and the engine use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.contexts import InputContext, OutputContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.messages.ports import InputPort, OutputPort
    from headrace._runtime.messages.queue import Queue
    from headrace.core.metadata import Calls


class Inputs(InputContext, Protocol):
    """The inputs of an operator (`contexts.input.InputContext`)."""

    ports: list[InputPort]
    announces: bool
    notes_items: bool

    def keep(self, port: InputPort, item: Any) -> None:
        """Keep what was taken from an input elsewhere, and order the operator's stream after it."""

    def connect(self, name: str, queues: tuple[Queue, ...]) -> None:
        """Receive from other queues at an input."""

    def announce_room(self, announce: Callable[[Any, tuple[Queue, ...]], None] | None) -> None:
        """Announce the room that a receive makes to producers at once; None ends this."""

    def clear(self) -> None:
        """Clear what one compute received."""


class Outputs(OutputContext, Protocol):
    """The outputs of an operator (`contexts.output.OutputContext`)."""

    ports: dict[str, OutputPort]
    acq_timestamp: int | None
    calls: Calls
    has_details: bool

    def pass_on(self, acq_timestamp: int) -> None:
        """Send a received timestamp with the messages of this compute."""

    def pass_calls_on(self, calls: Calls) -> None:
        """Answer the calls of a received message with the messages of this compute."""

    def choose(self, acq_timestamp: int | None) -> None:
        """Send this timestamp with the messages of this compute."""

    def pass_to(self, message: Any, queues: tuple[Queue, ...]) -> None:
        """Put a message into queues as it is."""

    def clear(self) -> None:
        """Clear what one compute sends."""
