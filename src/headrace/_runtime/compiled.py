"""Whether the hot path runs as extension modules, which a build may have put next to the source files."""

from __future__ import annotations

from headrace._runtime.scheduling import engine


def is_compiled() -> bool:
    """Return whether the modules that every step runs through are compiled."""
    return not engine.__file__.endswith(".py")
