"""A simulated GPU with cuda.core's interface.

The same names, properties and kinds of error as :mod:`cuda.core`, for the part of it that green contexts,
streams, events, kernels and memory need; on top of them :class:`Machine`, which says what is simulated.
"""

from penstock.gpu.sim.context import Context, ContextOptions
from penstock.gpu.sim.device import Device
from penstock.gpu.sim.errors import CUDAError
from penstock.gpu.sim.event import Event, EventOptions
from penstock.gpu.sim.kernel import (
    Kernel,
    Launch,
    LaunchConfig,
    ObjectCode,
    Program,
    ProgramOptions,
    launch,
    launched,
)
from penstock.gpu.sim.machine import Machine, current_machine
from penstock.gpu.sim.memory import Buffer, DeviceMemoryResource, LegacyPinnedMemoryResource, host_view
from penstock.gpu.sim.profiles import PROFILES, Profile
from penstock.gpu.sim.resources import (
    DeviceResources,
    SMResource,
    SMResourceOptions,
    WorkqueueResource,
    WorkqueueResourceOptions,
    WorkqueueSharingScopeType,
)
from penstock.gpu.sim.stream import LEGACY_DEFAULT_STREAM, Stream, StreamOptions

__all__ = [
    "LEGACY_DEFAULT_STREAM",
    "PROFILES",
    "Buffer",
    "CUDAError",
    "Context",
    "ContextOptions",
    "Device",
    "DeviceMemoryResource",
    "DeviceResources",
    "Event",
    "EventOptions",
    "Kernel",
    "Launch",
    "LaunchConfig",
    "LegacyPinnedMemoryResource",
    "Machine",
    "ObjectCode",
    "Profile",
    "Program",
    "ProgramOptions",
    "SMResource",
    "SMResourceOptions",
    "Stream",
    "StreamOptions",
    "WorkqueueResource",
    "WorkqueueResourceOptions",
    "WorkqueueSharingScopeType",
    "current_machine",
    "host_view",
    "launch",
    "launched",
]
