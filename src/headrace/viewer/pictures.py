"""Pictures as files: JPEG for the page, and PNG. OpenCV encodes them, without the GIL."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np

from headrace.viewer.opencv import opencv


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
