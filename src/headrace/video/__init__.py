"""Video: recordings, video files, cameras and simulated scenes, without operators.

Each name is imported when it is first used, and PyAV when a video file is opened.
"""

from __future__ import annotations

from headrace.lazy import lazy_package

__getattr__, __dir__, __all__ = lazy_package(__name__, __file__)
