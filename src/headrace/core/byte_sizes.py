"""Sizes of memory as people write them: ``"16MB"``, ``"1.5 GB"``, or a number of bytes."""

from __future__ import annotations

import re
from typing import TypeAlias

from headrace.brief import brief

Size: TypeAlias = int | str
"""A size of memory: a number of bytes, or text such as ``"16MB"``; units are powers of 1024."""

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]+)?\s*")


def byte_size(value: object, what: str, least: int = 0) -> int:
    """Return a size in bytes; `what` begins the error where it is none, or less than `least`."""
    size: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str):
        found = _TEXT.fullmatch(value)
        unit = None if found is None else _UNITS.get((found[2] or "B").upper())
        if found is not None and unit is not None:
            number = int(found[1]) * unit if found[1].isdigit() else float(found[1]) * unit
            size = int(number)
    if size is None:
        raise (ValueError if isinstance(value, str) else TypeError)(
            f"{what} must be a size such as '16MB' or '1.5 GB' (B, KB, MB, GB or TB, by 1024), or a number of "
            f"bytes, not {brief(value)}"
        )
    if size < least:
        raise ValueError(f"{what} must be at least {size_text(least)}, not {brief(value)}")
    return size


def size_text(size: int) -> str:
    """Return a size for people to read, as ``4 MB`` or ``1.5 GB``."""
    unit, factor = "B", 1
    for name, bytes_ in _UNITS.items():
        if size >= bytes_:
            unit, factor = name, bytes_
    if factor == 1:
        return f"{size} B"
    if size % factor == 0:
        return f"{size // factor} {unit}"
    return f"{size / factor:.4g} {unit} ({size} bytes)"
