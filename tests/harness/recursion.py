"""A recursion limit a few frames above a test, so that what walks too deep is small."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most_deeper(frames: int) -> Iterator[int]:
    """Leave room for so many frames above the test; give the limit."""
    before = sys.getrecursionlimit()
    limit = len(inspect.stack(0)) + frames
    sys.setrecursionlimit(limit)
    try:
        yield limit
    finally:
        sys.setrecursionlimit(before)
