"""Batch: several messages taken at once."""

from __future__ import annotations

from typing import Any

__all__ = ["Batch"]


class Batch(list[Any]):
    """Several messages taken at once; a separate type, so that an emitted list is not mistaken for it."""

    __slots__ = ()
