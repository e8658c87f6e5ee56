"""GPUs: devices, SM partitions, contexts, streams and events; real or simulated.

On a machine with a GPU, names such as Device and Stream are cuda.core's own, re-exported and never wrapped.
Elsewhere they come from :mod:`headrace.gpu.sim`, which has the same interface, so the same program runs on both.
The choice is made when one of these names is first used; ``HEADRACE_DEVICE`` (``auto``, ``cuda``, ``sim``,
``none``, or a name of :func:`register_device`) controls it.

The package adds what cuda.core lacks: :func:`partition`, :func:`when_done`, :func:`launch_host`,
:class:`kernel` and :class:`StreamHandle`. They work with any kind of device.
"""

from __future__ import annotations

from typing import Any

from headrace.gpu.backend import DEVICE_NAMES as _DEVICE_NAMES
from headrace.gpu.backend import active as _active
from headrace.gpu.backend import backend as backend  # not lazily: there is a module of that name
from headrace.lazy import lazy_package

_import, __dir__, __all__ = lazy_package(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in _DEVICE_NAMES:
        return _import(name)
    value = globals()[name] = getattr(_active().names, name)  # the choice of device holds for the process
    return value
