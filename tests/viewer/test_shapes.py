"""Points, lines, triangles, crosses, rectangles, ovals and text, pixel by pixel."""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import cv2
import numpy as np
import pytest

from headrace.viewer import LayerError
from tests.viewer.drawing import BLACK, WHITE, draw, draw_one, lit, points

GREY, LIGHTER = (127, 127, 127), (128, 128, 128)  # half of white, rounded either way

SIZE = (20, 10)


def block(left: int, top: int, right: int, bottom: int) -> set[tuple[int, int]]:
    return {(x, y) for x in range(left, right) for y in range(top, bottom)}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, block(10, 5, 11, 6)), (3, block(9, 4, 12, 7)), (2, block(10, 5, 12, 7))],
)
def test_a_point_is_a_square_of_its_size(size: float, expected: set[tuple[int, int]], dtype: str) -> None:
    picture = draw_one(points((0.53, 0.57)).astype(dtype), type="points", point_size=size)
    assert lit(picture) == expected
    assert {tuple(color) for color in picture.reshape(-1, 3).tolist()} == {BLACK, WHITE}


@pytest.mark.parametrize("kind", ["lines", "line_strip", "triangles", "crosses", "rectangles", "ovals"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e300, 1.7e308])
def test_no_number_is_computed_with_that_is_none_or_too_large(kind: str, value: float) -> None:
    """Nothing warns (which is an error here), and the shapes beside it are drawn."""
    data = np.array([[0.1, 0.2], [0.9, 0.7], [0.2, 0.9]] * 2)
    for place in range(data.shape[1]):
        broken = data.copy()
        broken[:3, place] = value, -value, value
        if kind in ("triangles", "ovals"):
            assert lit(draw_one(data[3:], type=kind)) <= lit(draw_one(broken, type=kind))


def test_points_outside_and_no_numbers_are_left_out() -> None:
    data = points((-0.1, 0.5), (1.2, 0.5), (np.nan, 0.5), (0.5, np.inf), (1e30, 0.5), (0.01, 0.99))
    assert lit(draw_one(data, type="points")) == {(0, 9)}


def test_the_colour_its_alpha_and_the_opacity_of_the_layer_are_used() -> None:
    picture = draw_one(points((0.5, 0.5)), type="points", color=[1, 0.5, 0, 0.5], opacity=0.5)
    assert picture[5, 10].tolist() == [64, 32, 0]


def test_the_colour_of_a_shape_has_the_curve_of_the_picture() -> None:
    picture = draw_one(points((0.5, 0.5)), type="points", color=[0.5, 0.5, 0.5, 1], framebuffer_srgb=True)
    assert picture[5, 10].tolist() == [188, 188, 188]


def test_a_horizontal_line_covers_whole_pixels_from_end_to_end() -> None:
    picture = draw_one(points((0.1, 0.5), (0.4, 0.5)), type="lines")
    assert lit(picture) == block(2, 5, 9, 6)
    assert (picture[5, 2:9] == 255).all()


@pytest.mark.parametrize(("width", "expected"), [(1, (5, 6)), (2, (4, 6)), (3, (4, 7)), (4, (3, 7))])
def test_a_line_is_as_wide_as_it_says(width: float, expected: tuple[int, int]) -> None:
    picture = draw_one(points((0.2, 0.5), (0.6, 0.5)), type="lines", line_width=width)
    rows = np.flatnonzero(picture[:, 8].any(axis=1))
    assert (rows.min(), rows.max() + 1) == expected


def test_a_vertical_line_on_the_right_edge_is_seen() -> None:
    assert lit(draw_one(points((1, 0), (1, 1)), type="lines")) == block(19, 0, 20, 10)


def test_a_line_that_leaves_the_picture_is_cut_and_one_of_any_length_is_cheap() -> None:
    inside = draw_one(points((-1, 0.25), (2, 0.55)), type="lines")
    assert inside[:, :, 0].any(axis=0).all()
    far = draw_one(points((-1e7, 0.5), (1e7, 0.5001)), type="lines")
    assert lit(far) <= block(0, 4, 20, 7)
    assert not lit(draw_one(points((-2, -2), (-1, -3)), type="lines"))


