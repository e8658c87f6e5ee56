"""The line of a program at which an error was raised, for the text of another error."""

from __future__ import annotations

import linecache
import sys
import traceback

_LIBRARIES = ("headrace", "cupy", "torch", "numpy", "cuda", "numba")


def raising_line(error: BaseException) -> str:
    """Return the line of the program that raised, and where it is: the last one that is not in a library."""
    found = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if not _is_of_a_library(frame.f_globals.get("__name__"), frame.f_code.co_filename):
            found = frame.f_code.co_filename, number
    if found is None:
        return ""
    file, number = found
    line = linecache.getline(file, number).strip()
    place = f"{file.rpartition('/')[2]}, line {number}"
    return f"{line!r} ({place})" if line else place


def _is_of_a_library(module: object, file: str) -> bool:
    top = str(module).partition(".")[0]
    if str(module).startswith("headrace.operators"):
        return False
    # headrace_ begins the names of distributions that stand on headrace.
    is_library = top in _LIBRARIES or top.startswith("headrace_")
    return is_library or top in sys.stdlib_module_names or "site-packages" in file
