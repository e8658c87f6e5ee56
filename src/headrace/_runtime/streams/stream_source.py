"""StreamSource: a resource that provides streams to operators; StreamLease: one run's use of it.

Several runs, even concurrent ones, may share a source. It is open from the start of the first run to the end of the
last. Each run has a lease. When the run ends, its streams return to the source for others to use; they are
destroyed when no run uses the source any more.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace._runtime.messages.managed_stream import ManagedStream
from headrace.core.resource import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace import gpu
    from headrace.core.composition import Composition


class StreamSource(Resource):
    """The base of stream pools and of slices of a device, both of which provide streams.

    A subclass overrides `_open`, `_take`, `_give_back` and `_close`, which are called with `_lock` held.
    """

    dev_id: int
    divides: ClassVar[bool] = False
    """Whether it divides its device into partitions."""

    def __init__(
        self, fragment: Composition | None = None, *args: Any, name: str = "", **kwargs: Any
    ) -> None:
        super().__init__(fragment, *args, name=name, **kwargs)
        # If one source builds on another, its own lock is taken first.
        self._lock = threading.RLock()
        self._leases = 0

    @property
    def stands_on(self) -> StreamSource | None:
        """The source that it builds on, which must outlive it."""
        return None

    @property
    def limit(self) -> int:
        """The largest number of its streams; 0 if there is none."""
        return 0

    @property
    def slice(self) -> gpu.Share | None:
        """The slice of the device that its streams work on; None if they may use all SMs."""
        return None if self.stands_on is None else self.stands_on.slice

    def lease(self) -> StreamLease:
        """Return a lease for one run; the source that this one builds on must have been leased before."""
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
        """Raise if the device cannot provide this source; create nothing on the device."""

    def joined_with(self, other: StreamSource) -> str:
        """Return the arguments of a source that would replace two that divide one device."""
        raise NotImplementedError

    @staticmethod
    def check_graph(fragment: Composition) -> None:
        """Raise if the graph of a fragment uses its sources of streams incorrectly."""
        from headrace._runtime.streams.source_checks import check_sources

        check_sources(fragment)

    def _open(self) -> None:
        """Prepare for the first lease."""

    def _take(self) -> ManagedStream | None:
        """Return an unused stream, or None if the limit is reached."""
        raise NotImplementedError

    def _give_back(self, managed: ManagedStream) -> None:
        """Take back a stream whose work is done."""
        managed.stream.close()

    def _close(self) -> None:
        """Release everything: there are no leases any more, or `_open` failed half-way."""


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
        """Return an unused stream, or None if the limit is reached."""
        source = self._source
        with source._lock:
            managed = source._take()
            if managed is not None:
                self._taken.append(managed)
            return managed

    def close(self) -> None:
        """Return the streams to the source; the last lease closes it."""
        source = self._source
        with source._lock:
            taken, self._taken = self._taken, []
            source._leases -= 1
            close = [] if source._leases else [source._close]
            attempt_all([*(partial(source._give_back, managed) for managed in taken), *close])


def attempt_all(actions: Iterable[Callable[[], object]]) -> None:
    """Carry out all actions, whatever they raise, and raise the first error at the end."""
    errors: list[BaseException] = []
    for action in actions:
        try:
            action()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]
