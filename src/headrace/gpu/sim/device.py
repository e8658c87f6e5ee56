"""Simulated devices."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.gpu.sim.capture import refuse_device_sync
from headrace.gpu.sim.context import Context, ContextOptions
from headrace.gpu.sim.device_state import ContextState, DeviceState
from headrace.gpu.sim.errors import CUDAError
from headrace.gpu.sim.event import Event, EventOptions
from headrace.gpu.sim.graph_builder import GraphBuilder
from headrace.gpu.sim.machine import current_machine
from headrace.gpu.sim.memory import Buffer, DeviceMemoryResource
from headrace.gpu.sim.profiles import Profile
from headrace.gpu.sim.resources import DeviceResources
from headrace.gpu.sim.stream import LEGACY_DEFAULT_STREAM, Stream, StreamOptions, stream_of
from headrace.gpu.stream_handle import SupportsStream


class ComputeCapability(NamedTuple):
    """The compute capability of a chip."""

    major: int
    minor: int


class DeviceProperties:
    """The properties of a device that scheduling depends on."""

    __slots__ = ("_profile",)

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    @property
    def multiprocessor_count(self) -> int:
        """The number of SMs."""
        return self._profile.sm_count

    @property
    def max_threads_per_multiprocessor(self) -> int:
        """The maximum number of threads on an SM."""
        return self._profile.threads_per_sm

    @property
    def max_blocks_per_multiprocessor(self) -> int:
        """The maximum number of blocks on an SM."""
        return self._profile.blocks_per_sm

    @property
    def max_threads_per_block(self) -> int:
        """The maximum number of threads of a block."""
        return self._profile.threads_per_block

    @property
    def max_block_dim_x(self) -> int:
        """The maximum number of threads of a block along x."""
        return self._profile.max_block[0]

    @property
    def max_block_dim_y(self) -> int:
        """The maximum number of threads of a block along y."""
        return self._profile.max_block[1]

    @property
    def max_block_dim_z(self) -> int:
        """The maximum number of threads of a block along z."""
        return self._profile.max_block[2]

    @property
    def max_grid_dim_x(self) -> int:
        """The maximum number of blocks of a grid along x."""
        return self._profile.max_grid[0]

    @property
    def max_grid_dim_y(self) -> int:
        """The maximum number of blocks of a grid along y."""
        return self._profile.max_grid[1]

    @property
    def max_grid_dim_z(self) -> int:
        """The maximum number of blocks of a grid along z."""
        return self._profile.max_grid[2]

    @property
    def max_shared_memory_per_block(self) -> int:
        """The maximum bytes of shared memory of a block by default."""
        return self._profile.shared_memory_per_block

    @property
    def max_shared_memory_per_block_optin(self) -> int:
        """The maximum bytes of shared memory of a block whose kernel opted in to more."""
        return self._profile.shared_memory_per_block_optin


class Device:
    """A device of the current simulated machine."""

    __slots__ = ("_state",)
    __headrace_device__ = "sim"
    _state: DeviceState

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
            self = super().__new__(cls)
            self._state = state
            state.device = self
        return state.device

    @classmethod
    def get_all_devices(cls) -> tuple[Device, ...]:
        """Return every device of the machine."""
        return tuple(cls._from_state(state) for state in current_machine().devices)

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self._state.index

    @property
    def name(self) -> str:
        """The name of the chip."""
        return self._state.profile.device_name

    @property
    def compute_capability(self) -> ComputeCapability:
        """The compute capability of the chip."""
        return ComputeCapability(*self._state.profile.compute_capability)

    @property
    def arch(self) -> str:
        """The compute capability as compilers write it, such as "90"."""
        return "".join(map(str, self._state.profile.compute_capability))

    @property
    def properties(self) -> DeviceProperties:
        """The properties of the device."""
        return DeviceProperties(self._state.profile)

    @property
    def resources(self) -> DeviceResources:
        """The resources of the device: its SMs and workqueues."""
        return DeviceResources._from_context(self._state.primary_context)

    @property
    def context(self) -> Context:
        """The context that is current on this thread."""
        return Context._from_state(self._current_context())

    @property
    def default_stream(self) -> Stream:
        """The default stream of the context that is current when the stream is used."""
        self._current_context()
        return LEGACY_DEFAULT_STREAM

    @property
    def memory_resource(self) -> DeviceMemoryResource:
        """The memory resource that :meth:`allocate` uses."""
        return DeviceMemoryResource(self)

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
        return Context._from_state(previous) if view is None else view

    def create_context(self, options: ContextOptions | dict[str, Any] | None = None) -> Context:
        """Create a green context on some of the device's resources; it does not become current."""
        return Context._create(self._state, options)

    def create_stream(
        self, obj: SupportsStream | None = None, options: StreamOptions | dict[str, Any] | None = None
    ) -> Stream:
        """Create a stream in the current context, or wrap a stream of another library."""
        if obj is not None and options is not None:
            raise ValueError("obj and options cannot both be specified")
        context = self._current_context()
        if obj is not None:
            return Stream._from_queue(stream_of(obj)._queue)
        return Stream._create(context, options)

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
