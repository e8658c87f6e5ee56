"""Imports at first use: names of a package, so that importing it stays cheap, and libraries that may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["import_or_explain", "lazy_getattr"]


def lazy_getattr(namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports a name from its module when it is first used.

    Parameters
    ----------
    namespace
        The ``globals()`` of the package; an imported name is stored there, so that it is looked up once.
    modules
        The module of each name, relative to the package; with a dot in front, relative to the package above.
    """
    package = namespace["__name__"]

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(f".{modules[name]}", package), name)
        return value

    return __getattr__


def import_or_explain(module: str, extra: str, purpose: str) -> Any:
    """Return a module, or raise an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ImportError(
            f"{library} is needed {purpose}: pip install 'penstock[{extra}]' ({error})", name=library
        ) from error