def test_a_strip_connects_each_coordinate_to_the_next_and_draws_corners_once() -> None:
    data = points((0.1, 0.2), (0.5, 0.2), (0.5, 0.8))
    picture = draw_one(data, type="line_strip", color=[1, 1, 1, 0.5])
    assert lit(picture) == block(2, 2, 11, 3) | block(10, 2, 11, 9)
    assert {tuple(color) for color in picture.reshape(-1, 3).tolist()} <= {BLACK, GREY, LIGHTER}
    assert len({tuple(color) for color in picture.reshape(-1, 3).tolist()}) == 2


def mesh() -> np.ndarray:
    """Return the corners of triangles that cover the window, with random corners inside of it."""
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 7)), axis=-1)
    grid[1:-1, 1:-1] += np.random.default_rng(5).uniform(-0.06, 0.06, (5, 5, 2))
    a, b, c, d = grid[:-1, :-1], grid[:-1, 1:], grid[1:, :-1], grid[1:, 1:]
    return np.stack([a, b, c, b, d, c], axis=2).reshape(-1, 2).astype(np.float32)


def test_triangles_that_share_edges_leave_no_gap_and_are_drawn_once() -> None:
    picture = draw_one(mesh(), (64, 64), type="triangles", color=[1, 1, 1, 0.5])
    assert {tuple(color) for color in picture.reshape(-1, 3).tolist()} in ({GREY}, {LIGHTER})


@pytest.mark.parametrize("corner", [(-1e7, -1e7), (3e4, -2e6), (2e38, 3e38)])
def test_a_triangle_with_a_corner_far_outside_is_cut(corner: tuple[float, float]) -> None:
    """The corner is so far away that only its direction counts: what is seen is on one side of a line."""
    data = points((0.2, 0.9), (0.9, 0.2), corner)
    picture = draw_one(data, (64, 48), type="triangles")
    direction = np.array(corner) / np.linalg.norm(corner)
    near = np.array([(0.2, 0.9), (0.9, 0.2), (0.9, 0.2) + 30 * direction, (0.2, 0.9) + 30 * direction])
    expected = np.zeros((48, 64), np.uint8)
    cv2.fillConvexPoly(expected, np.rint((near * [64, 48] - 0.5) * 16).astype(np.int32), 255, shift=4)
    assert 0 < (expected == 255).mean() < 1
    assert ((picture[..., 0] != expected).mean()) < 0.05  # pixels of the edges


def test_a_cross_is_as_high_as_wide_on_the_screen() -> None:
    picture = draw_one(
        points((0.525, 0.55, 0.3)), type="crosses"
    )  # six pixels wide, in a window twice as wide as high
    assert lit(picture) == block(7, 5, 14, 6) | block(10, 2, 11, 9)


def test_a_rectangle_is_its_outline_between_opposite_corners() -> None:
    expected = block(2, 2, 13, 9) - block(3, 3, 12, 8)
    for corners in (((0.1, 0.2), (0.6, 0.8)), ((0.6, 0.8), (0.1, 0.2)), ((0.6, 0.2), (0.1, 0.8))):
        assert lit(draw_one(points(*corners), type="rectangles")) == expected


@pytest.mark.parametrize(("sizes", "width", "height"), [((0.4, 0.8), 40, 80), ((0.4,), 40, 5), ((), 5, 5)])
def test_an_oval_has_the_size_it_says_and_a_twentieth_otherwise(
    sizes: tuple[float, ...], width: int, height: int
) -> None:
    picture = draw_one(points((0.5, 0.5, *sizes)), (100, 100), type="ovals")[..., 0]
    rows, columns = np.nonzero(picture >= 128)
    assert abs(np.ptp(columns) - width) <= 1
    assert abs(np.ptp(rows) - height) <= 1
    radius = np.hypot((columns + 0.5 - 50) / (width / 2), (rows + 0.5 - 50) / (height / 2))
    assert np.abs(radius - 1).max() < 2.5 / min(width, height) + 0.02
    assert picture[50, 50] == 0


