"""HeldFrames: the frames that an operator received, and the frames that the program still holds.

CuPy and PyTorch reuse a freed block at once on the stream on which it was allocated, even if another stream still
reads it. So the owners of the memory that an operator received (`owners`) are kept here.

After a few computes (`lifetimes`) there are two kinds of owners. Owners with no other reference were released in
those computes. They live until the operator's streams have completed a fence after that. The others are held: by
the operator, which may read them in a later compute, or by operators that they were passed on to. They are watched
(`watch`), and checked again later. An owner that is no longer held is treated as if it had just been received.

Each of several receivers of a message keeps its owner, and would take it for held by the program. So they share the
record of `watch` from the beginning, and keep that (`shared`).

Memory of headrace's own allocators is neither kept nor watched after the compute. It knows the streams that may
work on it, and its next user is ordered after them (`headrace.gpu.allocation`). The operator is added to its users.

If many frames are watched, they are checked less often, so that a look pays for about 32 checks. So at most one in
32 of the frames that a program holds is released late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.streams.owners import MANY_BYTES, only_kept, size_of_all, sort_allocations
from headrace._runtime.streams.watch import Watch, Watched, no_longer_held, still_held
from headrace.gpu.allocation import Allocation

if TYPE_CHECKING:
    from headrace.gpu.allocation import StreamUser

_CHECKS: Final = 32


class HeldFrames:
    """The frames that one operator received and that may still be held.

    All fields are changed in the operator's computes or between two computes, and never concurrently.

    Attributes
    ----------
    is_on
        Whether received frames are kept, because a stream may read them or because this is the first compute.
    received
        The owners of the memory that was received since the last `look`, always in the same list; an owner may
        appear more than once.
    unsorted
        The same for owners that may be allocations, always in the same list; empty between two computes.
    shared
        The records of the same for messages with several receivers, always in the same list.
    watched
        The frames that were still held at the end of a compute, by the identity of the owner.
    """

    __slots__ = ("_countdown", "_user", "_watch", "is_on", "received", "shared", "unsorted", "watched")

    def __init__(self, watch: Watch, user: StreamUser) -> None:
        self._watch = watch
        self._user = user
        self.is_on = True
        self.received: list[Any] = []
        self.shared: list[Watched] = []
        self.unsorted: list[Any] = []
        self.watched: dict[int, Watched] = {}
        self._countdown = 0  # looks left before `watched` is checked again

    def sort(self) -> None:
        """Add the operator to the users of received memory of headrace's own allocators; keep the other owners."""
        unsorted = self.unsorted
        if len(unsorted) > 1:
            self.received += sort_allocations(unsorted, self._user)
            return
        owner = unsorted.pop()
        if type(owner) is Allocation:  # of one message, as a rule
            if self._user not in owner.users:  # as `Allocation.add_user`
                owner.users.append(self._user)
            collect = owner.pool.collect
            owner = None  # or it would not come back
            if collect is not None:
                collect()
        else:
            self.received.append(owner)

    def keep_once(self) -> None:
        """Keep the received owners once if they are all the same: that of a producer that reuses one buffer."""
        received = self.received
        first = received[0]
        for owner in received:  # a map over them takes twice as long, and compiled ten times
            if owner is not first:
                return
        del received[1:]

    def look(self) -> list[Any] | None:
        """Return the owners that must live until the streams have completed their work so far, between computes."""
        received, watched = self.received, self.watched
        released: list[Any] | None = None
        if self.unsorted:
            self.sort()
        if received:
            if only_kept(received):
                released = received[:]
                received.clear()
            elif watched and watched.keys() >= set(map(id, received)):
                received.clear()  # the usual case if the producer keeps a frame in order to reuse it
            else:
                released = self._sort()
        if self.shared:
            released = self._sort_shared(released)
        if watched:
            self._countdown -= 1
            if self._countdown < 0:
                released = self._check_watched(released)
        return released

    def watched_bytes(self) -> int:
        """Return the bytes of the frames that were still held at the last look; very many if they are many."""
        watched = self.watched
        if len(watched) > _CHECKS:
            return MANY_BYTES
        return size_of_all([frame.owner for frame in watched.values()]) if watched else 0

    def watch_all(self) -> dict[int, Watched]:
        """Watch all frames, after a look, and return them as they are watched, for another one to watch as well."""
        while self.received:
            self._begin(self.received.pop())
        return dict(self.watched)

    def clear(self) -> None:
        """Release everything."""
        self.received.clear()
        self.unsorted.clear()
        self.shared.clear()
        self.watched.clear()

    def _sort(self) -> list[Any]:
        """Watch the owners that are still held, and return the others; at least one is held or appears twice."""
        once = list({id(owner): owner for owner in self.received}.values())
        self.received.clear()
        released: list[Any] = []
        while once:
            one = [once.pop()]
            if only_kept(one):
                released += one
            else:
                self._begin(one.pop())
        return released

    def _sort_shared(self, released: list[Any] | None) -> list[Any]:
        """Watch the frames with several receivers that are still held, and add the others to the released ones."""
        records = dict.fromkeys(self.shared)
        self.shared.clear()
        for record in still_held(list(records)):
            self.watched[id(record.owner)] = self._watch.begin(record.owner, record)
            del records[record]
        return [*records] if released is None else [*released, *records]

    def _begin(self, owner: Any) -> None:
        self.watched[id(owner)] = self._watch.begin(owner)

    def _check_watched(self, released: list[Any] | None) -> list[Any] | None:
        """Add the owners that are no longer held to the released ones."""
        watched = self.watched
        found = no_longer_held(watched)
        self._countdown = (len(watched) - len(found)) // _CHECKS
        if found:
            if released is None:
                released = []
            released += [watched.pop(key) for key in found]
        return released
