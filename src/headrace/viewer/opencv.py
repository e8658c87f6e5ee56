"""OpenCV, which draws the shapes of the viewer.

Its wheels are for x86-64 and aarch64 and every Python from 3.11 on (one wheel, by the stable ABI); the licence is
Apache 2.0, the size 40 to 60 MB. Version 5 is the first with `triangleRasterize`, which draws triangles that have a
depth. Decided against: Skia, which draws shapes as well and knows no depth; Pillow, whose shapes are not smoothed
and hold the GIL; rasterising in NumPy, which took 1,700 times as long for large triangles and whose memory had no
bound.
"""

from __future__ import annotations

from typing import Any

from headrace.lazy import import_or_explain


def opencv() -> Any:
    """Return OpenCV, or raise an error that says how it is installed."""
    cv2 = import_or_explain("cv2", "view", "to draw")
    if not hasattr(cv2, "triangleRasterize"):
        raise ImportError(
            f"OpenCV 5 or later is needed to draw, and this is {cv2.__version__}: "
            "pip install --upgrade opencv-python-headless"
        )
    return cv2