def test_text_begins_at_its_corner_and_is_as_high_as_it_says() -> None:
    picture = draw_one(points((0.1, 0.2, 0.4)), (200, 100), type="text", text=["HIll"])
    rows, columns = np.nonzero(picture.any(axis=2))
    assert 20 <= columns.min() <= 26
    assert 20 <= rows.min() <= 35
    assert rows.max() < 62
    assert 0.5 * 40 < np.ptp(rows) < 40


def test_each_coordinate_has_its_text_and_the_last_is_used_for_the_rest() -> None:
    coordinates = points((0, 0, 0.3), (0, 0.3, 0.3), (0, 0.6, 0.3))
    both = draw_one(coordinates, (100, 100), type="text", text=["A", "I"])
    parts = [
        draw_one(coordinates[place : place + 1], (100, 100), type="text", text=[text])
        for place, text in enumerate("AII")
    ]
    assert (both == np.maximum.reduce(parts)).all()


@pytest.mark.parametrize("text", ["H" * 2_000, "H\n" * 2_000])
def test_of_a_text_with_too_many_pixels_the_beginning_is_drawn(text: str) -> None:
    """As many as there are: in a picture of 540 rows a letter may be 2,160 pixels high."""
    short = draw_one(points((0, 0, 2)), (90, 60), type="text", text=[text[:20]])
    tracemalloc.start()
    try:
        picture = draw_one(points((0, 0, 2)), (90, 60), type="text", text=[text])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert picture.any()
    assert (picture == short).all()
    assert most < 200 << 20


def test_text_is_drawn_in_a_view_and_upside_down_in_a_flipped_one() -> None:
    plain = draw_one(points((0, 0, 0.5)), (100, 100), type="text", text=["Mm"])
    flipped = {"offset_y": 1.0, "height": -1.0}
    same = draw_one(points((0, 0, 0.5)), (100, 100), type="text", text=["Mm"], views=[flipped])
    assert (same == plain[::-1]).all()
    half = draw_one(
        points((0, 0, 0.5)), (100, 100), type="text", text=["Mm"], views=[{"offset_x": 0.5, "width": 0.5}]
    )
    assert not half[:, :50].any()
    assert half.any()


def test_text_in_a_view_beyond_all_integers_is_not_drawn() -> None:
    """Nothing warns, which is an error here."""
    for far in (1e30, -1e30):
        assert not draw_one(points((0, 0)), type="text", text=["a"], views=[{"offset_x": far}]).any()


def test_shapes_follow_a_view_and_are_cut_at_its_edge() -> None:
    view = {"offset_x": 0.5, "offset_y": 0.5, "width": 0.5, "height": 0.5}
    assert lit(draw_one(points((0.05, 0.1)), type="points", views=[view])) == {(10, 5)}
    assert lit(draw_one(points((-1, 0.1), (2, 0.1)), type="lines", views=[view])) == block(10, 5, 20, 6)


