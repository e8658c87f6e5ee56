"""Simulated devices, and their contexts: the primary context, and green contexts on some of the SMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.gpu.sim.capture import refuse_device_sync
from headrace.gpu.sim.graph import GraphBuilder
from headrace.gpu.sim.machine import ContextState, DeviceState, current_machine
from headrace.gpu.sim.memory import Buffer, DeviceMemoryResource
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, options_of
from headrace.gpu.sim.resources import DeviceResources, SMResource, WorkqueueResource
from headrace.gpu.sim.stream import (
    LEGACY_DEFAULT_STREAM,
    Event,
    EventOptions,
    Stream,
    StreamOptions,
    stream_of,
)
from headrace.gpu.stream_handle import SupportsStream


class ComputeCapability(NamedTuple):
    """The compute capability of a chip."""

    major: int
    minor: int


class DeviceProperties(NamedTuple):
    """The properties of a device that scheduling depends on; shared memory is counted in bytes."""

    multiprocessor_count: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    max_threads_per_block: int
    max_block_dim_x: int
    max_block_dim_y: int
    max_block_dim_z: int
    max_grid_dim_x: int
    max_grid_dim_y: int
    max_grid_dim_z: int
    max_shared_memory_per_block: int
    max_shared_memory_per_block_optin: int


class Device:
    """A device of the current simulated machine."""

    __slots__ = ("_state", "arch", "compute_capability", "device_id", "name", "properties")
    __headrace_device__ = "sim"
    _state: DeviceState
    device_id: int
    name: str
    compute_capability: ComputeCapability
    arch: str  # the compute capability as compilers write it, such as "90"
    properties: DeviceProperties

    def __new__(cls, device_id: int | Device | None = None) -> Device:
        """Return the device with that number; by default the current device, or the first if none is current."""
        if isinstance(device_id, Device):
            return device_id
        machine = current_machine()
        if device_id is None:
            current = machine.current_context
            return cls._from_state(current.device if current else machine.devices[0])
        if not isinstance(device_id, int):
            raise TypeError(f"device_id must be an int, got {type(device_id).__name__}")
        if device_id < 0:
            raise ValueError(f"device_id must be >= 0, got {device_id}")
        if device_id >= len(machine.devices):
            raise ValueError(f"device_id must be within [0, {len(machine.devices)}), got {device_id}")
        return cls._from_state(machine.devices[device_id])

    @classmethod
    def _from_state(cls, state: DeviceState) -> Device:
        if state.device is None:
            profile = state.profile
            self = super().__new__(cls)
            self._state = state
            self.device_id = state.index
            self.name = profile.device_name
            self.compute_capability = ComputeCapability(*profile.compute_capability)
            self.arch = "".join(map(str, profile.compute_capability))
            self.properties = DeviceProperties(
                *(profile.sm_count, profile.threads_per_sm, profile.blocks_per_sm, profile.threads_per_block),
                *profile.max_block,
                *profile.max_grid,
                *(profile.shared_memory_per_block, profile.shared_memory_per_block_optin),
            )
            state.device = self
        return state.device

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        """Return every device of the machine."""
        return tuple(cls._from_state(state) for state in current_machine().devices)

    @property
    def resources(self) -> DeviceResources:
        """The resources of the device: its SMs and workqueues."""
        return DeviceResources._create(self._state.primary_context)

    @property
    def context(self) -> Context:
        """The context that is current on this thread."""
        return Context._create(self._current_context())

    @property
    def default_stream(self) -> Stream:
        """The default stream of the context that is current when the stream is used."""
        self._current_context()
        return LEGACY_DEFAULT_STREAM

    @property
    def memory_resource(self) -> DeviceMemoryResource:
        """The memory resource that :meth:`allocate` uses."""
        return DeviceMemoryResource(self)

    @property
    def uuid(self) -> str:
        """The name of the device in all processes."""
        return f"simulated {self.name} {self.device_id}"

    def can_access_peer(self, peer: Device | int) -> bool:
        """Return whether this device can read and write the memory of another."""
        other = Device(peer)
        return other is not self and self._state.machine.peer_access

    def set_current(self, ctx: Context | None = None) -> Context | None:
        """Make a context (by default the primary context) current on this thread.

        If a context is given, returns the one that was current before, or None if there was none.
        """
        machine = self._state.machine
        if ctx is None:
            machine.make_current(self._state.primary_context, None)
            return None
        if not isinstance(ctx, Context):
            raise TypeError(f"set_current takes a Context, got {type(ctx).__name__}")
        state = ctx._open()
        if state.device is not self._state:
            raise RuntimeError(
                f"the context belongs to device {state.device.index}, not to device {self.device_id}"
            )
        previous = machine.current_context
        view = machine.current_view
        machine.make_current(state, ctx)
        if previous is None:
            return None
        return Context._create(previous) if view is None else view

    def create_context(self, options: ContextOptions | dict[str, Any] | None = None) -> Context:
        """Create a green context on some of the device's resources; it does not become current."""
        return Context._on(self._state, options)

    def create_stream(
        self, obj: SupportsStream | None = None, options: StreamOptions | dict[str, Any] | None = None
    ) -> Stream:
        """Create a stream in the current context, or wrap a stream of another library."""
        if obj is not None and options is not None:
            raise ValueError("obj and options cannot both be specified")
        context = self._current_context()
        if obj is not None:
            return Stream._create(stream_of(obj)._queue)
        return Stream._on(context, options)

    def create_event(self, options: EventOptions | dict[str, Any] | None = None) -> Event:
        """Create an event in the current context, not yet recorded."""
        return Event._create(self._current_context(), options)

    def create_graph_builder(self) -> GraphBuilder:
        """Create a builder that records the work of a new stream in the current context as a graph."""
        return self.create_stream().create_graph_builder()

    def allocate(self, size: int, *, stream: Stream | GraphBuilder) -> Buffer:
        """Allocate memory for use on a stream, which must not be capturing."""
        self._current_context()
        return self.memory_resource.allocate(size, stream=stream)

    def sync(self) -> None:
        """Block until the work submitted to the device so far has ended."""
        self._current_context()
        timeline = self._state.machine.timeline
        with timeline.lock:
            refuse_device_sync(self._state)
            fences = [queue.append_fence() for queue in list(self._state.busy_queues)]
        timeline.wait(lambda: all(fence.is_signaled for fence in fences))
        self._state.machine.check()

    def __repr__(self) -> str:
        return f"<Device {self.device_id} ({self.name})>"

    def _current_context(self) -> ContextState:
        self._state.machine.check()
        current = self._state.machine.current_context
        if current is None or current.device is not self._state:
            raise CUDAError(
                f"device {self.device_id} is not yet initialized on this thread; call set_current() first"
            )
        return current


