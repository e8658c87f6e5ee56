"""Keeper: what an operator received, for as long as its streams may read it.

CuPy and PyTorch give a freed block out again at once to the stream it was allocated on. They cannot know that
another stream still reads it. So the owners of the memory that an operator received (`owners`) are kept here.

After a compute there are two kinds of them. Those that nobody else refers to were let go in the compute: they
live until the operator's streams have passed a fence after now (`Trail.keep`). The others are held: by the
operator, which may read them in a later compute, or by others that they were passed on to. They are watched
(`watch`), and looked at again after later computes. One that nobody holds any more is treated as if it had been
received just then.

What is watched is looked through after every compute, or, where it is much, after so many computes that a compute
pays for some 32 looks. So at most one in 32 of what a program holds is let go later than it could be.
"""

from __future__ import annotations

from typing import Any

from penstock._runtime.streams.owners import only_kept
from penstock._runtime.streams.watch import Watch, Watched, let_go

__all__ = ["Keeper"]

_LOOKS = 32


class Keeper:
    """What one operator received and somebody may still hold.

    All of it is changed in the operator's computes or between two of them, which never happens twice at once.
    """

    __slots__ = ("_looks", "_watch", "received", "watched")

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # The owners of the memory that this compute received; one may be in it more than once.
        self.received: list[Any] = []
        # What was held when a compute was over, by the program or by others, by the identity of the owner.
        self.watched: dict[int, Watched] = {}
        self._looks = 0  # left before `watched` is looked through again

    def end_compute(self) -> list[Any] | None:
        """Return what must live until the streams have passed this moment, and begin anew."""
        received = self.received
        over: list[Any] | None = None
        watched = self.watched
        if received:
            if watched and len(received) == 1 and id(received[0]) in watched:
                received.clear()  # as every time where its maker keeps it, to fill it again
            else:
                self.received = []
                over = received if only_kept(received) else self._sort(received)
        if watched:
            self._looks -= 1
            if self._looks < 0:
                over = self._look(over)
        return over

    def forget(self) -> None:
        """Let go of everything."""
        self.received = []
        self.watched.clear()

    def _sort(self, received: list[Any]) -> list[Any]:
        """Watch what somebody holds, and return the rest; somebody holds one of them at least, or it came twice."""
        if len(received) == 1:
            self._begin(received.pop())
            return received
        once = list({id(owner): owner for owner in received}.values())
        received.clear()
        while once:
            one = [once.pop()]
            if only_kept(one):
                received += one
            else:
                self._begin(one.pop())
        return received

    def _begin(self, owner: Any) -> None:
        self.watched[id(owner)] = self._watch.begin(owner)

    def _look(self, over: list[Any] | None) -> list[Any] | None:
        """Add what nobody holds any more to what is over."""
        watched = self.watched
        found = let_go(watched)
        self._looks = (len(watched) - len(found)) // _LOOKS
        if found:
            if over is None:
                over = []
            over += [watched.pop(key) for key in found]
        return over
