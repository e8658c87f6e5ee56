"""Arrays on a simulated device: a module by the Array API standard, version 2024.12.

:func:`headrace.gpu.arrays` returns this module where there is no GPU. It stands for CuPy: the names that both have
mean the same, beside the standard's names `asnumpy`, `ndarray` and `float16`. Its arrays live in simulated device
memory. Each function queues a kernel on the current stream, and NumPy computes the values when the kernel runs.

The standard's cases that are left open are NumPy's, as in CuPy. `docs/arrays.md` says what is left out.
"""

from __future__ import annotations

import math

from headrace.gpu.sim.arrays import functions
from headrace.gpu.sim.arrays.array import Array
from headrace.gpu.sim.arrays.creation import __array_namespace_info__ as __array_namespace_info__

_NAMES = functions.all_names()
functions.add_methods(_NAMES)
globals().update(_NAMES)
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
ndarray = Array

__array_api_version__ = "2024.12"
