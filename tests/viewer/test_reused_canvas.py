"""A canvas that is drawn to again, as a viewer does: nothing of the last picture is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.viewer import Camera, Renderer
from headrace.viewer.canvas import Canvas
from headrace.viewer.layers import match
from tests.viewer.drawing import points

SIZE = (20, 10)
WHITE = np.full((10, 20, 3), 255, np.uint8)
HALF = np.dstack([np.full((10, 20, 3), 100, np.uint8), np.full((10, 20), 128, np.uint8)])


def draw_to(canvas: Canvas, tensors: dict[str, Any], specs: list[dict[str, Any]]) -> np.ndarray:
    renderer = Renderer(*SIZE, specs)
    resolved = match(renderer.specs, tensors, False)
    return renderer.draw(resolved, tensors, Camera(), canvas).pixels[..., :3].copy()


@pytest.mark.parametrize(
    ("data", "spec"),
    [
        (WHITE, {"opacity": 0.5}),
        (WHITE, {"views": [{"width": 0.5}]}),
        (HALF, {}),
        (np.zeros((0, 2), np.float32), {"type": "points"}),
    ],
    ids=["half opaque", "half the window", "half transparent", "nothing"],
)
def test_a_picture_that_does_not_cover_all_is_drawn_on_black(data: np.ndarray, spec: dict[str, Any]) -> None:
    described = [{"name": "it", "type": "color", **spec}]
    fresh = draw_to(Canvas(*SIZE), {"it": data}, described)
    canvas = Canvas(*SIZE)
    draw_to(canvas, {"it": WHITE}, [{"name": "it", "type": "color"}])
    assert (draw_to(canvas, {"it": data}, described) == fresh).all()


def test_the_depths_of_the_last_picture_hide_nothing() -> None:
    specs: list[dict[str, Any]] = [
        {"name": "image", "type": "color"},
        {"name": "point", "type": "points_3d", "point_size": 4, "priority": 1, "color": [1, 0, 0, 1]},
    ]
    image, canvas = np.zeros((10, 20, 3), np.uint8), Canvas(*SIZE)
    near, far = (
        draw_to(canvas, {"image": image, "point": points((0, 0, z))}, specs).any(axis=2) for z in (0.5, -0.5)
    )
    assert near.any()
    assert (far == near).all()
