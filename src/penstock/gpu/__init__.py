"""GPUs: devices, SM partitions, contexts, streams and events; real or simulated.

On a machine with a GPU, names such as Device and Stream are cuda.core's own, re-exported and never wrapped.
Elsewhere they come from :mod:`penstock.gpu.sim`, which has the same interface, so the same program runs on both.
The choice is made when one of these names is first used; ``PENSTOCK_DEVICE`` (``auto``, ``cuda``, ``sim``,
``none``) controls it.

The package adds what cuda.core lacks: :func:`partition`, :func:`when_done`, :func:`launch_host`,
:func:`record_external`, :class:`kernel` and :class:`StreamHandle`. They work with either kind of device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.gpu.ambient import current_stream as current_stream
from penstock.gpu.ambient import library_is_in_use as library_is_in_use
from penstock.gpu.ambient import remember_stream as remember_stream
from penstock.gpu.ambient import use_stream as use_stream
from penstock.gpu.backends import Backend as Backend
from penstock.gpu.backends import DeviceUnavailable as DeviceUnavailable
from penstock.gpu.backends import backend as backend
from penstock.gpu.backends import module as _module
from penstock.gpu.capture import captured_frontier as captured_frontier
from penstock.gpu.capture import captured_nodes as captured_nodes
from penstock.gpu.capture import instantiate_with_records as instantiate_with_records
from penstock.gpu.capture import is_capturing as is_capturing
from penstock.gpu.capture import record_external as record_external
from penstock.gpu.capture import wait_external as wait_external
from penstock.gpu.completion import when_done as when_done
from penstock.gpu.current_device import on_device as on_device
from penstock.gpu.current_device import remember_current as remember_current
from penstock.gpu.device_names import DEVICE_NAMES as _DEVICE_NAMES
from penstock.gpu.host_function import launch_host as launch_host
from penstock.gpu.kernels import kernel as kernel
from penstock.gpu.recorded_copy import RecordedCopy as RecordedCopy
from penstock.gpu.stream_handle import StreamHandle as StreamHandle

if TYPE_CHECKING:  # the simulated classes stand for both kinds of device
    from penstock.gpu.partitions import Partition as Partition
    from penstock.gpu.partitions import PartitionError as PartitionError
    from penstock.gpu.partitions import PartitionRounded as PartitionRounded
    from penstock.gpu.partitions import Partitions as Partitions
    from penstock.gpu.partitions import Plan as Plan
    from penstock.gpu.partitions import Share as Share
    from penstock.gpu.partitions import partition as partition
    from penstock.gpu.sim.cuda_core import *  # noqa: F403
else:  # type checkers accept only a list of literals, and see the names imported above without one
    # Imported on first use: many programs create no partitions.
    _PARTITION_NAMES = (
        "Partition",
        "PartitionError",
        "PartitionRounded",
        "Partitions",
        "Plan",
        "Share",
        "partition",
    )
    __all__ = [
        *_DEVICE_NAMES,
        *_PARTITION_NAMES,
        "Backend",
        "DeviceUnavailable",
        "RecordedCopy",
        "StreamHandle",
        "backend",
        "captured_frontier",
        "captured_nodes",
        "current_stream",
        "instantiate_with_records",
        "is_capturing",
        "kernel",
        "launch_host",
        "library_is_in_use",
        "on_device",
        "record_external",
        "remember_current",
        "remember_stream",
        "use_stream",
        "wait_external",
        "when_done",
    ]

    def __getattr__(name: str) -> Any:
        if name in _DEVICE_NAMES:
            source = _module()
        elif name in _PARTITION_NAMES:
            source = importlib.import_module("penstock.gpu.partitions")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(source, name)
        globals()[name] = value  # the choice of device holds for the process
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
