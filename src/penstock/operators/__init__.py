"""The catalogue of operators; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.operators.holoviz import HolovizOp

__all__ = ["HolovizOp"]

_MODULES = {"HolovizOp": "holoviz"}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import an operator when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"penstock.operators.{_MODULES[name]}"), name)
