"""Imports at first use: names of a package, so that importing it stays cheap, and libraries that may be missing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from headrace.installation import installing

_IMPORT = re.compile(r"^from (\S+) import (?:(?:\(\s*)?(\w+) as \2\b|\*)", re.MULTILINE)


def stub_names(file: str) -> dict[str, str]:
    """Return the module of each name that a stub imports, by itself or with ``*`` from another stub."""
    with open(file, encoding="utf-8") as stub:
        found = _IMPORT.findall(stub.read())
    names: dict[str, str] = {}
    for module, name in found:
        other = os.path.join(os.path.dirname(__file__), *module.split(".")[1:]) + ".pyi"
        names.update({name: module} if name else stub_names(other))
    return names


def lazy_package(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub lists its names.

    The stub beside its ``__init__.py`` is the one list of the names: type checkers read it, and so does this
    function (SPEC 1 of Scientific Python). Each statement is ``from module import Name as Name``, or imports ``*``
    from a module that is such a stub. No name may be that of a module of the package, which would replace it.

    Parameters
    ----------
    package, file
        The package's ``__name__`` and ``__file__``.
    """
    modules = stub_names(os.path.join(os.path.dirname(file), "__init__.pyi"))

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(modules)
    return __getattr__, lambda: names, names


def import_or_explain(module: str, extra: str, purpose: str) -> Any:
    """Return a module, or raise an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ImportError(
            f"{library} is needed {purpose}: {installing(extra)} ({error})", name=library
        ) from error
