"""The choice of the device that a program runs on: real, simulated or none.

``HEADRACE_DEVICE`` makes the choice: ``cuda``, ``sim``, ``none``, or ``auto`` (the default), which is CUDA if a
device is found and a simulated device otherwise. The choice is made once for the process, when a device is
first needed. No CUDA library is imported before that.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from types import ModuleType
from typing import Literal

from headrace.extras import installing

Backend = Literal["cuda", "sim", "none"]

CHOICES = ("auto", "cuda", "sim", "none")
SIMULATED_TIME = "paced"  # the kind of time of a simulated device, unless HEADRACE_SIM_TIME is set
OLDEST_DRIVER = (12, 4)  # the first version with green contexts


class DeviceUnavailable(RuntimeError):
    """No device of the requested kind is available; the text states what was found and what is needed."""


_choosing = threading.Lock()
_chosen: Backend | None = None


def backend() -> Backend:
    """Return the kind of device that this process uses; the first call makes the choice."""
    global _chosen
    if _chosen is None:
        with _choosing:  # two threads must not both announce the simulation
            if _chosen is None:
                _chosen = _choose()
    return _chosen


def chosen() -> Backend | None:
    """Return the kind of device that this process uses, or None if the choice has not been made."""
    return _chosen


def module() -> ModuleType:
    """Return the module that provides Device, Stream and the other names for this process."""
    kind = backend()
    if kind == "none":
        raise DeviceUnavailable(
            "this program needs a device, but HEADRACE_DEVICE=none disables devices; "
            "set it to cuda, sim or auto"
        )
    return importlib.import_module(f"headrace.gpu.{kind}")


def _choose() -> Backend:
    setting = os.environ.get("HEADRACE_DEVICE", "auto")
    if setting not in CHOICES:
        raise ValueError(f"HEADRACE_DEVICE={setting!r}: must be one of {', '.join(CHOICES)}")
    if setting == "cuda":
        reason = why_not_cuda()
        if reason is not None:
            raise DeviceUnavailable(f"HEADRACE_DEVICE=cuda, but {reason}")
        return "cuda"
    if setting == "auto":
        reason = why_not_cuda()
        if reason is None:
            return "cuda"
        print(
            f"headrace: {reason}; running on a simulated device, in {_simulated_time()} time", file=sys.stderr
        )
        return "sim"
    return "sim" if setting == "sim" else "none"


def _simulated_time() -> str:
    """Return the kind of time of the simulated machine that is current, or of the one that would be created."""
    # Not imported here: the module imports this one, and is slow to import.
    module = sys.modules.get("headrace.gpu.sim.machine")
    machine = None if module is None else module.existing_machine()
    return os.environ.get("HEADRACE_SIM_TIME", SIMULATED_TIME) if machine is None else str(machine.time)


def why_not_cuda() -> str | None:
    """Return the reason why CUDA cannot be used, or None if it can.

    Raises
    ------
    DeviceUnavailable
        If there is a GPU whose driver is too old. Simulating a device would hide the problem.
    """
    try:
        from cuda.bindings import driver
        from cuda.core import Device
    except ImportError as error:
        if not has_nvidia_driver():
            return "no NVIDIA driver was found"
        return (
            f"cuda-core cannot be imported ({_first_line(error)}): "
            f"{installing('cu13')}, with cu12 for a driver before 13.0"
        )
    # Streams share connections to the device, 8 unless set otherwise, and work on one stream then waits for work on
    # another. The driver reads it when it starts; if another library has started it already, this changes nothing.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        version = driver_version()
    except Exception as error:
        return f"no usable NVIDIA driver was found ({_first_line(error)})"
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(
            f"the NVIDIA driver supports CUDA {version[0]}.{version[1]}; headrace needs 12.4 or newer. "
            "Update the driver, or set HEADRACE_DEVICE=sim to run on a simulated device"
        )
    try:
        (status,) = driver.cuInit(0)
        if status != driver.CUresult.CUDA_SUCCESS:
            return f"CUDA does not start ({status.name})"
        if not Device.get_all_devices():
            return "the driver sees no CUDA device"
    except Exception as error:
        return f"CUDA does not start ({_first_line(error)})"
    return None


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA version that the real driver supports."""
    from cuda.bindings import driver

    status, version = driver.cuDriverGetVersion()
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DeviceUnavailable(f"the driver does not report its version ({status.name})")
    return version // 1000, version % 1000 // 10


def has_nvidia_driver() -> bool:
    """Return whether the kernel has NVIDIA's driver loaded."""
    return os.path.exists("/proc/driver/nvidia/version")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
