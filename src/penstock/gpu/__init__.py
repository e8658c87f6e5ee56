"""GPUs: devices, SM partitions, contexts, streams and events; real or simulated.

On a machine with a GPU the names here are cuda.core's own objects, re-exported and never wrapped. Elsewhere
they are those of :mod:`penstock.gpu.sim`, which has the same interface, so the same program runs. The choice
is made when one of them is first used; ``PENSTOCK_DEVICE`` (``auto``, ``cuda``, ``sim``, ``none``) makes it.

Beside them stands what cuda.core lacks: :func:`partition`, :func:`when_done`, :func:`launch_host`,
:class:`kernel` and :class:`StreamHandle`. They work with either kind of device.
"""

import importlib
from typing import TYPE_CHECKING, Any

from penstock.gpu.ambient import current_stream, library_is_in_use, use_stream
from penstock.gpu.backends import Backend, DeviceUnavailable, backend, module
from penstock.gpu.completion import when_done
from penstock.gpu.current_device import on_device, remember_current
from penstock.gpu.host_function import launch_host
from penstock.gpu.kernels import kernel
from penstock.gpu.stream_handle import StreamHandle

if TYPE_CHECKING:  # the simulated classes are typed and have the interface, so they stand for either
    from penstock.gpu.partitions import (
        Partition,
        PartitionError,
        PartitionRounded,
        Partitions,
        Plan,
        Share,
        partition,
    )
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

# Type checkers want __all__ written out, so it is where each name stands, once.
__all__ = [  # of the device: cuda.core's, or the simulation's
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
]
_OF_THE_DEVICE = tuple(__all__)
__all__ += ["Partition", "PartitionError", "PartitionRounded", "Partitions", "Plan", "Share", "partition"]
_OF_PARTITIONS = __all__[len(_OF_THE_DEVICE) :]  # imported when first used: many programs divide nothing
__all__ += ["Backend", "DeviceUnavailable", "StreamHandle", "backend", "kernel", "launch_host", "when_done"]
__all__ += ["current_stream", "library_is_in_use", "on_device", "remember_current", "use_stream"]


def __getattr__(name: str) -> Any:
    if name in _OF_THE_DEVICE:
        source = module()
    elif name in _OF_PARTITIONS:
        source = importlib.import_module("penstock.gpu.partitions")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(source, name)
    globals()[name] = value  # the choice holds for the process: ask once
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
