"""Views of a node's ports for conditions: the waiting messages, and the room behind outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue


@dataclass(frozen=True, slots=True)
class Receiver:
    """The messages waiting at an input port."""

    name: str
    queues: tuple[Queue, ...]

    @property
    def size(self) -> int:
        """The number of waiting messages."""
        # A full queue that drops its oldest message has one too many for a moment.
        return sum(min(len(queue), queue.limit) for queue in self.queues)

    @property
    def back_size(self) -> int:
        """Always 0: a message can be received as soon as it is emitted."""
        return 0

    @property
    def capacity(self) -> int:
        """The number of messages that fit."""
        return sum(queue.limit for queue in self.queues)

    def peek(self, index: int = 0) -> Any:
        """Return a waiting message without taking it: the object, or the Envelope that carries it."""
        for queue in self.queues:
            waiting = len(queue)
            if index < waiting:
                return queue.peek(index)
            index -= waiting
        return None


@dataclass(frozen=True, slots=True)
class Transmitter:
    """The room behind an output port."""

    name: str
    queues: tuple[Queue, ...]

    @property
    def free(self) -> int:
        """The room in the fullest of the connected queues; unlimited without connections."""
        return min(
            (max(queue.limit - len(queue), 0) for queue in self.queues if queue.limit), default=1 << 30
        )
