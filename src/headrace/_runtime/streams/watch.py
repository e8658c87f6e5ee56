"""Watch: the received frames of a run that are still held.

An operator may hold a received frame: as the previous frame, in a batch, as a view. It may pass the frame on, and
then others hold it. Such a frame must live until it is no longer held *and* the streams that may read it have
completed their work up to that moment. No event announces that moment. So each operator that received the frame
checks the reference count of the owner of the memory after its computes.

All operators that keep a frame share one record of it, and only that record refers to the owner. So operators that
wait for the program to release a frame never wait for each other. The record is destroyed with the last operator's
reference to it. The receivers of one message find its record in the message (`Envelope.record`); other operators
that keep the frame find it here, once they have seen that the frame is held.

This module is not compiled: reference counts are read here, and they differ in compiled code.
"""

from __future__ import annotations

import threading
from sys import getrefcount
from typing import Any
from weakref import ref

from headrace._runtime.streams.owners import is_shared_elsewhere, only_kept

_SPARE = 64


class Watched:
    """The owner of the memory of a frame, while the program may hold it."""

    __slots__ = ("__weakref__", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner = owner


def still_held(records: list[Watched]) -> list[Watched]:
    """Return the records of frames that the program holds; there is at least one record, and each appears once."""
    owners = [frame.owner for frame in records]
    if only_kept(owners, besides=1):
        return []
    # Often the newest one alone: another receiver has not taken it yet.
    if len(owners) > 1 and only_kept(owners[:-1], besides=2):
        return records[-1:]
    counts = map(getrefcount, owners)
    return [
        frame
        for frame, count in zip(records, counts, strict=True)
        if count > _ALONE + 1 or is_shared_elsewhere(frame.owner)
    ]


def no_longer_held(watched: dict[int, Watched]) -> list[int]:
    """Return the keys of the frames that are no longer held."""
    return [
        key
        for key, frame in watched.items()
        if getrefcount(frame.owner) <= _ALONE and not is_shared_elsewhere(frame.owner)
    ]


def _count(frame: Watched) -> int:
    return getrefcount(frame.owner)


_ALONE = _count(Watched(object()))


class Watch:
    """The frames of one run that are still held, by the identity of the owner of their memory."""

    def __init__(self) -> None:
        # Guards the rest: operators on several threads may begin to watch the same frame.
        self._lock = threading.Lock()
        # The entry of a destroyed record may stay for a while.
        self._watched: dict[int, ref[Watched]] = {}
        self._most = _SPARE

    def begin(self, owner: Any, record: Watched | None = None) -> Watched:
        """Return the record of an owner, which another operator may share: the given one, if there is none yet."""
        key = id(owner)
        with self._lock:
            known = self._watched.get(key)
            found = None if known is None else known()
            if found is None:
                found = Watched(owner) if record is None else record
                self._watched[key] = ref(found)
                if len(self._watched) > self._most:
                    self._clear()
            return found

    def _clear(self) -> None:
        """Remove the entries of destroyed records."""
        self._watched = {key: record for key, record in self._watched.items() if record() is not None}
        self._most = 2 * len(self._watched) + _SPARE