@pytest.mark.parametrize(
    ("kind", "data", "what"),
    [
        ("points", np.zeros((3, 3), np.float32), r"layer 'it' \(points\).*\(3, 3\).*must be \(N, 2\)"),
        ("points", np.zeros((3, 2), np.int32), r"int32; coordinates must be \(N, 2\) of float32 or float64"),
        ("points", np.zeros(2, np.float32), r"\(2,\).*must be \(N, 2\)"),
        ("lines", np.zeros((3, 2), np.float32), "takes 2 coordinates, so N must be a multiple of 2"),
        ("rectangles", np.zeros((3, 2), np.float32), "takes 2 coordinates"),
        ("triangles", np.zeros((4, 2), np.float32), "takes 3 coordinates"),
        ("line_strip", np.zeros((1, 2), np.float32), "at least 2 coordinates"),
        ("crosses", np.zeros((1, 4), np.float32), r"must be \(N, 2\) or \(N, 3\)"),
        ("ovals", np.zeros((1, 5), np.float32), r"must be \(N, 2\) or \(N, 3\) or \(N, 4\)"),
        ("text", np.zeros((1, 2), np.float32), "has no text: set text to a list of strings"),
        ("points_3d", np.zeros((1, 2), np.float32), r"must be \(N, 3\)"),
        ("lines_3d", np.zeros((1, 3), np.float32), "takes 2 coordinates"),
        ("triangles_3d", np.zeros((2, 3), np.float32), "takes 3 coordinates"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused_by_name(kind: str, data: Any, what: str) -> None:
    with pytest.raises(LayerError, match=what):
        draw_one(data, type=kind)


def test_boxes_may_be_pairs_of_corners() -> None:
    corners = np.array([[[0.1, 0.1], [0.4, 0.4]], [[0.6, 0.6], [0.9, 0.9]]], np.float32)
    picture = draw_one(corners, type="rectangles")
    assert np.array_equal(picture, draw_one(corners.reshape(4, 2), type="rectangles"))
    assert picture.any()


def test_a_missing_tensor_is_named_with_those_that_are_there() -> None:
    with pytest.raises(
        LayerError, match="layer 'box'.*no message has a tensor of that name; the tensors are 'other'"
    ):
        draw({"other": np.zeros((4, 4), np.uint8)}, [{"name": "box", "type": "rectangles"}])


def test_types_are_guessed_from_shape_and_dtype() -> None:
    from headrace.viewer.layers import guess

    shapes = {
        "image": np.empty((4, 4, 3), "u1"),
        "points": np.empty((7, 2), "f4"),
        "labels": np.empty((4, 4), "u1"),
    }
    assert [str(spec.type) for spec in guess(shapes, False)] == ["color", "crosses", "color"]
    assert [str(spec.type) for spec in guess(shapes, True)] == ["color", "crosses", "color_lut"]
    with pytest.raises(LayerError, match="type cannot be guessed"):
        guess({"it": np.empty((4, 5, 6, 7), "u1")}, False)


def test_a_layer_is_drawn_in_full_over_the_shapes_of_another() -> None:
    below, above = points((0, 0.4), (1, 0.6)), points((0, 0.45), (1, 0.62))
    specs = [
        {"name": "below", "type": "lines", "line_width": 9, "color": [0, 0, 1, 1]},
        {"name": "above", "type": "lines", "line_width": 2, "color": [1, 0, 0, 1]},
    ]
    both = draw({"below": below, "above": above}, specs, (60, 60))
    alone = draw({"above": above}, specs[1:], (60, 60))
    assert (both[..., 0] == alone[..., 0]).all()


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "lines", "line_width": 1e9},
        {"type": "points", "point_size": 1e9},
        {"type": "color", "views": [{"width": 1e9, "height": 1e9}]},
        {"type": "color", "views": [{"offset_x": 1e30}]},
        {"type": "crosses"},
        {"type": "ovals"},
    ],
    ids=str,
)
def test_sizes_beyond_measure_cost_no_memory(spec: dict[str, Any]) -> None:
    if spec["type"] == "color":
        data = np.full((4, 4, 3), 200, np.uint8)
    else:
        data = np.array([[0.1, 0.1], [0.9, 0.8], [1e30, -1e30], [np.nan, np.inf]], np.float32)
    tracemalloc.start()
    try:
        draw_one(data, (64, 48), **spec)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("width", [1.3, 2, 2.5, 4, 7, 12])
def test_slanted_lines_in_every_direction_are_as_wide_as_they_say(width: float) -> None:
    source = np.random.default_rng(round(10 * width))
    for angle in source.uniform(0.1, 1.4, 8):
        reach = 0.4 * np.array([np.cos(angle), np.sin(angle)])
        picture = draw_one(points(0.5 - reach, 0.5 + reach), (200, 200), type="lines", line_width=width)
        area = picture[..., 0].sum() / 255
        assert area == pytest.approx(width * (160 + width), rel=0.12)


def test_without_opencv_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"cv2 is needed to draw: pip install '(?:\.|headrace)\[view\]'"):
        draw_one(points((0.5, 0.5)), type="points")


@pytest.mark.parametrize("kind", ["points_3d", "lines_3d", "line_strip_3d", "triangles_3d", "depth_map"])
def test_a_layer_in_3d_is_refused_with_what_shows_it(kind: str) -> None:
    data = np.zeros((6, 3), np.float32) if kind != "depth_map" else np.zeros((4, 4), np.uint8)
    with pytest.raises(
        LayerError, match=rf"layer 'it' \({kind}\): it is in 3D, which Rerun alone shows; set outlets"
    ):
        draw_one(data, type=kind)
