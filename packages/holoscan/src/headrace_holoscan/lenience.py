"""What the SDK lets pass and headrace calls an error: the program goes on, and is told once."""

from __future__ import annotations

import logging

_log = logging.getLogger("headrace.holoscan")
_told: set[str] = set()


def tell(what: str, strict: str, *, error: bool = False) -> None:
    """Warn once in this process.

    Parameters
    ----------
    what
        What the program did, and what came of it.
    strict
        What headrace would have said.
    error
        Whether the SDK logs an error as well, and not a warning or nothing.
    """
    if what not in _told:
        _told.add(what)
        level = logging.ERROR if error else logging.WARNING
        _log.log(level, "%s; headrace would have said: %s", what, strict)


def forget() -> None:
    """Warn of everything again."""
    _told.clear()
