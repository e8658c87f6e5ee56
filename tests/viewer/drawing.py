"""Small pictures for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.viewer import Renderer

BLACK = (0, 0, 0)
WHITE = (255, 255, 255)


def draw(
    tensors: dict[str, Any],
    specs: list[Any],
    size: tuple[int, int] = (20, 10),
    **settings: Any,
) -> np.ndarray:
    """Return the colours of a picture of `size` columns and rows."""
    picture = Renderer(*size, specs, **settings).render(tensors)
    assert picture.dtype == np.uint8
    assert picture.shape == (size[1], size[0], 4)
    assert (picture[..., 3] == 255).all()
    return picture[..., :3]


def draw_one(data: Any, size: tuple[int, int] = (20, 10), **spec: Any) -> np.ndarray:
    """Return a picture of one tensor."""
    settings = {key: spec.pop(key) for key in ("color_lut", "framebuffer_srgb") if key in spec}
    return draw({"it": data}, [{"name": "it", **spec}], size, **settings)


def points(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, np.float32)


def lit(picture: np.ndarray) -> set[tuple[int, int]]:
    """Return the column and row of every pixel that is not black."""
    rows, columns = np.nonzero(picture.any(axis=2))
    return set(zip(columns.tolist(), rows.tolist(), strict=True))
