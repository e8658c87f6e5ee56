"""WatchState: whether an operator's streams are watched.

The first compute of every operator is watched. If it neither used a stream nor received one with a message, the
operator is not watched any more until it does either. This module is not compiled: an Enum is not.

=======  ==========================================================================================  ===========
state    meaning                                                                                     next
=======  ==========================================================================================  ===========
FIRST    The first compute has not ended, and the operator has used no stream.                       OFF or ON
OFF      It is not watched, and costs nothing.                                                       LATE
LATE     It is watched again, in the middle of a compute that began unwatched. The end of that       ON
         compute is handled when the next one begins.
ON       It is watched from the beginning to the end of each compute.
=======  ==========================================================================================  ===========
"""

from __future__ import annotations

from enum import Enum


class WatchState(Enum):
    """Whether an operator's streams are watched; `NodeStreams._enter` alone changes it."""

    FIRST = "first"
    OFF = "off"
    LATE = "late"
    ON = "on"
