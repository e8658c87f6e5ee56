"""A simulated GPU with cuda.core's interface.

The package has the names, properties and error types of :mod:`cuda.core` for green contexts, streams, events,
kernels and memory. :class:`Machine` describes the simulated computer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.gpu.device_names import DEVICE_NAMES as _DEVICE_NAMES
from penstock.gpu.sim.cuda_core import *  # noqa: F403
from penstock.gpu.sim.launches import Launch as Launch
from penstock.gpu.sim.launches import launched as launched
from penstock.gpu.sim.machine import Machine as Machine
from penstock.gpu.sim.machine import current_machine as current_machine
from penstock.gpu.sim.memory import host_view as host_view
from penstock.gpu.sim.profiles import PROFILES as PROFILES
from penstock.gpu.sim.profiles import Profile as Profile
from penstock.gpu.sim.workqueue_resource import WorkqueueSharingScopeType as WorkqueueSharingScopeType

if (
    not TYPE_CHECKING
):  # type checkers accept only a list of literals, and see the names imported above without one
    __all__ = [
        *_DEVICE_NAMES,
        "PROFILES",
        "Launch",
        "Machine",
        "Profile",
        "WorkqueueSharingScopeType",
        "current_machine",
        "host_view",
        "launched",
    ]
