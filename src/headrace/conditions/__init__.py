"""The catalogue of conditions: when an operator runs. Each is imported when it is first used."""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
