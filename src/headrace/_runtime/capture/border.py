"""Border: a port at which messages enter or leave operators that are recorded together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace._runtime.messages.queue import Queue
    from headrace._runtime.scheduling.node import Node

__all__ = ["Border"]


class Border(NamedTuple):
    """A port at which messages enter or leave a part."""

    node: Node
    port: str
    queue: Queue | None = None
    """The queue from which the operator itself receives; for inputs."""

    @property
    def name(self) -> str:
        """The port, as the part names it."""
        return f"{self.node.name}.{self.port}"
