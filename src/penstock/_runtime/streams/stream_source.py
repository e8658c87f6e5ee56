"""StreamSource: a resource that operators get streams from; StreamLease: what one run holds of it.

A source may be shared by several runs, also by runs that overlap in time. It is open from the start of the first to
the end of the last. Each run has a lease: the streams it took go back to the source when that run ends, so that
others can have them, and they are destroyed when nobody uses the source any more.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from penstock._runtime.streams.managed_stream import ManagedStream
from penstock.core.resource import Resource

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment

__all__ = ["StreamLease", "StreamSource"]


class StreamSource(Resource):
    """The base of stream pools, and of slices of a device, which give streams of their own.

    A subclass writes `_open`, `_take`, `_give_back` and `_close`, which are called with `_lock` held.
    """

    dev_id: int
    divides: ClassVar[bool] = False
    """Whether it divides its device into partitions."""

    def __init__(self, fragment: Fragment | None = None, *args: Any, name: str = "", **kwargs: Any) -> None:
        super().__init__(fragment, *args, name=name, **kwargs)
        # Where one source stands on another, its own lock is taken first.
        self._lock = threading.RLock()
        self._leases = 0

    @property
    def stands_on(self) -> StreamSource | None:
        """The source it makes its streams in, which must outlive it."""
        return None

    def lease(self) -> StreamLease:
        """Return what one run needs to take streams; what it stands on must have been leased before."""
        with self._lock:
            if not self._leases:
                try:
                    self._open()
                except BaseException:
                    self._close()
                    raise
            self._leases += 1
        return StreamLease(self)

    def check(self) -> None:
        """Raise if the device cannot give what this stands for; makes nothing on the device."""

    def joined_with(self, other: StreamSource) -> str:
        """Return, for one that divides its device, the arguments of one that would stand for both."""
        raise NotImplementedError

    @staticmethod
    def check_graph(fragment: Fragment) -> None:
        """Raise if the graph of a fragment uses its sources of streams in a way that cannot be right."""
        from penstock._runtime.streams.source_checks import check_sources

        check_sources(fragment)

    def _open(self) -> None:
        """Prepare for the first lease."""

    def _take(self) -> ManagedStream | None:
        """Return a stream that nobody has, or None if there may be no more."""
        raise NotImplementedError

    def _give_back(self, managed: ManagedStream) -> None:
        """Take back a stream whose work is done."""
        managed.stream.close()

    def _close(self) -> None:
        """Release what is left: nobody holds a lease, or `_open` failed half-way."""


class StreamLease:
    """The part of a source that one run uses.

    Attributes
    ----------
    dev_id
        The device of its streams.
    """

    __slots__ = ("_source", "_taken", "dev_id")

    def __init__(self, source: StreamSource) -> None:
        self.dev_id = source.dev_id
        self._source = source
        self._taken: list[ManagedStream] = []

    def take(self) -> ManagedStream | None:
        """Return a stream that nobody has, or None if there may be no more."""
        source = self._source
        with source._lock:
            managed = source._take()
            if managed is not None:
                self._taken.append(managed)
            return managed

    def close(self) -> None:
        """Return the streams to the source; the last lease closes it."""
        source = self._source
        errors: list[BaseException] = []
        with source._lock:
            taken, self._taken = self._taken, []
            for managed in taken:
                try:
                    source._give_back(managed)
                except BaseException as error:
                    errors.append(error)
            source._leases -= 1
            if not source._leases:
                try:
                    source._close()
                except BaseException as error:
                    errors.append(error)
        if errors:
            raise errors[0]
