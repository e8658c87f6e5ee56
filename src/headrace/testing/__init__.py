"""Tools for testing operators: run an operator by itself on given inputs, and inspect what it emitted."""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
