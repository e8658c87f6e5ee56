"""Let ``import holoscan`` give the package of this folder, in this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "headrace_holoscan"


class _Alias(Loader):
    """Loads a module that exists under another name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself, not a second one of the same code: its classes must be the same."""
        module = import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore what the import system has changed; the module has been executed."""
        module.__spec__ = self._spec


class _Finder(MetaPathFinder):
    """Finds ``holoscan`` and its modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the alias of a module; None for one that is not there."""
        head, _, tail = fullname.partition(".")
        if head != "holoscan":
            return None
        name = self._module(tail)
        if name is None:
            return None
        return ModuleSpec(fullname, _Alias(name), is_package=not tail or "." not in tail)

    @staticmethod
    def _module(tail: str) -> str | None:
        from headrace_holoscan import MODULES

        if not tail:
            return PACKAGE
        first, _, inner = tail.partition(".")
        if first not in MODULES or "." in inner:
            return None
        # The SDK has a module for each operator; its names are in the package as well.
        module = import_module(f"{PACKAGE}.{first}")
        if not inner or inner in getattr(module, "SUBMODULES", ()):
            return f"{PACKAGE}.{first}"
        return None


_FINDER = _Finder()


def install() -> None:
    """Make ``import holoscan`` give this package; raise if the SDK itself has been imported."""
    known = sys.modules.get("holoscan")
    if known is not None and known is not sys.modules.get(PACKAGE):
        raise ImportError(
            f"holoscan has been imported already, from {known.__file__}; call install() before anything imports it"
        )
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    from headrace_holoscan import logger

    logger.show()


def uninstall() -> None:
    """Undo `install`: forget the modules, so that ``import holoscan`` looks for an installed package again."""
    if _FINDER in sys.meta_path:
        from headrace_holoscan import logger

        sys.meta_path.remove(_FINDER)
        logger.hide()
    for name in [name for name in sys.modules if name == "holoscan" or name.startswith("holoscan.")]:
        del sys.modules[name]
