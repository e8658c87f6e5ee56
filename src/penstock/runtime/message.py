"""Message: what travels with a piece of data when it carries more than itself.

Most messages are only the object that was emitted, and then a queue holds that object and no Message is
made. One is made where there is something to add: a timestamp, metadata, and whatever further layers
put beside them. `receive` tells the two apart by type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.runtime.managed_stream import Mark

__all__ = ["Message"]


class Message:
    """An emitted object and what travels with it."""

    __slots__ = ("acq_timestamp", "data", "is_plain", "mark", "metadata")

    def __init__(self, data: Any, mark: Mark | None = None) -> None:
        self.data = data
        # The point on a stream at which the data was emitted: what a receiver is to be ordered after.
        self.mark = mark
        # Whether that is all it carries.
        self.is_plain = True
        self.acq_timestamp: int | None = None
        self.metadata: dict[str, Any] | None = None
