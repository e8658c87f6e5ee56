"""Pictures that layers are drawn on, (rows, columns, 4) of uint8 with an alpha of 255; their files, PNG and JPEG.

OpenCV draws, scales and encodes them, without the GIL. Its wheels are for x86-64 and aarch64 and every Python from
3.11 on (one wheel, by the stable ABI); the licence is Apache 2.0, the size 40 to 60 MB. Decided against: Skia,
which draws shapes as well and scales no images as well; Pillow, whose shapes are not smoothed and hold the GIL.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain


def opencv() -> Any:
    """Return OpenCV, or raise an error that says how it is installed."""
    return import_or_explain("cv2", "view", "to draw")


def clear(picture: np.ndarray) -> None:
    """Make a picture black."""
    picture.view(np.uint32)[...] = np.frombuffer(b"\0\0\0\xff", np.uint32)[0]


def put(
    target: np.ndarray, rgb: np.ndarray, alpha: np.ndarray | None, opacity: float, left: int, top: int
) -> None:
    """Draw an image to a part of a picture, with its first pixel at (left, top); what lies outside is left out."""
    rows = slice(max(0, -top), min(rgb.shape[0], target.shape[0] - top))
    columns = slice(max(0, -left), min(rgb.shape[1], target.shape[1] - left))
    if rows.start >= rows.stop or columns.start >= columns.stop or opacity == 0:
        return
    cv2, source = opencv(), np.ascontiguousarray(rgb[rows, columns])
    target = target[top + rows.start : top + rows.stop, left + columns.start : left + columns.stop]
    if source.shape[2] == 3:
        source = cv2.cvtColor(source, cv2.COLOR_RGB2RGBA)
    if alpha is not None or opacity < 1:
        weight = np.full(target.shape[:2], opacity, np.float32)
        if alpha is not None:
            weight *= alpha[rows, columns] / np.float32(255)
        source = cv2.blendLinear(source, target.copy(), weight, 1 - weight)
    target[...] = source
    target[..., 3] = 255


def encode_jpeg(picture: np.ndarray, quality: int = 90) -> bytes:
    """Return a picture, (rows, columns, 4) of uint8, as a JPEG file."""
    return _encoded(picture, ".jpg", "JPEG_QUALITY", quality)


def encode_png(picture: np.ndarray) -> bytes:
    """Return a picture, (rows, columns, 4) of uint8, as a PNG file: exactly, and opaque."""
    return _encoded(picture, ".png", "PNG_COMPRESSION", 1)


def _encoded(picture: np.ndarray, kind: str, option: str, value: int) -> bytes:
    cv2 = opencv()
    pixels = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGBA2BGR)
    _, encoded = cv2.imencode(kind, pixels, [getattr(cv2, f"IMWRITE_{option}"), value])
    return bytes(encoded)


def write_png(path: str | os.PathLike[str], picture: np.ndarray) -> None:
    """Write a picture, (rows, columns, 4) of uint8, to a PNG file.

    The file is written under another name first, so that a reader never finds half of it, also if two
    operators write one file.
    """
    path = Path(path)
    other = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    other.write_bytes(encode_png(picture))
    other.replace(path)
