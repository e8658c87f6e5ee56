"""The files that this process has open, for tests that look whether something is left open."""

from __future__ import annotations

import os
from contextlib import suppress


def open_files() -> set[tuple[str, str]]:
    """Return the number of each open file and what it leads to.

    Not how many there are: a thread that an earlier test has left behind may close its own meanwhile.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # it was that of the list itself, or is closed by now
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found
