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

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
