"""The catalogue of operators.

Each is imported when it is first used: importing this package imports no heavy library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.operators.inference import InferenceOp

__all__ = ["InferenceOp"]

_MODULES = {"InferenceOp": "penstock.operators.inference"}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import an operator when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
