"""HeldFrames: the frames that an operator received, and the frames that the program still holds.

CuPy and PyTorch reuse a freed block at once on the stream on which it was allocated, even if another stream still
reads it. So the owners of the memory that an operator received (`owners`) are kept here.

After a few computes (`lifetimes`) there are two kinds of owners. Owners with no other reference were released in
those computes. They live until the stream has passed a fence after that. The others are held: by an operator, which
may read them in a later compute, or by operators that they were passed on to. They are watched (`watch`), and
checked again later. An owner that is no longer held is treated as if it had just been received.

Each of several receivers of a message keeps its owner, and would take it for held by the program. So they share the
record of `watch` from the beginning, and keep that (`shared`).

Memory of headrace's own allocators is neither kept nor watched after the compute. It knows the streams that may
work on it, and its next user is ordered after them (`headrace.gpu.allocation`). The stream is added to its users.

If many frames are watched, they are checked less often, so that a check of the others pays for about 32 of these.
So at most one in 32 of the frames that a program holds is released late.

An owner that is received again while it is watched is memory that its sender sends again (`has_seen_again`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace._runtime.streams.owners import only_kept, sort_allocations
from headrace._runtime.streams.watch import Watch, Watched, no_longer_held, still_held

if TYPE_CHECKING:
    from headrace.gpu.allocation import StreamUser

_CHECKS: Final = 32


class HeldFrames:
    """The frames that one operator received and that may still be held.

    The lists stay the same objects. They change in the operator's computes or between two computes.

    Attributes
    ----------
    received
        The owners of the memory that was received since the last `check`; an owner may appear more than once.
    unsorted
        The same for owners that may be allocations; empty between two computes.
    shared
        The records of the same for messages with several receivers.
    watched
        The frames that were still held at the end of a compute, by the identity of the owner.
    has_seen_again
        Whether owners were received again while they were watched, since this was last set to False.
    """

    __slots__ = (
        "_countdown",
        "_user",
        "_watch",
        "has_seen_again",
        "received",
        "shared",
        "unsorted",
        "watched",
    )

    def __init__(self, watch: Watch, user: StreamUser) -> None:
        self._watch = watch
        self._user = user
        self.received: list[Any] = []
        self.shared: list[Watched] = []
        self.unsorted: list[Any] = []
        self.watched: dict[int, Watched] = {}
        self.has_seen_again = False
        self._countdown = 0  # checks left before `watched` is checked again

    @property
    def received_count(self) -> int:
        """The number of frames that were received since the last `check`; may be called from any thread."""
        return len(self.received) + len(self.unsorted) + len(self.shared)

    def sort(self) -> None:
        """Add the stream to the users of received memory of headrace's own allocators; keep the other owners."""
        self.received += sort_allocations(take_all(self.unsorted), self._user)

    def check(self, is_last: bool = False) -> list[Any] | None:
        """Return the owners that must live until the stream has completed its work so far.

        Where no compute follows (`is_last`), all that are watched are looked at.
        """
        released: list[Any] | None = None
        if self.unsorted:
            self.sort()
        if self.received:
            received = take_all(self.received)
            released = received if only_kept(received) else self._sort(received)
        if self.shared:
            released = self._sort_shared(released)
        if self.watched:
            self._countdown -= 1
            if self._countdown < 0 or is_last:
                released = self._check_watched(released)
        return released

    def has(self, owner: Any) -> bool:
        """Return whether an owner was received, and is not known to be released."""
        received = [*self.received, *self.unsorted, *(record.owner for record in self.shared)]
        return id(owner) in self.watched or any(each is owner for each in received)

    def clear(self) -> None:
        """Release everything."""
        self.received.clear()
        self.unsorted.clear()
        self.shared.clear()
        self.watched.clear()

    def _sort(self, received: list[Any]) -> list[Any]:
        """Watch the owners that are still held, and return the others; at least one is held or appears twice."""
        watched = self.watched
        once = list({id(owner): owner for owner in received}.values())
        self.has_seen_again = self.has_seen_again or len(once) < len(received)
        received.clear()
        released: list[Any] = []
        while once:
            one = [once.pop()]
            if id(one[0]) in watched:  # it is checked with those
                self.has_seen_again = True
            elif only_kept(one):
                released += one
            else:
                self._begin(one.pop())
        return released

    def _sort_shared(self, released: list[Any] | None) -> list[Any]:
        """Watch the frames with several receivers that are still held, and add the others to the released ones."""
        records = dict.fromkeys(take_all(self.shared))
        for record in still_held(list(records)):
            self.has_seen_again = self.has_seen_again or id(record.owner) in self.watched
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


def take_all(kept: list[Any]) -> list[Any]:
    """Remove what is in a list, which stays the same object, and return it."""
    taken = kept[:]
    kept.clear()
    return taken
