"""Pictures that layers are drawn on, (rows, columns, 4) of uint8 with an alpha of 255; their files, PNG and JPEG.

OpenCV draws, scales and encodes them, without the GIL. Its wheels are for x86-64 and aarch64 and every Python from
3.11 on (one wheel, by the stable ABI); the licence is Apache 2.0, the size 40 to 60 MB. Decided against: Skia,
which draws shapes as well and scales no images as well; Pillow, whose shapes are not smoothed and hold the GIL.

Points, lines, triangles and text, drawn to a part of a picture or to a mask of it.

OpenCV draws the shapes. Lines that are not horizontal or vertical are smoothed at their edges. Horizontal and
vertical ones, and points, cover whole pixels: smoothed, a line of one pixel would become a grey one of two. A
triangle covers its edges too, so that neighbours leave no gap. Places are relative to the part, in pixels: the
first pixel is from 0 to 1. Shapes that reach far beyond it are cut, so that they fit OpenCV's integers.

Pillow draws text: it brings a font along, reads those of files, and lays out lines. OpenCV 5.0 does so, too, but
crashes for a file that is no font, and does not come back from a text of 20,000 letters of 2,000 pixels.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
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


_SHIFT = 8  # binary digits after the point of OpenCV's coordinates
# Pixels around a picture, beyond which shapes are cut: OpenCV draws the edges of long ones less exactly.
_MARGIN = 64
_THICKEST = 32767  # line of OpenCV
# OpenCV's smoothed lines are up to two pixels too wide. So all but the thinnest are drawn as polygons, whose
# smoothed edges add this to their width. OpenCV's thinnest line is as wide.
_SMOOTHED = 1.33
_THINNEST = 1.7


def draw_shapes(target: np.ndarray, color: Any, corners: np.ndarray, size: float) -> None:
    """Draw points, lines or triangles: (N, 1, 2 or 3, 2) corners; points and lines of a size in pixels."""
    cv2, extent = opencv(), np.array(target.shape[1::-1])
    corners = corners[np.isfinite(corners).all(axis=(1, 2))]
    smoothing = cv2.LINE_8
    if corners.shape[1] < 3:
        is_slanted = (np.abs(corners[:, -1] - corners[:, 0]) >= 1e-3).all(axis=1)
        for left, top, right, bottom in _whole_pixels(corners[~is_slanted], size, extent):
            target[top:bottom, left:right] = color
        smoothing, corners = cv2.LINE_AA, corners[is_slanted]
        if size >= _THINNEST and len(corners):
            corners = _quads(corners, (min(size, _THICKEST) - _SMOOTHED) / 2)
    is_far = np.asarray((np.abs(corners - extent / 2) > extent / 2 + _MARGIN).any(axis=(1, 2)))
    for polygon, is_cut in zip(corners, is_far, strict=True):
        near = _cut(polygon, extent) if is_cut else polygon
        places = np.rint((near - 0.5) * (1 << _SHIFT)).astype(np.int32)
        if len(polygon) > 2 and len(near):
            cv2.fillConvexPoly(target, places, color, smoothing, _SHIFT)
        elif len(near):
            cv2.polylines(target, [places], False, color, 1, smoothing, _SHIFT)


def _cut(polygon: np.ndarray, extent: np.ndarray) -> np.ndarray:
    """Return the part of a convex polygon near the picture; OpenCV cuts in single precision."""
    for axis, sign, limit in ((0, 1, 0), (0, -1, extent[0]), (1, 1, 0), (1, -1, extent[1])):
        inside = sign * polygon[:, axis] + limit + _MARGIN
        kept: list[np.ndarray] = []
        for at in range(len(polygon)):
            if inside[at] >= 0:
                kept.append(polygon[at])
            following = (at + 1) % len(polygon)
            if (inside[at] >= 0) != (inside[following] >= 0):
                # From the corner that is kept: nothing would be left of its place beside one that is very far.
                near, other = (at, following) if inside[at] >= 0 else (following, at)
                share = inside[near] / (inside[near] - inside[other])
                kept.append(polygon[near] + (polygon[other] - polygon[near]) * share)
        polygon = np.reshape(kept, (-1, 2))
    return polygon


def _quads(ends: np.ndarray, half: float) -> np.ndarray:
    """Return the four corners of lines of twice a width, which end by half of it beyond their ends."""
    along = ends[:, 1] - ends[:, 0]
    step = along / np.hypot(*along.T)[:, None] * half
    side = step[:, ::-1] * [-1, 1]
    begin, end = ends[:, 0] - step, ends[:, 1] + step
    return np.stack([begin + side, end + side, end - side, begin - side], axis=1)


def _whole_pixels(ends: np.ndarray, width: float, extent: np.ndarray) -> list[list[int]]:
    """Return what points, and horizontal and vertical lines, cover: left, top, and right and bottom beyond it."""
    thickness = min(max(1, round(min(width, 1e9))), 10**9)
    # What is on the right or lower edge of the picture is drawn in its last column or row.
    on_edge = (ends >= extent) & (ends <= extent + 1e-3)
    ends = np.floor(np.where(on_edge, extent - 1, np.clip(ends, -1e9, 1e9)) - (thickness - 1) / 2)
    covered = np.concatenate([ends.min(axis=1), ends.max(axis=1) + thickness], axis=1)
    covered = np.clip(covered, 0, [*extent, *extent]).astype(np.int64)
    is_seen = (covered[:, 2:] > covered[:, :2]).all(axis=1)
    found: list[list[int]] = covered[is_seen].tolist()
    return found


# Text.

_SMALL_TEXT = 1 << 19  # pixels, about
_MOST_TEXT = 1 << 25  # pixels of a text that are drawn, about


def text_mask(text: str, size: int, font_path: str) -> np.ndarray:
    """Return the coverage of a text whose lines are `size` pixels high, from its upper left corner on."""
    is_small = len(text) * size * size <= _SMALL_TEXT
    return (_small_mask if is_small else _large_mask)(text, size, font_path)


def _draw_mask(text: str, size: int, font_path: str) -> np.ndarray:
    font = _font(size, font_path)
    drawing = import_or_explain("PIL.ImageDraw", "view", "to draw text")
    pillow = import_or_explain("PIL.Image", "view", "to draw text")
    text = _part_of(text, size, font)
    probe = drawing.Draw(pillow.new("L", (1, 1)))
    _, _, right, bottom = probe.multiline_textbbox((0, 0), text, font=font, anchor="la")
    if right <= 0 or bottom <= 0:
        return np.empty((0, 0), np.uint8)
    image = pillow.new("L", (int(np.ceil(right)) + 1, int(np.ceil(bottom)) + 1))
    drawing.Draw(image).multiline_text((0, 0), text, fill=255, font=font, anchor="la")
    return np.asarray(image)


# Masks of small texts are kept, up to 256 MB; of large ones the last few.
_small_mask = lru_cache(maxsize=512)(_draw_mask)
_large_mask = lru_cache(maxsize=4)(_draw_mask)


def _part_of(text: str, size: int, font: Any) -> str:
    """Return the first part of each line and the first lines: as much as has not too many pixels.

    The rest is far from the beginning of the text, and so outside of nearly every picture.
    """
    lines, most = text.split("\n"), _MOST_TEXT // size
    lengths = [font.getlength(line) for line in lines]
    if max(lengths) > most:
        lines = [
            line if length <= most else line[: int(len(line) * most / length)]
            for line, length in zip(lines, lengths, strict=True)
        ]
    width = max(1, min(most, max(lengths)))
    return "\n".join(lines[: max(1, int(most / width))])


@lru_cache(maxsize=64)
def _font(size: int, font_path: str) -> Any:
    fonts = import_or_explain("PIL.ImageFont", "view", "to draw text")
    if not font_path:
        return fonts.load_default(size)
    try:
        return fonts.truetype(font_path, size)
    except OSError as error:
        raise ValueError(f"font_path {font_path!r} cannot be read as a font: {error}") from None
