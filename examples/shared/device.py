"""The device of the examples about streams: the GPU or, where there is none, a simulated H200 in virtual time."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from headrace import gpu
from headrace.gpu import sim


def open_device() -> AbstractContextManager[Any]:
    """Return a context in which the program has its device."""
    return nullcontext() if gpu.backend() == "cuda" else sim.Machine("h200")


def sms_of(stream: Any) -> int:
    """Return the number of SMs that a stream may use, as the driver counts them."""
    # The handle of the default stream is 0, which is false; that stream may use every SM.
    if stream:
        return int(stream.stream.resources.sm.sm_count)
    device = gpu.Device(0)
    device.set_current()
    return int(device.resources.sm.sm_count)
