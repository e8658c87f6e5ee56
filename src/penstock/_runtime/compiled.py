"""Whether the hot path runs as extension modules, which a build may have put beside its files."""

from __future__ import annotations

from penstock._runtime.scheduling import engine

__all__ = ["is_compiled"]


def is_compiled() -> bool:
    """Say whether the modules that every step runs through are compiled."""
    return not engine.__file__.endswith(".py")
