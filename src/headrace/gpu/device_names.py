"""The names of cuda.core that :mod:`headrace.gpu` provides, whichever kind of device a process uses.

This is the only list of them. :mod:`headrace.gpu.cuda` takes them from cuda.core, :mod:`headrace.gpu.sim.cuda_core`
binds them to the simulated classes, and :mod:`headrace.gpu` looks them up in one of the two. It is a separate
module because neither of the two may be imported before a device is used. Type checkers read the simulated classes
instead.
"""

from __future__ import annotations

GRAPH_NAMES = (
    *("Graph", "GraphBuilder", "GraphCompleteOptions", "GraphDefinition", "GraphNode"),
    *("KernelNode", "MemcpyNode", "MemsetNode", "AllocNode", "FreeNode"),
    *("HostCallbackNode", "EventRecordNode", "EventWaitNode", "EmptyNode"),
)
"""The names of ``cuda.core.graph``."""

UTILITY_NAMES = ("CopyOptions",)
"""The names of ``cuda.core.utils``."""

DEVICE_NAMES = (
    *("CUDAError", "Device", "DeviceResources", "Context", "ContextOptions"),
    *("SMResource", "SMResourceOptions", "WorkqueueResource", "WorkqueueResourceOptions"),
    *("LEGACY_DEFAULT_STREAM", "Stream", "StreamOptions", "Event", "EventOptions"),
    *("Buffer", "DeviceMemoryResource", "GraphMemoryResource", "LegacyPinnedMemoryResource"),
    *("Kernel", "LaunchConfig", "ObjectCode", "Program", "ProgramOptions", "launch"),
    *GRAPH_NAMES,
    *UTILITY_NAMES,
)
