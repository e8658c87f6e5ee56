"""Watch: the frames of a run that operators received and that somebody still holds.

An operator may hold what it received: the previous frame, a batch of them, a view. It may pass it on, and then
others hold it. Such a frame must not be let go when the compute is over, but when nobody holds it any more
*and* the streams that may read it have passed that moment. Nobody tells when that is; so each operator that
received the frame looks again after its computes, at the reference count of the owner of the memory.

All operators that keep a frame share one record of it, and only that record refers to the owner: operators that
wait for the user to let go of a frame never wait for each other. The record goes with the last operator that
has it.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakValueDictionary

from penstock.runtime.owners import only_kept

__all__ = ["Watch", "Watched"]


class Watched:
    """The owner of the memory of a frame, while somebody else may hold it."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = [owner]  # as `only_kept` takes it

    @property
    def is_let_go(self) -> bool:
        """Whether nobody holds the frame any more."""
        return only_kept(self.owner)


class Watch:
    """The frames of one run that somebody holds, by the identity of the owner of their memory."""

    def __init__(self) -> None:
        # Guards `_watched`: operators on several threads may begin to watch the same frame.
        self._lock = threading.Lock()
        self._watched: WeakValueDictionary[int, Watched] = WeakValueDictionary()

    def begin(self, owner: Any) -> Watched:
        """Return the record of an owner, which may be another operator's already."""
        with self._lock:
            found = self._watched.get(id(owner))
            if found is None:
                found = self._watched[id(owner)] = Watched(owner)
            return found
