"""Sources of the project, for the tests that are about what is written in them."""

from __future__ import annotations

import ast
from functools import cache


@cache
def parse(source: str) -> ast.Module:
    """Return the tree of a source, which several tests look at and nobody changes."""
    return ast.parse(source)
