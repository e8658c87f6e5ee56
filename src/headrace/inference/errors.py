"""The error of a model that cannot be loaded or run."""

from __future__ import annotations


class InferenceError(RuntimeError):
    """A model that cannot be loaded or run, or data that does not fit it."""
