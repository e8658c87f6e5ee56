"""Simulated devices."""

from typing import Any, NamedTuple

from penstock.gpu.sim.context import Context, ContextOptions
from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.event import Event, EventOptions
from penstock.gpu.sim.machine import ContextState, DeviceState, current_machine
from penstock.gpu.sim.memory import Buffer, DeviceMemoryResource
from penstock.gpu.sim.profiles import Profile
from penstock.gpu.sim.resources import DeviceResources
from penstock.gpu.sim.stream import LEGACY_DEFAULT_STREAM, Stream, StreamOptions, SupportsStream, stream_of


class ComputeCapability(NamedTuple):
    """A chip's generation."""

    major: int
    minor: int


class DeviceProperties:
    """The figures of a device that scheduling depends on."""

    __slots__ = ("_profile",)

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    @property
    def multiprocessor_count(self) -> int:
        """How many SMs it has."""
        return self._profile.sm_count

    @property
    def max_threads_per_multiprocessor(self) -> int:
        """How many threads fit on an SM."""
        return self._profile.threads_per_sm

    @property
    def max_blocks_per_multiprocessor(self) -> int:
        """How many blocks fit on an SM."""
        return self._profile.blocks_per_sm

    @property
    def max_threads_per_block(self) -> int:
        """How many threads a block may have."""
        return self._profile.threads_per_block

    @property
    def max_block_dim_x(self) -> int:
        """How many threads a block may have along x."""
        return self._profile.max_block[0]

    @property
    def max_block_dim_y(self) -> int:
        """How many threads a block may have along y."""
        return self._profile.max_block[1]

    @property
    def max_block_dim_z(self) -> int:
        """How many threads a block may have along z."""
        return self._profile.max_block[2]

    @property
    def max_grid_dim_x(self) -> int:
        """How many blocks a grid may have along x."""
        return self._profile.max_grid[0]

    @property
    def max_grid_dim_y(self) -> int:
        """How many blocks a grid may have along y."""
        return self._profile.max_grid[1]

    @property
    def max_grid_dim_z(self) -> int:
        """How many blocks a grid may have along z."""
        return self._profile.max_grid[2]

    @property
    def max_shared_memory_per_block(self) -> int:
        """How many bytes of shared memory a block may have without asking."""
        return self._profile.shared_memory_per_block

    @property
    def max_shared_memory_per_block_optin(self) -> int:
        """How many bytes of shared memory a block may have if its kernel asked for more."""
        return self._profile.shared_memory_per_block_optin


class Device:
    """A device of the current simulated machine."""

    __slots__ = ("_state",)
    _state: DeviceState

    def __new__(cls, device_id: "int | Device | None" = None) -> "Device":
        """Return the device of that number; without one, the current device or the first."""
        if isinstance(device_id, Device):
            return device_id
        here = current_machine()
        if device_id is None:
            current = here.current_context
            return cls._of(current.device if current else here.devices[0])
        if not isinstance(device_id, int):
            raise TypeError(f"device_id must be an int, got {type(device_id).__name__}")
        if device_id < 0:
            raise ValueError(f"device_id must be >= 0, got {device_id}")
        if device_id >= len(here.devices):
            raise ValueError(f"device_id must be within [0, {len(here.devices)}), got {device_id}")
        return cls._of(here.devices[device_id])

    @classmethod
    def _of(cls, state: DeviceState) -> "Device":
        if state.device is None:
            self = super().__new__(cls)
            self._state = state
            state.device = self
        return state.device

    @classmethod
    def get_all_devices(cls) -> "tuple[Device, ...]":
        """Return every device of the machine."""
        return tuple(cls._of(state) for state in current_machine().devices)

    @property
    def device_id(self) -> int:
        """Its number."""
        return self._state.index

    @property
    def name(self) -> str:
        """What the chip is called."""
        return self._state.profile.device_name

    @property
    def compute_capability(self) -> ComputeCapability:
        """The chip's generation."""
        return ComputeCapability(*self._state.profile.compute_capability)

    @property
    def arch(self) -> str:
        """The chip's generation as compilers write it."""
        return "".join(map(str, self._state.profile.compute_capability))

    @property
    def properties(self) -> DeviceProperties:
        """Its figures."""
        return DeviceProperties(self._state.profile)

    @property
    def resources(self) -> DeviceResources:
        """All that it has: SMs and workqueues."""
        return DeviceResources._of(self._state.primary)

    @property
    def context(self) -> Context:
        """The context that is current on this thread."""
        return Context._of(self._current())

    @property
    def default_stream(self) -> Stream:
        """The stream that work goes to when none is named: that of the context which is current when it is used."""
        self._current()
        return LEGACY_DEFAULT_STREAM

    @property
    def memory_resource(self) -> DeviceMemoryResource:
        """Where :meth:`allocate` takes memory from."""
        return DeviceMemoryResource(self)

    def set_current(self, ctx: Context | None = None) -> Context | None:
        """Make a context (the primary one by default) current on this thread.

        Returns the context that was current when one is given, else None.
        """
        here = self._state.machine
        if ctx is None:
            here.make_current(self._state.primary, None)
            return None
        if not isinstance(ctx, Context):
            raise TypeError(f"set_current takes a Context, got {type(ctx).__name__}")
        state = ctx._open()
        if state.device is not self._state:
            raise RuntimeError(
                f"the context belongs to device {state.device.index}, not to device {self.device_id}"
            )
        previous = here.current_context
        view = here.current_view
        here.make_current(state, ctx)
        if previous is None:
            return None
        return Context._of(previous) if view is None else view

    def create_context(self, options: ContextOptions | dict[str, Any] | None = None) -> Context:
        """Create a green context on some of the device's resources; it does not become current."""
        return Context._create(self._state, options)

    def create_stream(
        self, obj: SupportsStream | None = None, options: "StreamOptions | dict[str, Any] | None" = None
    ) -> Stream:
        """Create a stream of the current context, or wrap another library's stream."""
        if obj is not None and options is not None:
            raise ValueError("obj and options cannot be both specified")
        context = self._current()
        if obj is not None:
            return Stream._of(stream_of(obj)._lane)
        return Stream._create(context, options)

    def create_event(self, options: "EventOptions | dict[str, Any] | None" = None) -> Event:
        """Create an event of the current context, not yet recorded."""
        return Event._of(self._current(), options)

    def allocate(self, size: int, *, stream: Stream) -> Buffer:
        """Allocate memory for use on a stream."""
        self._current()
        return self.memory_resource.allocate(size, stream=stream)

    def sync(self) -> None:
        """Block until all work submitted to the device so far has ended."""
        self._current()
        timeline = self._state.machine.timeline
        with timeline.lock:
            marks = [lane.mark() for lane in list(self._state.busy_lanes)]
        timeline.wait(lambda: all(mark.passed for mark in marks))
        self._state.machine.check()

    def __repr__(self) -> str:
        return f"<Device {self.device_id} ({self.name})>"

    def _current(self) -> ContextState:
        self._state.machine.check()
        current = self._state.machine.current_context
        if current is None or current.device is not self._state:
            raise CUDAError(
                f"device {self.device_id} is not yet initialized on this thread; call set_current() first"
            )
        return current
