"""Which device a program runs on: a real one, a simulated one, or none.

``PENSTOCK_DEVICE`` chooses: ``cuda``, ``sim``, ``none``, or ``auto`` (the default), which is CUDA where a
device is found and a simulated one elsewhere. The choice is made when a device is first needed, once for the
process. Nothing here imports a CUDA library before that.
"""

import importlib
import os
import sys
import threading
from functools import cache
from types import ModuleType
from typing import Literal

Backend = Literal["cuda", "sim", "none"]

CHOICES = ("auto", "cuda", "sim", "none")
SIMULATED_TIME = "paced"  # which time a simulated device is in, unless PENSTOCK_SIM_TIME says otherwise
OLDEST_DRIVER = (12, 4)  # the first with green contexts


class DeviceUnavailable(RuntimeError):
    """There is no device of the kind that was asked for; the text says what was found and what is needed."""


_choosing = threading.Lock()


def backend() -> Backend:
    """Return which kind of device this process uses, choosing it at the first call."""
    with _choosing:  # two threads must not both announce the simulation
        return _choose()


def chosen() -> Backend | None:
    """Return which kind of device this process uses if that has been chosen already, else None."""
    return _choose() if _choose.cache_info().currsize else None


def module() -> ModuleType:
    """Return the module whose Device, Stream and other names this process uses."""
    kind = backend()
    if kind == "none":
        raise DeviceUnavailable(
            "this program needs a device, but PENSTOCK_DEVICE=none says to use none; "
            "set it to cuda, sim or auto"
        )
    return importlib.import_module(f"penstock.gpu.{kind}")


@cache
def _choose() -> Backend:
    asked = os.environ.get("PENSTOCK_DEVICE", "auto")
    if asked not in CHOICES:
        raise ValueError(f"PENSTOCK_DEVICE={asked!r}: must be one of {', '.join(CHOICES)}")
    if asked == "cuda":
        lack = why_not_cuda()
        if lack is not None:
            raise DeviceUnavailable(f"PENSTOCK_DEVICE=cuda, but {lack}")
        return "cuda"
    if asked == "auto":
        lack = why_not_cuda()
        if lack is None:
            return "cuda"
        time = os.environ.get("PENSTOCK_SIM_TIME", SIMULATED_TIME)
        print(f"penstock: {lack}; running on a simulated device, in {time} time", file=sys.stderr)
        return "sim"
    return "sim" if asked == "sim" else "none"


def why_not_cuda() -> str | None:
    """Return what keeps CUDA from being used, or None if nothing does.

    Raises
    ------
    DeviceUnavailable
        If there is a GPU whose driver is too old. Simulating it would hide that.
    """
    try:
        from cuda.bindings import driver
        from cuda.core import Device
    except ImportError as error:
        if not has_nvidia_driver():
            return "no NVIDIA driver was found"
        return (
            f"cuda-core cannot be imported ({_first_line(error)}): "
            "install penstock[cu13], or penstock[cu12] for a driver before 13.0"
        )
    try:
        version = driver_version()
    except Exception as error:
        return f"no usable NVIDIA driver was found ({_first_line(error)})"
    if version < OLDEST_DRIVER:
        raise DeviceUnavailable(
            f"the NVIDIA driver supports CUDA {version[0]}.{version[1]}; penstock needs 12.4 or newer. "
            "Update the driver, or set PENSTOCK_DEVICE=sim to run on a simulated device"
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
        raise DeviceUnavailable(f"the driver does not tell its version ({status.name})")
    return version // 1000, version % 1000 // 10


def has_nvidia_driver() -> bool:
    """Return whether the kernel has NVIDIA's driver loaded."""
    return os.path.exists("/proc/driver/nvidia/version")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
