"""Imports at first use: names of a package, so that importing it stays cheap, and libraries that may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from headrace.extras import installing

__all__ = ["import_or_explain", "lazy_names"]


def lazy_names(
    namespace: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` of a package, which imports a name when it is first used, and its ``__dir__``.

    Parameters
    ----------
    namespace
        The ``globals()`` of the package; an imported name is stored there, so that it is looked up once. Its
        ``__all__`` is what ``dir`` lists, the names that are not imported yet included.
    modules
        The module of each name, relative to the package; with a dot in front, relative to the package above.
    """
    package = namespace["__name__"]

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(f".{modules[name]}", package), name)
        return value

    def __dir__() -> list[str]:
        return sorted(namespace["__all__"])

    return __getattr__, __dir__


def import_or_explain(module: str, extra: str, purpose: str) -> Any:
    """Return a module, or raise an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ImportError(
            f"{library} is needed {purpose}: {installing(extra)} ({error})", name=library
        ) from error
