"""WatchState: whether an operator's streams are watched.

The first compute of every operator is watched. If it neither requested a stream nor received one with a message,
the operator is not watched any more until it does either. This module is not compiled: an Enum is not.

==========  =========================================================================================  ============
state       meaning                                                                                    next
==========  =========================================================================================  ============
FIRST       The first compute has not ended, and the operator has asked for nothing about streams.     any but LATE
ASKED       The same, but it has asked about streams and has used none.                                ON
OFF         It is not watched: it costs nothing.                                                       LATE
LATE        Watched again, in the middle of a compute that began unwatched; the end of that compute    ON
            is handled when the next one begins.
ON          Watched from the beginning to the end of each compute.
==========  =========================================================================================  ============
"""

from __future__ import annotations

from enum import Enum

__all__ = ["WatchState"]


class WatchState(Enum):
    """Whether an operator's streams are watched; `NodeStreams._enter` alone changes it."""

    FIRST = "first"
    ASKED = "asked"
    OFF = "off"
    LATE = "late"
    ON = "on"
