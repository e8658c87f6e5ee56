"""GPUs: devices, SM partitions, contexts, streams and events; real or simulated.

On a machine with a GPU, names such as Device and Stream are cuda.core's own, re-exported and never wrapped.
Elsewhere they come from :mod:`headrace.gpu.sim`, which has the same interface, so the same program runs on both.
The choice is made when one of these names is first used; ``HEADRACE_DEVICE`` (``auto``, ``cuda``, ``sim``,
``none``, or a name of :func:`register_device`) controls it.

The package adds what cuda.core lacks: :func:`partition`, :func:`when_done`, :func:`launch_host`,
:func:`record_external`, :class:`kernel` and :class:`StreamHandle`. They work with any kind of device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.gpu.ambient import current_stream as current_stream
from headrace.gpu.ambient import use_stream as use_stream
from headrace.gpu.backend import Backend as Backend
from headrace.gpu.backend import DeviceUnavailable as DeviceUnavailable
from headrace.gpu.backend import active as _active
from headrace.gpu.backend import backend as backend
from headrace.gpu.backend import register_device as register_device
from headrace.gpu.callbacks import launch_host as launch_host
from headrace.gpu.callbacks import when_done as when_done
from headrace.gpu.capture import RecordedCopy as RecordedCopy
from headrace.gpu.capture import captured_frontier as captured_frontier
from headrace.gpu.capture import captured_nodes as captured_nodes
from headrace.gpu.capture import instantiate_with_records as instantiate_with_records
from headrace.gpu.capture import is_capturing as is_capturing
from headrace.gpu.capture import record_external as record_external
from headrace.gpu.capture import wait_external as wait_external
from headrace.gpu.current_device import on_device as on_device
from headrace.gpu.device_names import DEVICE_NAMES as _DEVICE_NAMES
from headrace.gpu.kernels import kernel as kernel
from headrace.gpu.stream_handle import StreamHandle as StreamHandle

if TYPE_CHECKING:  # the simulated classes stand for every kind of device
    from headrace.gpu.partitions import Partition as Partition
    from headrace.gpu.partitions import PartitionError as PartitionError
    from headrace.gpu.partitions import PartitionRounded as PartitionRounded
    from headrace.gpu.partitions import Partitions as Partitions
    from headrace.gpu.partitions import Plan as Plan
    from headrace.gpu.partitions import Share as Share
    from headrace.gpu.partitions import partition as partition
    from headrace.gpu.sim.cuda_core import *  # noqa: F403
else:  # type checkers accept only a list of literals, and see the names imported above without one
    # Imported on first use: many programs create no partitions.
    _PARTITION_NAMES = (
        *("Partition", "PartitionError", "PartitionRounded", "Partitions", "Plan", "Share", "partition"),
    )
    __all__ = [
        *_DEVICE_NAMES,
        *_PARTITION_NAMES,
        *("Backend", "DeviceUnavailable", "backend", "register_device"),
        *("StreamHandle", "current_stream", "on_device", "use_stream"),
        *("is_capturing", "kernel", "launch_host", "record_external", "wait_external", "when_done"),
    ]

    def __getattr__(name: str) -> Any:
        if name in _DEVICE_NAMES:
            source = _active().names
        elif name in _PARTITION_NAMES:
            source = importlib.import_module("headrace.gpu.partitions")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(source, name)
        globals()[name] = value  # the choice of device holds for the process
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
