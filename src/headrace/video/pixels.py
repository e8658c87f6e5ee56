"""Pixels: what cameras send, as RGBA."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from headrace.extras import installing

__all__ = ["JpegDecoder", "rgb_to_rgba", "yuyv_to_rgba"]

# The shares of red and blue in the brightness.
_WEIGHTS = {"601": (0.299, 0.114), "709": (0.2126, 0.0722)}
_SCALE = 32  # of the tables, so that sums fit into 16 bits


def rgb_to_rgba(rgb: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return (height, width, 4) of (height, width, 3), with an alpha of 255."""
    rgba = np.empty((*rgb.shape[:2], 4), np.uint8)
    rgba[..., :3] = rgb
    rgba[..., 3] = 255
    return rgba


def yuyv_to_rgba(
    yuyv: np.ndarray[Any, Any], *, standard: str = "601", full_range: bool = False
) -> np.ndarray[Any, Any]:
    """Return RGBA of a picture in YUYV, whose pixels share their colour two by two.

    Parameters
    ----------
    yuyv
        uint8 of shape (height, width, 2), of an even width.
    standard
        ``"601"`` or ``"709"``.
    full_range
        Whether brightness is 0 to 255; otherwise 16 to 235, and colour 16 to 240.
    """
    luma, red_of_v, green_of_u, green_of_v, blue_of_u = _tables(standard, full_range)
    height, width = yuyv.shape[:2]
    brightness = luma[yuyv[..., 0]].reshape(height, width // 2, 2)
    u, v = yuyv[:, 0::2, 1], yuyv[:, 1::2, 1]
    rgba = np.empty((height, width // 2, 2, 4), np.uint8)
    shares = (red_of_v[v], green_of_u[u] + green_of_v[v], blue_of_u[u])
    for channel, share in enumerate(shares):
        value = brightness + share[..., None]
        np.right_shift(value, 5, out=value)
        rgba[..., channel] = np.clip(value, 0, 255, out=value)
    rgba[..., 3] = 255
    return rgba.reshape(height, width, 4)


_made: dict[tuple[str, bool], tuple[np.ndarray[Any, Any], ...]] = {}


def _tables(standard: str, full_range: bool) -> tuple[np.ndarray[Any, Any], ...]:
    """Return what each value of Y, U and V adds to red, green and blue, times 32."""
    key = (standard, full_range)
    if key not in _made:
        red, blue = _WEIGHTS[standard]
        green = 1 - red - blue
        value = np.arange(256.0)
        y = value if full_range else (value - 16) * 255 / 219
        c = (value - 128) * (1 if full_range else 255 / 224)
        tables = (
            y + 0.5,  # so that the shift rounds
            2 * (1 - red) * c,
            -2 * (1 - blue) * blue / green * c,
            -2 * (1 - red) * red / green * c,
            2 * (1 - blue) * c,
        )
        _made[key] = tuple(np.round(table * _SCALE).astype(np.int16) for table in tables)
    return _made[key]


class JpegDecoder:
    """Decodes JPEG pictures to RGBA, with PyAV, Pillow or OpenCV, whichever is installed."""

    def __init__(self) -> None:
        self._decode = _with_pyav() or _with_pillow() or _with_opencv()
        if self._decode is None:
            raise ImportError(
                "decoding Motion JPEG needs PyAV, Pillow or OpenCV, and none is installed: "
                f"{installing('video')}, or take the pictures as they are with pass_through=True"
            )

    def __call__(self, data: Any) -> np.ndarray[Any, Any] | None:
        """Return the picture, (height, width, 4), or None if it cannot be decoded."""
        assert self._decode is not None
        try:
            picture: np.ndarray[Any, Any] | None = self._decode(data)
        except Exception:  # each library has errors of its own for a damaged picture
            return None
        return picture


def _with_pyav() -> Any:
    try:
        import av
    except ImportError:
        return None
    codec = av.CodecContext.create("mjpeg", "r")

    def decode(data: Any) -> Any:
        frames = codec.decode(av.Packet(bytes(data)))
        return frames[0].to_ndarray(format="rgba") if frames else None

    return decode


def _with_pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        return None
    return lambda data: np.array(Image.open(io.BytesIO(bytes(data))).convert("RGBA"))


def _with_opencv() -> Any:
    try:
        import cv2
    except ImportError:
        return None

    def decode(data: Any) -> Any:
        picture = cv2.imdecode(np.frombuffer(bytes(data), np.uint8), cv2.IMREAD_COLOR)
        return None if picture is None else rgb_to_rgba(picture[..., ::-1])

    return decode
