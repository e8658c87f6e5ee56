"""RunStreams: the streams of one run, from their sources to their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace import gpu
from headrace._runtime.messages.managed_stream import ManagedStream, create_event, is_default
from headrace._runtime.streams.default_stream import DefaultStreamHandle, default_stream_of
from headrace._runtime.streams.stream_source import StreamLease, StreamSource, attempt_all
from headrace._runtime.streams.watch import Watch
from headrace.core.errors import GraphError
from headrace.gpu.ambient import remember_stream
from headrace.gpu.backend import active
from headrace.gpu.current_device import remember_current

if TYPE_CHECKING:
    from headrace._runtime.observer import Observer
    from headrace._runtime.streams.branch import Branch
    from headrace._runtime.streams.in_order import InOrder
    from headrace._runtime.streams.left_frames import LeftFrames
    from headrace._runtime.streams.placement import Placement
    from headrace.core.composition import Composition
    from headrace.core.operator import Operator


class RunStreams:
    """The streams of one run, and the sources that they come from.

    The leases and the default streams are changed under `_lock`, by the operators' computes on any thread. A stream
    is added to `_managed` by whichever compute first uses it: one assignment to a dict, which CPython makes atomic.
    """

    def __init__(self, fragment: Composition) -> None:
        self.fragment = fragment
        self.checks = "streams" in os.environ.get("HEADRACE_CHECK", "").split(",")
        # The observer of the run, if there is one.
        self.observer: Observer | None = None
        # Whether one thread runs all computes.
        self.is_on_one_thread = False
        # The received frames that are still held.
        self.watch = Watch()
        # The streams to wait for, by handle; default streams share one handle and are identified by their device.
        self._managed: dict[int, ManagedStream] = {}
        self._managed_defaults: dict[int, ManagedStream] = {}
        # In the order in which they were opened: a source comes before those that build on it.
        self._leases: dict[StreamSource, StreamLease] = {}
        self._default: StreamSource | None = None
        self._defaults: dict[int, ManagedStream] = {}
        self._lock = threading.RLock()
        # Streams that belong to no source, closed at the end.
        self.own_streams: list[Any] = []
        self._several_devices: bool | None = None
        self._has_device: bool | None = None
        # Restores the context that was current on the caller's thread when the run first used a device.
        self._caller = threading.get_ident()
        self._put_back: Callable[[], None] | None = None
        self._put_stream_back = remember_stream()
        # Where plain code runs; empty if no operator's plain code runs on a stream.
        self.placements: dict[Operator, Placement] = {}
        # The branches of the operators that share a stream.
        self.branches: dict[Operator, Branch] = {}

    @property
    def has_device(self) -> bool:
        """Whether there is a device, real or simulated."""
        if self._has_device is None:
            self._has_device = active().has_devices
        return self._has_device

    def open(self, operators: Iterable[Operator]) -> None:
        """Open the sources given to operators, which may create streams in advance."""
        for operator in operators:
            source = source_of(operator)
            if source is not None:
                self.use(source)

    def place(self, apart: Collection[Operator] = ()) -> None:
        """Choose where the plain code of each operator runs; libraries may be imported by its start.

        The operators of `apart` do not share a stream.
        """
        from headrace._runtime.streams.placement import Placement, find_branches, place

        per = self.fragment._headrace.stream_per
        if per not in ("auto", "operator", "branch"):
            raise GraphError(
                f"{self.fragment.name!r}: stream_per must be 'operator' (one stream for each), 'branch' (one for a "
                f"chain of operators) or 'auto' (one for connected operators until the device falls behind), not "
                f"{per!r}"
            )
        placed = place(self.fragment.graph)
        # A program that needs no device does not choose one.
        if any(each is not Placement.LEFT_ALONE for each in placed.values()) and self.has_device:
            self.placements = placed
            if per == "branch" or (per == "auto" and not self.checks):
                self.branches = find_branches(placed, self.fragment.graph, apart, per == "auto")

    def place_new(self, operators: Iterable[Operator]) -> None:
        """Choose where the plain code of operators runs that join the run; each has a stream of its own."""
        from headrace._runtime.streams.placement import Placement, place

        placed = place(self.fragment.graph)
        for operator in operators:
            if placed[operator] is not Placement.LEFT_ALONE and self.has_device:
                self.placements[operator] = placed[operator]

    def take_for_branch(self, operator: Operator, source: StreamLease) -> ManagedStream | None:
        """Return the stream that the operators of a branch share, from their source at the first call."""
        branch = self.branches[operator]
        with self._lock:
            if not branch.is_open:
                branch.is_open = True
                branch.stream = source.take()
            return branch.stream

    def is_handed_on(self, operator: Operator, receivers: list[Operator]) -> bool:
        """Return whether all messages of an operator of a branch are received on its stream: none needs a fence."""
        if self.observer is not None and self.observer.sees_messages:
            return False
        branch = self.branches[operator]
        return all(self.branches.get(receiver) is branch for receiver in receivers)

    def in_order_of(self, branch: Branch, shared: ManagedStream) -> InOrder:
        """Return the looks at the device of the operators of a branch that keep nothing."""
        from headrace._runtime.streams.in_order import InOrder

        with self._lock:
            if branch.in_order is None:
                branch.in_order = InOrder(branch, shared)
            return branch.in_order

    def left_of(self, branch: Branch, shared: ManagedStream) -> LeftFrames:
        """Return what keeps the frames of operators that have left the stream of a branch."""
        from headrace._runtime.streams.left_frames import LeftFrames

        with self._lock:
            if branch.left is None:
                branch.left = LeftFrames(shared)
            return branch.left

    def use(self, source: StreamSource) -> StreamLease:
        """Return this run's lease of a source; the run closes it at its end."""
        with self._lock:
            lease = self._leases.get(source)
            if lease is None:
                self._remember_caller()
                if source.stands_on is not None:
                    self.use(source.stands_on)
                lease = self._leases[source] = source.lease()
            return lease

    def default_source(self, operator: Operator) -> StreamLease:
        """Return the source of streams for an operator that was given none: that of its fragment."""
        own = cast("StreamSource | None", operator.fragment.get_default_green_context_pool())
        if own is not None:
            return self.use(own)
        with self._lock:
            if self._default is None:
                self._default = self.fragment.make_default_stream_source()
            return self.use(self._default)

    def default_stream(self, device_id: int = 0) -> ManagedStream:
        """Return a device's default stream as a managed stream."""
        with self._lock:
            if device_id not in self._defaults:
                self._remember_caller()
                self._defaults[device_id] = default_stream_of(device_id)
            return self._defaults[device_id]

    def make_stream(self, operator: Operator, is_captured: bool = False) -> Any:
        """Create a stream like those of an operator, on its slice, in addition to those of its pool.

        A stream to be captured is always non-blocking. The caller closes the stream.
        """
        source = source_of(operator) or cast(
            "StreamSource | None", operator.fragment.get_default_green_context_pool()
        )
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
        source = source_of(operator) or operator.fragment.get_default_green_context_pool()
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

    @property
    def several_devices(self) -> bool:
        """Whether there is more than one device."""
        if self._several_devices is None:
            self._several_devices = len(gpu.Device.get_all_devices()) > 1
        return self._several_devices

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
        attempt_all(partial(_synchronize, stream) for stream in managed)

    def close(self) -> None:
        """Return the streams, then the partitions they were on, and restore the device of the caller's thread."""
        self._managed.clear()
        self._managed_defaults.clear()
        if self._put_back is not None and threading.get_ident() == self._caller:
            self._put_back()  # first, since a partition that is current cannot be closed
        own, self.own_streams = self.own_streams, []
        leases, self._leases = self._leases, {}
        attempt_all([stream.close for stream in own] + [lease.close for lease in reversed(leases.values())])


def _synchronize(managed: ManagedStream) -> None:
    with gpu.on_device(managed.device_id):  # the default stream belongs to the current context
        managed.stream.sync()


def source_of(operator: Operator) -> StreamSource | None:
    """Return the source of streams that an operator was given; of several, the one that builds on the others."""
    sources = sources_of(operator)
    return max(sources, key=lambda source: len(foundations(source)), default=None)


def slice_of(operator: Operator) -> gpu.Share | None:
    """Return the slice of a device that an operator's streams belong to, or None if they may use every SM."""
    source = source_of(operator) or operator.fragment.get_default_green_context_pool()
    if source is None or not active().has_devices:
        return None
    return cast("StreamSource", source).slice


def sources_of(operator: Operator) -> list[StreamSource]:
    """Return the sources of streams that an operator was given, each once."""
    given = (*operator.resources.values(), getattr(operator, "cuda_stream_pool", None))
    return list(dict.fromkeys(resource for resource in given if isinstance(resource, StreamSource)))


def foundations(source: StreamSource) -> list[StreamSource]:
    """Return the sources that a source builds on, directly or indirectly."""
    found: list[StreamSource] = []
    below = source.stands_on
    while below is not None:
        found.append(below)
        below = below.stands_on
    return found
