"""StreamSource: a resource that provides streams to operators; StreamLease: one run's use of it.

Several runs, even concurrent ones, may share a source. It is open from the start of the first run to the end of the
last. Each run has a lease. When the run ends, its streams return to the source for others to use; they are
destroyed when no run uses the source any more.

Before a run, the sources of its graph are checked (`check_sources`). That creates nothing on a device; it only asks
what the device could provide, and with ``HEADRACE_DEVICE=none`` it does not ask either. The driver starts every
split of a device at the first SM, so two splits get the same SMs, and contexts on the same SMs share them without
any error. So only one pool may divide a device in an application.

The default streams, for operators that have no stream and received none.

CUDA has one handle for the default streams of all devices: it means the default stream of the current device. So
the handle alone does not identify the stream. The handles here record their device. A library uses the default
stream of the current device, so the device is made current whenever a handle is returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace import gpu
from headrace._runtime.messages.fences import LEGACY, NULL, ManagedStream, create_event
from headrace.core.errors import GraphError
from headrace.core.resource import Resource
from headrace.gpu import array_libraries
from headrace.gpu.backend import Backend, active

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.core.composition import Composition
    from headrace.core.operator import Operator


class StreamSource(Resource):
    """The base of stream pools and of slices of a device, both of which provide streams.

    A subclass overrides `_open`, `_take`, `_give_back` and `_close`, which are called with `_lock` held.
    """

    dev_id: int
    divides: ClassVar[bool] = False
    """Whether it divides its device into partitions."""

    def __post_init__(self) -> None:
        super().__post_init__()
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


def source_of(operator: Operator) -> StreamSource | None:
    """Return the source of streams that an operator was given; of several, the one that builds on the others."""
    sources = sources_of(operator)
    return max(sources, key=lambda source: len(foundations(source)), default=None)


def streams_from(operator: Operator) -> StreamSource | None:
    """Return what an operator was given, or else the pool of its fragment; None for the default of the run."""
    return source_of(operator) or cast(
        "StreamSource | None", operator.fragment.get_default_green_context_pool()
    )


def slice_of(operator: Operator) -> gpu.Share | None:
    """Return the slice of a device that an operator's streams belong to, or None if they may use every SM."""
    source = streams_from(operator)
    if source is None or not active().has_devices:
        return None
    return source.slice


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


def check_sources(fragment: Composition) -> None:
    """Raise for the first operator whose streams or slice of a device are not available."""
    dividing: dict[int, tuple[StreamSource, str]] = {}
    checked: set[StreamSource] = set()
    for operator in fragment.graph:
        _check_given(operator)
        default = cast("StreamSource | None", operator.fragment.get_default_green_context_pool())
        source = source_of(operator) or default
        if source is not None:
            used_by = f"operator {operator.name!r}"
            _check_division(source, used_by, dividing)
            _check_device(source, used_by, checked)


def _check_given(operator: Operator) -> None:
    """Raise if an operator was given two sources and neither builds on the other."""
    given = sources_of(operator)
    chosen = source_of(operator)
    if chosen is None:
        return
    for other in given:
        if other is not chosen and other not in foundations(chosen):
            first, second = sorted((chosen, other), key=given.index)
            raise GraphError(
                f"operator {operator.name!r} takes its streams from one source, but was given two: "
                f"{_called(first)} and {_called(second)}; pass one of them, or a CudaStreamPool with "
                "cuda_green_context= to use both a pool and a slice of the device"
            )


def _check_division(
    source: StreamSource, used_by: str, dividing: dict[int, tuple[StreamSource, str]]
) -> None:
    """Raise if two sources divide one device."""
    for part in (source, *foundations(source)):
        if not part.divides:
            continue
        other, also_used_by = dividing.setdefault(part.dev_id, (part, used_by))
        if other is not part:
            raise GraphError(
                f"{_called(other)} ({also_used_by}) and {_called(part)} ({used_by}) both divide device "
                f"{part.dev_id}, and would get the same SMs; create one pool with all the partitions "
                f"({other.joined_with(part)}) and a CudaGreenContext of it for each"
            )


def _check_device(source: StreamSource, used_by: str, checked: set[StreamSource]) -> None:
    """Raise if there is no such device, or it cannot meet the request."""
    for part in (source, *foundations(source)):
        if part not in checked:
            try:
                part.check()
            except (GraphError, gpu.PartitionError) as error:
                raise type(error)(f"{used_by}: {error}") from None
            checked.add(part)


def _called(source: StreamSource) -> str:
    return f"{type(source).__name__} {source.name!r}"


class DefaultStreamHandle(gpu.StreamHandle):
    """The default stream of a device.

    It may be created before a device is chosen, so it looks up its stream on first use.

    Attributes
    ----------
    device_id
        The number of the device; None for the current device.
    """

    is_default = True

    def __new__(cls, device_id: int | None = None, value: int = NULL) -> DefaultStreamHandle:
        """Return the handle of a device's default stream, with one of CUDA's two values."""
        self = int.__new__(cls, value)
        self.device_id = device_id
        return self

    @property
    def stream(self) -> Any:
        """The stream of `headrace.gpu`: the default stream of the current device."""
        return gpu.LEGACY_DEFAULT_STREAM

    @property
    def device(self) -> Any:
        """The current device."""
        return gpu.LEGACY_DEFAULT_STREAM.device

    @property
    def follows_default(self) -> bool:
        """True: it is the default stream."""
        return True

    @property
    def backend(self) -> Backend:  # type: ignore[override]
        """The backend that the process uses."""
        return active()

    def of_library(self, name: str) -> Any:
        """Return a library's object for the default stream, which may depend on the current device."""
        return array_libraries.make_stream(name, self)

    def __repr__(self) -> str:
        where = "" if self.device_id is None else f" of device {self.device_id}"
        return f"StreamHandle(default{where})"


# The placeholder for a stream if there is no device.
DEFAULT_STREAM = DefaultStreamHandle()


@cache
def default_handle(device_id: int) -> DefaultStreamHandle:
    """Return the handle for an operator without its own stream; it is 0, so it is false."""
    return DefaultStreamHandle(device_id)


def default_stream_of(device_id: int) -> ManagedStream:
    """Return a device's default stream as a managed stream that works whichever device is current."""
    stream = gpu.LEGACY_DEFAULT_STREAM
    managed = ManagedStream(stream, device_id, partial(create_event, device_id))
    managed.handle = DefaultStreamHandle(device_id, LEGACY)
    managed.record = _there(device_id, stream.record)
    managed.wait = _there(device_id, stream.wait)
    return managed


def _there(device_id: int, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that makes a call while the device is current."""

    def call_there(event: Any) -> Any:
        with gpu.on_device(device_id):
            return call(event)

    return call_there
