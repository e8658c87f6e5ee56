"""Watch: the frames of a run that operators received and that somebody still holds.

An operator may hold what it received: the previous frame, a batch of them, a view. It may pass it on, and then
others hold it. Such a frame must live until nobody holds it any more *and* the streams that may read it have
completed their work up to that moment. No event tells when that is. So each operator that received the frame checks
the reference count of the owner of the memory after its computes.

All operators that keep a frame share one record of it, and only that record refers to the owner. So operators that
wait for the program to release a frame never wait for each other. The record goes with the last operator that has
it.

This module is not compiled: reference counts are read here, and they differ in compiled code.
"""

from __future__ import annotations

import threading
from sys import getrefcount
from typing import Any
from weakref import ref

from penstock._runtime.streams.owners import is_shared_elsewhere

__all__ = ["Watch", "Watched", "no_longer_held"]

_SPARE = 64


class Watched:
    """The owner of the memory of a frame, while somebody else may hold it."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def no_longer_held(watched: dict[int, Watched]) -> list[int]:
    """Return the keys of the frames that nobody holds any more."""
    return [
        key
        for key, frame in watched.items()
        if getrefcount(frame.owner) <= _ALONE and not is_shared_elsewhere(frame.owner)
    ]


def _count(frame: Watched) -> int:
    return getrefcount(frame.owner)


_ALONE = _count(Watched(object()))


class Watch:
    """The frames of one run that somebody holds, by the identity of the owner of their memory."""

    def __init__(self) -> None:
        # Guards the rest: operators on several threads may begin to watch the same frame.
        self._lock = threading.Lock()
        # The entry of a record that is gone may stay for a while.
        self._watched: dict[int, ref[Watched]] = {}
        self._most = _SPARE

    def begin(self, owner: Any) -> Watched:
        """Return the record of an owner, which may be another operator's already."""
        key = id(owner)
        with self._lock:
            known = self._watched.get(key)
            found = None if known is None else known()
            if found is None:
                found = Watched(owner)
                self._watched[key] = ref(found)
                if len(self._watched) > self._most:
                    self._clear()
            return found

    def _clear(self) -> None:
        """Remove the entries of records that are gone."""
        self._watched = {key: record for key, record in self._watched.items() if record() is not None}
        self._most = 2 * len(self._watched) + _SPARE
