"""Poses over time: rotations, poses, and a tree of coordinate frames that operators share."""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
