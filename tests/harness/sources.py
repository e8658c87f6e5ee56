"""Sources of the project, for the tests that are about what is written in them."""

from __future__ import annotations

import ast
import gc
from functools import cache


@cache
def parse(source: str) -> ast.Module:
    """Return the tree of a source, which several tests look at and nobody changes.

    The garbage collector would look at the trees of all other sources again and again, which takes three times as
    long as parsing. They are garbage at the end of the process.
    """
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()
