"""RunStreams: the streams of one run, from their sources to their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime.messages.fences import ManagedStream, create_event, is_default
from headrace._runtime.streams.layout import PlannedStream, StreamLayout
from headrace._runtime.streams.lifetimes import StreamFrames
from headrace._runtime.streams.owners import Watch
from headrace._runtime.streams.stream_source import (
    DefaultStreamHandle,
    StreamLease,
    StreamSource,
    attempt_all,
    default_stream_of,
    source_of,
    streams_from,
)
from headrace.core.errors import StreamError
from headrace.gpu import array_libraries
from headrace.gpu.backend import active, is_chosen, is_in_use
from headrace.gpu.current import library_is_in_use, remember_current, remember_stream, thread

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.streams.node_streams import NodeStreams
    from headrace._runtime.streams.running_operator import RunningOperator
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator


class RunStreams:
    """The streams of one run, and the sources that they come from.

    The streams of all operators are made together, in the order of the layout, when the program first uses a device
    (`activate`): a library of arrays is imported, the process chooses its device, an operator asks for its stream,
    or the program declares one. The first two may happen at any time; they are noticed (`when_imported`), and each
    operator then looks when its next compute begins.

    The leases and the streams are changed under `lock`, by the operators' computes on any thread. A stream is
    added to `_managed` by whichever compute first uses it: one assignment to a dict, which CPython makes atomic.

    Attributes
    ----------
    lock
        Guards the leases, the streams, and how each output sends.
    checks
        Whether memory that is sent again is an error (``HEADRACE_CHECK=streams``).
    observer
        The observer of the run, if there is one.
    is_on_one_thread
        Whether one thread runs all computes.
    is_active
        Whether the operators work on streams.
    nodes
        The streams of each operator.
    """

    def __init__(self, fragment: Composition, captured: Collection[Operator] = ()) -> None:
        self.fragment = fragment
        self.layout = StreamLayout(fragment.graph, captured)
        self.checks = "streams" in os.environ.get("HEADRACE_CHECK", "").split(",")
        self.observer: Observer | None = None
        self.is_on_one_thread = False
        self.is_active = False
        self.nodes: list[NodeStreams] = []
        self._watch = Watch()
        self._made: dict[PlannedStream, StreamFrames] = {}
        # The streams to wait for, by handle; default streams share one handle and are identified by their device.
        self._managed: dict[int, ManagedStream] = {}
        self._managed_defaults: dict[int, ManagedStream] = {}
        # In the order in which they were opened: a source comes before those that build on it.
        self._leases: dict[StreamSource, StreamLease] = {}
        self._default: StreamSource | None = None
        self._defaults: dict[int, ManagedStream] = {}
        self.lock = threading.RLock()
        # Streams that belong to no source, closed at the end.
        self.own_streams: list[Any] = []
        # Restores the context that was current on the caller's thread when the run first used a device.
        self._caller = threading.get_ident()
        self._put_back: Callable[[], None] | None = None
        self._put_stream_back = remember_stream()
        self._stop_noticing: Callable[[], object] = bool

    @cached_property
    def has_device(self) -> bool:
        """Whether there is a device, real or simulated."""
        return active().has_devices

    def open(self, operators: Iterable[Operator]) -> None:
        """Open the sources given to operators, which may create streams in advance, and notice a device."""
        self._stop_noticing()  # of an earlier call, before operators joined the run
        self._stop_noticing = array_libraries.when_imported(self._expect_device)
        for operator in operators:
            source = source_of(operator)
            if source is not None:
                self.use(source)

    # The streams of the operators.

    def look_for_device(self) -> bool:
        """Make the streams if the program uses a device; return whether the operators work on streams."""
        # A program that gives operators streams, or sources of streams (`open`), uses a device.
        if not self.is_active and (
            library_is_in_use() or is_in_use() or self._leases or self._shares_streams
        ):
            self.activate()
        return self.is_active

    def activate(self) -> None:
        """Make the streams of all operators; each works on its own from its next compute on."""
        with self.lock:
            if self.is_active or not self.has_device:
                return
            for planned in self.layout:
                self.make(planned)
            self.is_active = True
        self._expect_device()

    def take_for(self, operator: Operator) -> ManagedStream | None:
        """Take another stream from the source of an operator, or that of its fragment; None if none is left."""
        source = streams_from(operator)
        with self.lock:
            if source is None:
                self._default = self._default or self.fragment._headrace.make_default_stream_source()
                source = self._default
            return self.use(source).take()

    def follow(self, changed: Collection[RunningOperator]) -> None:
        """Follow flows that have changed: those who exchange messages with the operators at their ends may, too."""
        senders = [feeder for node in changed for queue in node.inputs for feeder in queue.feeders]
        receivers = [queue.consumer for node in changed for queue in node.outputs]
        for node in dict.fromkeys((*changed, *senders, *receivers)):
            node.streams.follow()

    def make(self, planned: PlannedStream) -> StreamFrames:
        """Return the stream for a place in the layout, which is made if the operator has joined the run."""
        with self.lock:
            made = self._made.get(planned)
            if made is not None:
                return made
            first = planned.operators[0]
            device_id = self.device_of(first)
            managed = self.default_stream(device_id) if planned.kind == "default" else self.take_for(first)
            if managed is None:  # the layout takes no more than there are
                name = planned.source.name if planned.source is not None else "of the fragment"
                raise StreamError(
                    f"operator {first.name!r}: pool {name!r} has no stream left, since another run, or another "
                    "operator by name, has taken it; raise max_size"
                )
            made = self._made[planned] = self.adopt(managed, planned.is_shared)
            return made

    def adopt(self, managed: ManagedStream, is_shared: bool = False) -> StreamFrames:
        """Return a stream that operators are to work on."""
        return StreamFrames(managed, self._watch, is_shared)

    @cached_property
    def _shares_streams(self) -> bool:
        return any(planned.kind in ("share", "default") for planned in self.layout)

    def _expect_device(self) -> None:
        ask = thread.current.ask
        if ask is not None and is_chosen() and not self.is_active:
            ask()  # the operator that computes on this thread has chosen the device
        for node in tuple(self.nodes):
            node.expect_device()

    def use(self, source: StreamSource) -> StreamLease:
        """Return this run's lease of a source; the run closes it at its end."""
        with self.lock:
            lease = self._leases.get(source)
            if lease is None:
                self._remember_caller()
                if source.stands_on is not None:
                    self.use(source.stands_on)
                lease = self._leases[source] = source.lease()
            return lease

    def default_stream(self, device_id: int = 0) -> ManagedStream:
        """Return a device's default stream as a managed stream."""
        with self.lock:
            if device_id not in self._defaults:
                self._remember_caller()
                self._defaults[device_id] = default_stream_of(device_id)
            return self._defaults[device_id]

    def make_stream(self, operator: Operator, is_captured: bool = False) -> Any:
        """Create a stream like those of an operator, on its slice, in addition to those of its pool.

        A stream to be captured is always non-blocking. The caller closes the stream.
        """
        source = streams_from(operator)
        priority = flags = 0
        while source is not None:
            priority = getattr(source, "stream_priority", priority)
            flags = getattr(source, "stream_flags", flags)
            create = getattr(source, "create_stream", None)
            if create is not None:
                return create(priority).stream
            source = source.stands_on
        device_id = self.device_of(operator)
        with gpu.on_device(device_id):
            return gpu.Device(device_id).create_stream(
                options=gpu.StreamOptions(nonblocking=is_captured or bool(flags), priority=priority)
            )

    def device_of(self, operator: Operator) -> int:
        """Return the number of the device that an operator works on."""
        source = streams_from(operator)
        return 0 if source is None else source.dev_id

    def manage(self, managed: ManagedStream) -> None:
        """Manage a stream: its handle is valid, and the run does not end before its work."""
        if is_default(managed.handle):
            self._managed_defaults[managed.device_id] = managed
        else:
            self._managed[int(managed.handle)] = managed

    def find(self, stream: Any) -> ManagedStream | None:
        """Return the managed stream that a handle stands for, or None."""
        if isinstance(stream, DefaultStreamHandle) and stream.device_id is not None:
            return self.default_stream(stream.device_id)
        if is_default(stream):  # as in CUDA, the default stream of the current device
            used = self._managed_defaults
            return used.get(gpu.Device().device_id) if used else None
        return self._managed.get(int(stream))

    def stream_of(self, handle: Any) -> ManagedStream:
        """Return the stream that a handle stands for, managed or not; 0 is the current device's default stream."""
        managed = self.find(handle)
        if managed is not None:
            return managed
        if is_default(handle):
            return self.default_stream(gpu.Device().device_id)
        stream = gpu.Stream.from_handle(int(handle))
        device_id = stream.device.device_id
        return ManagedStream(stream, device_id, partial(create_event, device_id))

    def make_current(self, device_id: int) -> bool:
        """Make a device current on this thread, and return whether it stays current because it is the only one."""
        self._remember_caller()
        gpu.Device(device_id).set_current()
        return not self.several_devices

    @property
    def brings(self) -> bool:
        """Whether operators may receive frames from other devices than their own."""
        return self.has_device and self.several_devices

    @cached_property
    def several_devices(self) -> bool:
        """Whether there is more than one device."""
        return len(gpu.Device.get_all_devices()) > 1

    def _remember_caller(self) -> None:
        if self._put_back is None and threading.get_ident() == self._caller:
            self._put_back = remember_current()

    def restore_current(self) -> None:
        """Restore the current stream of the caller's thread, if an interrupt has left it changed."""
        if threading.get_ident() == self._caller:
            self._put_stream_back()

    def finish(self) -> None:
        """Wait until every managed stream has finished; if one fails, the others are still waited for."""
        managed = (*self._managed.values(), *self._managed_defaults.values())
        attempt_all(partial(synchronize, stream) for stream in managed)

    def close(self) -> None:
        """Return the streams, then the partitions they were on, and restore the device of the caller's thread."""
        self._stop_noticing()
        self._managed.clear()
        self._managed_defaults.clear()
        if self._put_back is not None and threading.get_ident() == self._caller:
            self._put_back()  # first, since a partition that is current cannot be closed
        own, self.own_streams = self.own_streams, []
        leases, self._leases = self._leases, {}
        attempt_all([stream.close for stream in own] + [lease.close for lease in reversed(leases.values())])


def synchronize(managed: ManagedStream) -> None:
    """Wait until a stream has finished all submitted work."""
    with gpu.on_device(managed.device_id):  # the default stream belongs to the current context
        managed.stream.sync()
