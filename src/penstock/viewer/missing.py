"""Libraries that are used where they are installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["import_or_explain"]


def import_or_explain(module: str, extra: str, purpose: str) -> Any:
    """Return a module, or raise an error that names the extra which installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ImportError(
            f"{library} is needed {purpose}: pip install 'penstock[{extra}]' ({error})", name=library
        ) from error
