"""The classes that a program declares: operators, ports, conditions, resources, schedulers."""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
