"""OpenCV, which draws the shapes of the viewer.

Its wheels are for x86-64 and aarch64 and every Python from 3.11 on (one wheel, by the stable ABI); the licence is
Apache 2.0, the size 40 to 60 MB. Decided against: Skia, which draws shapes as well and scales no images as well;
Pillow, whose shapes are not smoothed and hold the GIL.
"""

from __future__ import annotations

from typing import Any

from headrace.lazy import import_or_explain


def opencv() -> Any:
    """Return OpenCV, or raise an error that says how it is installed."""
    return import_or_explain("cv2", "view", "to draw")
