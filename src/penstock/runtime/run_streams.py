"""RunStreams: the streams of one run, the sources they come from, and their end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock.runtime.managed_stream import ManagedStream, default_stream_of
from penstock.runtime.stream_source import StreamSource
from penstock.runtime.watch import Watch

if TYPE_CHECKING:
    from penstock.core.fragment import Fragment
    from penstock.core.operator import Operator
    from penstock.runtime.node import Node

__all__ = ["RunStreams", "source_of"]


class RunStreams:
    """The streams of one run: the sources they come from, and their end."""

    def __init__(self, fragment: Fragment) -> None:
        self.fragment = fragment
        self.checks = "streams" in os.environ.get("PENSTOCK_CHECK", "").split(",")
        # What operators received and somebody still holds.
        self.watch = Watch()
        self._managed: dict[int, ManagedStream] = {}
        self._sources: list[
            StreamSource
        ] = []  # in the order they were opened: what others stand on comes first
        self._default: StreamSource | None = None
        self._defaults: dict[int, ManagedStream] = {}
        self._lock = threading.RLock()
        self._several_devices: bool | None = None
        self._has_device: bool | None = None

    @property
    def has_device(self) -> bool:
        """Whether there is a device, real or simulated."""
        if self._has_device is None:
            self._has_device = gpu.backend() != "none"
        return self._has_device

    def open(self, operators: Iterable[Operator]) -> None:
        """Open the sources given to operators, which may make streams in advance."""
        for operator in operators:
            source = source_of(operator)
            if source is not None:
                self.use(source)

    def use(self, source: StreamSource) -> StreamSource:
        """Make a source part of this run, which will release it."""
        with self._lock:
            if source not in self._sources:
                if source.stands_on is not None:
                    self.use(source.stands_on)
                self._sources.append(source)
                source.open()
        return source

    def default_source(self) -> StreamSource:
        """Give the source of operators that were given none."""
        with self._lock:
            if self._default is None:
                self._default = self.fragment.make_default_stream_source()
            return self.use(self._default)

    def default_stream(self, device_id: int = 0) -> ManagedStream:
        """Give a device's default stream, as something to wait for and to be waited for."""
        with self._lock:
            if device_id not in self._defaults:
                self.make_current(device_id)
                self._defaults[device_id] = default_stream_of(device_id)
            return self._defaults[device_id]

    def manage(self, managed: ManagedStream) -> None:
        """Take care of a stream: it can be named by its handle, and the run does not end before its work."""
        self._managed[int(managed.handle)] = managed

    def find(self, stream: Any) -> ManagedStream | None:
        """Give the managed stream that a handle stands for, or None."""
        return self._managed.get(int(stream))

    def stream_of(self, handle: Any) -> Any:
        """Give the device's stream object for a handle, managed or not; 0 is the default stream."""
        managed = self.find(handle)
        if managed is not None:
            return managed.stream
        return gpu.Stream.from_handle(int(handle)) if int(handle) else self.default_stream().stream

    def make_current(self, device_id: int) -> bool:
        """Make a device current on this thread, and say whether it will stay so: there is no other."""
        gpu.Device(device_id).set_current()
        if self._several_devices is None:
            self._several_devices = len(gpu.Device.get_all_devices()) > 1
        return not self._several_devices

    def finish(self, nodes: Iterable[Node]) -> None:
        """Wait until every managed stream is done, then let go of what was kept for them."""
        try:
            for managed in list(self._managed.values()):
                self.make_current(managed.device_id)  # the default stream is that of the context current here
                managed.stream.sync()
        finally:
            for node in nodes:
                node.streams.settle()

    def close(self) -> None:
        """Destroy the streams, then the partitions they were on."""
        self._managed.clear()
        while self._sources:
            self._sources.pop().release()


def source_of(operator: Operator) -> StreamSource | None:
    """Give the source of streams an operator was given, in whichever way; a pool before a slice of the device."""
    given = [*operator.resources.values(), getattr(operator, "cuda_stream_pool", None)]
    sources = [resource for resource in given if isinstance(resource, StreamSource)]
    return min(sources, key=lambda source: not source.is_pool, default=None)
