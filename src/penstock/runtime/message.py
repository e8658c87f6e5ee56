"""Message: what travels with a piece of data when it carries more than itself.

Most messages are only the object that was emitted, and then a queue holds that object and no Message is
made. One is made where there is something to add: a timestamp, metadata, and whatever further layers
put beside them. `receive` tells the two apart by type.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Message"]


class Message:
    """An emitted object and what travels with it."""

    __slots__ = ("acq_timestamp", "data", "event", "metadata", "stream")

    def __init__(self, data: Any) -> None:
        self.data = data
        self.acq_timestamp: int | None = None
        self.metadata: dict[str, Any] | None = None
        # The CUDA stream the data was produced on and the event recorded on it at emit; set by the
        # layer that manages streams, through OutputContext.stamps.
        self.stream: Any = None
        self.event: Any = None
