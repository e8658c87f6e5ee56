"""Arrays on a simulated device: a module by the Array API standard, version 2024.12.

:func:`headrace.gpu.arrays` returns this module where there is no GPU. It stands for CuPy: the names that both have
mean the same, beside the standard's names `asnumpy`, `ndarray` and `float16`. Its arrays live in simulated device
memory. Each function queues a kernel on the current stream, and NumPy computes the values when the kernel runs.

The standard's cases that are left open are NumPy's, as in CuPy. `docs/arrays.md` says what is left out.
"""

from __future__ import annotations

import inspect
import math

import numpy as np

from headrace.gpu.sim.arrays import creation, elementwise, further, linalg, reductions, shapes
from headrace.gpu.sim.arrays import fft as fft
from headrace.gpu.sim.arrays.array import Array

_FUNCTIONS = {
    name: value
    for module in (creation, elementwise, reductions, shapes)
    for name, value in vars(module).items()
    if inspect.isfunction(value)
    and value.__module__ == module.__name__
    and (name[:2] == "__" or name[0] != "_")
}
_TYPES = {name: np.dtype(name).type for name in ("float16", *creation._names("bool", "numeric"))}
_PRODUCTS = {name: getattr(linalg, name) for name in ("cross", "matmul", "tensordot", "trace", "vecdot")}
_NAMES = further.functions(_FUNCTIONS | _TYPES | _PRODUCTS | {"diagonal": linalg.diagonal})
further.add_methods(_NAMES)
globals().update(_NAMES)
e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None
ndarray = Array

__array_api_version__ = "2024.12"
