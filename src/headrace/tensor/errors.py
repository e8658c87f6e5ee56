"""The error of this package, and helpers for its text."""

from __future__ import annotations


class TensorError(TypeError):
    """An object cannot be a tensor; the text states what it is, what was tried, and what would work."""


def type_name(obj: object) -> str:
    """Return the full name of an object's type, for errors and reprs."""
    kind = type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


def error_text(error: Exception) -> str:
    """Return the text of an error, or its type if it has none."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # str() itself failed
        return type(error).__name__