@dataclass
class ContextOptions:
    """The resources that a green context is created from."""

    resources: Sequence[SMResource | WorkqueueResource] | None = None


class Context(metaclass=MadeByDriver):
    """A context, which determines the SMs that its streams may use."""

    __slots__ = ("_state",)
    _made_by = "Device.create_context, Device.context or Stream.context"

    def __init__(self, state: ContextState) -> None:
        self._state: ContextState | None = state

    @classmethod
    def _on(cls, device: DeviceState, given: ContextOptions | dict[str, Any] | None) -> Context:
        """Create a green context on some of the resources of a device."""
        options = options_of(ContextOptions, given, "Context")
        if options.resources is None:
            raise ValueError("ContextOptions.resources must be provided to create a green context")
        resources = list(options.resources)
        if not resources:
            raise ValueError("ContextOptions.resources must not be empty")
        sms: list[SMResource] = []
        workqueue: tuple[str, int] | None = None
        for resource in resources:
            if isinstance(resource, SMResource | WorkqueueResource) and resource._device is not device:
                raise CUDAError(
                    f"CUDA_ERROR_INVALID_VALUE: a resource of device {resource._device.index} "
                    f"cannot be used to create a context on device {device.index}"
                )
            if isinstance(resource, SMResource):
                if not resource._is_usable:
                    raise ValueError("a dry-run SMResource cannot be used to create a context")
                sms.append(resource)
            elif isinstance(resource, WorkqueueResource):
                workqueue = (resource.sharing_scope, resource.concurrency_limit)
            else:
                raise TypeError(
                    f"a context is created from SM and workqueue resources, got {type(resource).__name__}"
                )
        chosen = 0
        for part in sms:
            chosen |= part._sms
        chosen = chosen or device.primary_context.sms  # a context of workqueues alone may use every SM
        return cls._create(ContextState(device, chosen, device.machine.new_handle(), True, workqueue))

    @property
    def handle(self) -> int | None:
        """The driver's handle, or None if closed."""
        return None if self._state is None else self._state.handle

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._state is None

    @property
    def is_green(self) -> bool:
        """Whether it was created from some of a device's resources."""
        return self._state is not None and self._state.is_green

    @property
    def resources(self) -> DeviceResources:
        """The resources that it may use."""
        return DeviceResources._create(self._open())

    def create_stream(self, options: StreamOptions | dict[str, Any] | None = None) -> Stream:
        """Create a stream of this green context."""
        state = self._open()
        if not state.is_green:
            raise RuntimeError(
                "Context.create_stream is only supported on green contexts; "
                "use Device.create_stream for the primary context"
            )
        return Stream._on(state, options)

    def close(self) -> None:
        """Close the context; its streams continue."""
        if self._state is not None and self._state.device.machine.current_context is self._state:
            raise RuntimeError(
                "a context cannot be closed while it is current; make another context current first"
            )
        self._state = None

    def __eq__(self, other: object) -> bool:
        return self._state is other._state if isinstance(other, Context) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        if self._state is None:
            return "<Context closed>"
        return f"<Context handle={self._state.handle:#x} device={self._state.device.index}>"

    def _open(self) -> ContextState:
        if self._state is None:
            raise RuntimeError("this context has been closed")
        return self._state
