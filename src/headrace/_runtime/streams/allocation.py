"""StreamAllocation: the streams of an operator: its own stream, its named streams, and a borrowed stream.

All but the borrowed stream come from the operator's pool or slice of a device, or else from the fragment's default.
No stream is taken before the operator requests one.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

from headrace._runtime.streams.run_streams import source_of

if TYPE_CHECKING:
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace._runtime.streams.stream_source import StreamLease
    from headrace.core.operator import Operator


class StreamAllocation:
    """The streams of one operator in a run.

    All fields are changed in the operator's computes, which never run concurrently.

    Attributes
    ----------
    own
        The operator's own stream, once it has requested one and the pool had one.
    borrowed
        The stream of a message, which a compute uses because it has no stream of its own.
    current_on
        The thread on which the operator's device is known to be current; -1 if it must be made current every time.
    """

    __slots__ = ("_borrowed_in", "_is_open", "_named", "_operator", "_run", "borrowed", "current_on", "own")

    def __init__(self, run: RunStreams, operator: Operator) -> None:
        self._run = run
        self._operator = operator
        self.own: ManagedStream | None = None
        self._is_open = False  # whether a stream has been requested from the pool
        self._named: dict[str, ManagedStream | None] = {}
        self.borrowed: ManagedStream | None = None
        self._borrowed_in: int | None = None  # the compute that borrowed it
        self.current_on = -1

    @property
    def device_id(self) -> int:
        """The number of the device that the operator works on."""
        return self._run.device_of(self._operator)

    def open(self) -> ManagedStream | None:
        """Return the operator's own stream, taken from its pool at the first call; None if there is none left."""
        if not self._is_open:
            self._is_open = True
            source = self._source()
            is_shared = self._operator in self._run.branches
            self.own = self._run.take_for_branch(self._operator, source) if is_shared else source.take()
        return self.own

    def take_another(self) -> ManagedStream | None:
        """Take an own stream from the pool in place of a shared one; None if there is none left."""
        another = self._source().take()
        if another is not None:
            self.own = another
        return another

    def open_or_default(self) -> ManagedStream:
        """Return the operator's own stream, or the default stream if the pool has none left."""
        own = self.open()
        if own is None:
            own = self.own = self._run.default_stream(self._source().dev_id)
        return own

    def open_default(self) -> ManagedStream:
        """Use the default stream of the operator's device as its own."""
        self._is_open = True
        own = self.own = self._run.default_stream(self.device_id)
        return own

    def named(self, name: str) -> ManagedStream | None:
        """Return the operator's stream of this name, from its pool at the first call; None if none is left."""
        if name not in self._named:
            self._named[name] = self._source().take() if self._run.has_device else None
        return self._named[name]

    def has(self, stream: ManagedStream) -> bool:
        """Return whether a stream is the operator's own stream or a named one: no other operator works on it."""
        return stream is self.own or stream in self._named.values()

    def has_borrowed(self, turn: int) -> bool:
        """Return whether a compute has borrowed a stream."""
        return self._borrowed_in == turn

    def borrow(self, stream: ManagedStream, turn: int) -> None:
        """Use the stream of a message in a compute."""
        self.borrowed, self._borrowed_in = stream, turn

    def make_current(self, device_id: int) -> None:
        """Make a device current on this thread, unless it is known to be; with several devices, at every call."""
        if get_ident() != self.current_on and self._run.make_current(device_id):
            self.current_on = get_ident()

    @property
    def stays_current(self) -> bool:
        """Whether the operator's device is current in all of its further computes: there is no other thread."""
        return self.current_on != -1 and self._run.is_on_one_thread

    def make_own_current(self) -> None:
        """Make the device of the operator's own stream current."""
        assert self.own is not None
        self.make_current(self.own.device_id)

    def _source(self) -> StreamLease:
        source = source_of(self._operator)
        return self._run.default_source(self._operator) if source is None else self._run.use(source)
