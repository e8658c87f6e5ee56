"""The package `holoscan` of versions 2 to 4, for programs that were written for it: they run unchanged.

The distribution has a package `holoscan` too, which is this one by another name: ``import holoscan`` gives
it in every program of the environment. ``python -m headrace_holoscan app.py`` does so for one process, also beside
the SDK (`alias.install`). There is one module for each module of the SDK. A class here
derives from headrace's own and adds what differs: the names and orders of arguments, and the answers to what
headrace calls an error. Each such answer warns once and says what headrace would have said (`lenience`). Nothing
outside of this package knows it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "4.6.0"
MODULES = (
    *("conditions", "core", "data_loggers", "decorator", "executors", "flow_graphs", "graphs", "gxf"),
    *("logger", "network_contexts", "operators", "pose_tree", "resources", "schedulers"),
)
__all__ = ["__version__", "as_tensor", *MODULES]


def __getattr__(name: str) -> Any:
    if name == "as_tensor":
        return import_module(f"{__name__}.core.tensors").as_tensor
    if name in MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'holoscan' has no attribute {name!r}")
