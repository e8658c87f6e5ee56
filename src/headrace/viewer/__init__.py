"""The viewer without its operator: specifications of layers, the renderer, and where pictures go.

:class:`headrace.operators.HolovizOp` is made of these. :class:`Renderer` is useful by itself: it draws arrays to a
picture, without a pipeline. Everything is imported when it is first used.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
