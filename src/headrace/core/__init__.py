"""The classes that a program declares: operators, ports, conditions, resources, schedulers.

The application is offered here too. It stands above this package, which imports it only
when a program asks for it by this name.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
