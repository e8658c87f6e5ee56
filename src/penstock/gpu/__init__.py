"""GPUs: devices, SM partitions, contexts, streams and events; real or simulated.

On a machine with a GPU the names here are cuda.core's own objects, re-exported and never wrapped. Elsewhere
they are those of :mod:`penstock.gpu.sim`, which has the same interface, so the same program runs. The choice
is made when one of them is first used; ``PENSTOCK_DEVICE`` (``auto``, ``cuda``, ``sim``, ``none``) makes it.

Beside them stands what cuda.core lacks: :func:`partition`, :func:`when_done`, :func:`launch_host`,
:class:`kernel` and :class:`StreamHandle`. They work with either kind of device.
"""

from typing import TYPE_CHECKING, Any

from penstock.gpu._ambient import current_stream, library_is_in_use, use_stream
from penstock.gpu._backend import Backend, DeviceUnavailable, backend, module
from penstock.gpu._completion import when_done
from penstock.gpu._handle import StreamHandle
from penstock.gpu._host import launch_host
from penstock.gpu._kernel import kernel
from penstock.gpu._partition import (
    Partition,
    PartitionError,
    PartitionRounded,
    Partitions,
    Plan,
    Share,
    partition,
)

if TYPE_CHECKING:  # the simulated classes are typed and have the interface, so they stand for either
    from penstock.gpu.sim import (
        LEGACY_DEFAULT_STREAM,
        Buffer,
        Context,
        ContextOptions,
        CUDAError,
        Device,
        DeviceMemoryResource,
        DeviceResources,
        Event,
        EventOptions,
        Kernel,
        LaunchConfig,
        LegacyPinnedMemoryResource,
        ObjectCode,
        Program,
        ProgramOptions,
        SMResource,
        SMResourceOptions,
        Stream,
        StreamOptions,
        WorkqueueResource,
        WorkqueueResourceOptions,
        launch,
    )

_OF_THE_DEVICE = (
    "LEGACY_DEFAULT_STREAM",
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
    "LaunchConfig",
    "LegacyPinnedMemoryResource",
    "ObjectCode",
    "Program",
    "ProgramOptions",
    "SMResource",
    "SMResourceOptions",
    "Stream",
    "StreamOptions",
    "WorkqueueResource",
    "WorkqueueResourceOptions",
    "launch",
)

__all__ = [  # noqa: RUF022 - what is of the device, then what stands beside it
    "LEGACY_DEFAULT_STREAM",
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
    "LaunchConfig",
    "LegacyPinnedMemoryResource",
    "ObjectCode",
    "Program",
    "ProgramOptions",
    "SMResource",
    "SMResourceOptions",
    "Stream",
    "StreamOptions",
    "WorkqueueResource",
    "WorkqueueResourceOptions",
    "launch",
    "Backend",
    "DeviceUnavailable",
    "Partition",
    "PartitionError",
    "PartitionRounded",
    "Partitions",
    "Plan",
    "Share",
    "StreamHandle",
    "backend",
    "current_stream",
    "kernel",
    "launch_host",
    "library_is_in_use",
    "partition",
    "use_stream",
    "when_done",
]


def __getattr__(name: str) -> Any:
    if name not in _OF_THE_DEVICE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(module(), name)
    globals()[name] = value  # the choice holds for the process: ask once
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
