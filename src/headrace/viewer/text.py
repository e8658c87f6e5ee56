"""Text as masks, drawn by Pillow, which brings a font along, reads those of files, and lays out lines.

OpenCV 5 draws fonts, too. But its size of a font is the height of capitals and not of lines, so that every text
would change its size.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain

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
