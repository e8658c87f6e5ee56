"""What the SDK lets pass and headrace calls an error: the program goes on, and is told once."""

from __future__ import annotations

import logging

_log = logging.getLogger("headrace.compat")
_told: set[str] = set()


def tell(what: str, strict: str) -> None:
    """Warn once in this process.

    Parameters
    ----------
    what
        What the program did, and what came of it.
    strict
        What headrace would have said.
    """
    if what not in _told:
        _told.add(what)
        _log.warning("%s; headrace would have said: %s", what, strict)


def forget() -> None:
    """Warn of everything again."""
    _told.clear()
