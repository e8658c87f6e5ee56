"""The catalogue of operators: video, images, inference, the viewer, and tests of pipelines.

Each is imported when it is first used, so that importing this package imports no library of theirs.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
