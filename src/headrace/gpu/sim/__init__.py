"""A simulated GPU with cuda.core's interface.

The package has the names, properties and error types of :mod:`cuda.core` for green contexts, streams, events,
kernels and memory. :class:`Machine` describes the simulated computer.

It is our own because nothing else does what it is for. Simulators of GPUs (GPGPU-Sim, Accel-Sim) run compiled
kernels cycle by cycle, thousands of times slower than the hardware, and take no Python program. Libraries for
discrete events (SimPy) run processes as generators on one thread. Here real threads of a program call what
looks like a driver: in time that passes only while they wait, with blocks placed on SMs as an H200 was seen to
place them, and with the driver's own errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.gpu.device_names import DEVICE_NAMES as _DEVICE_NAMES
from headrace.gpu.sim.cuda_core import *  # noqa: F403
from headrace.gpu.sim.launches import Launch as Launch
from headrace.gpu.sim.launches import launched as launched
from headrace.gpu.sim.machine import Machine as Machine
from headrace.gpu.sim.machine import current_machine as current_machine
from headrace.gpu.sim.memory import host_view as host_view
from headrace.gpu.sim.profiles import PROFILES as PROFILES
from headrace.gpu.sim.profiles import Profile as Profile
from headrace.gpu.sim.resources import WorkqueueSharingScopeType as WorkqueueSharingScopeType

if (
    not TYPE_CHECKING
):  # type checkers accept only a list of literals, and see the names imported above without one
    __all__ = [
        *_DEVICE_NAMES,
        *("PROFILES", "Launch", "Machine", "Profile", "WorkqueueSharingScopeType"),
        *("current_machine", "host_view", "launched"),
    ]
