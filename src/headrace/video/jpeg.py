"""JpegDecoder: the pictures of cameras that send Motion JPEG."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from headrace.extras import installing


class JpegDecoder:
    """Decodes JPEG pictures to RGBA, with PyAV or OpenCV, whichever is installed."""

    def __init__(self) -> None:
        for library, make in (("av", _with_pyav), ("cv2", _with_opencv)):
            with suppress(ImportError):
                self._decode = make(import_module(library))
                return
        raise ImportError(
            "decoding Motion JPEG needs PyAV or OpenCV, and neither is installed: "
            f"{installing('video')}, or take the pictures as they are with pass_through=True"
        )

    def __call__(self, data: Any) -> np.ndarray[Any, Any] | None:
        """Return the picture, (height, width, 4), or None if it cannot be decoded."""
        try:
            picture: np.ndarray[Any, Any] | None = self._decode(data)
        except Exception:  # each library has errors of its own for a damaged picture
            return None
        return picture


def _with_pyav(av: Any) -> Any:
    codec = av.CodecContext.create("mjpeg", "r")

    def decode(data: Any) -> Any:
        frames = codec.decode(av.Packet(bytes(data)))
        return frames[0].to_ndarray(format="rgba") if frames else None

    return decode


def _with_opencv(cv2: Any) -> Any:
    def decode(data: Any) -> Any:
        picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        return None if picture is None else cv2.cvtColor(picture, cv2.COLOR_BGR2RGBA)

    return decode
