"""The names of cuda.core that :mod:`headrace.gpu` provides, whichever kind of device a process uses.

The stub ``sim/cuda_core.pyi`` lists them, with the simulated classes. It is read here, because no device may be
imported before one is used: :mod:`headrace.gpu` looks the names up in the backend of the process.
"""

from __future__ import annotations

import os

from headrace.lazy import stub_names

DEVICE_NAMES = frozenset(stub_names(os.path.join(os.path.dirname(__file__), "sim", "cuda_core.pyi")))
