"""Stand-ins for libraries that are not installed, and what to know of others before a test uses them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from headrace.tensor import libraries

__all__ = ["fresh_registry", "numba_works", "stand_in"]


def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget, for one test, what has been registered and found so far."""
    registry = libraries._Registry(when_registered=libraries._registry.when_registered)
    monkeypatch.setattr(libraries, "_registry", registry)
    monkeypatch.setattr(libraries, "_found", {})
    for forget in registry.when_registered:
        forget()


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> Any:
    """Install a module in the place of a library, for one test."""
    fresh_registry(monkeypatch)
    module: Any = ModuleType(name)
    array_types = {name: type(name, (), {}) for name in ("ndarray", "UntypedStorage")}
    vars(module).update(array_types | {"_C": None} | contents)
    monkeypatch.setitem(sys.modules, name, module)
    # The file that is for the library refers to it, so it is imported anew, now and afterwards.
    path = f"headrace.tensor.libraries.{name}"
    monkeypatch.setitem(sys.modules, path, module)
    del sys.modules[path]
    return module


def numba_works() -> bool:
    """Return whether Numba, if it is there, works with this NumPy: 0.68 needs a name that NumPy 2.5 has no more."""
    return hasattr(np, "row_stack")
