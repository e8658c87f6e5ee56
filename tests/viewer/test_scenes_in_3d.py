"""Layers in 3D: the camera, depth, and depth maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.viewer import Camera, LayerError, Renderer, deep_shapes
from headrace.viewer.layers import match
from tests.viewer.drawing import draw, draw_one, lit, points

SIZE = (100, 100)


def test_the_camera_looks_at_the_origin_from_one_unit_away() -> None:
    # With a field of view of 60 degrees, the edge at a distance of 1 is at tan(30 degrees).
    edge = np.tan(np.pi / 6)
    data = points((0, 0, 0), (edge * 0.99, 0, 0), (0, edge * 0.99, 0), (edge * 1.01, 0, 0))
    assert lit(draw_one(data, SIZE, type="points_3d")) == {(50, 50), (99, 50), (50, 0)}


def test_x_points_right_and_y_up_and_a_wide_window_shows_more_at_its_sides() -> None:
    picture = draw_one(points((0.2, 0.2, 0)), (200, 100), type="points_3d")
    scale = 50 / np.tan(np.pi / 6)
    assert lit(picture) == {(int(100 + 0.2 * scale), int(50 - 0.2 * scale))}


def test_a_camera_elsewhere_sees_from_there() -> None:
    above = Camera(eye=(0, 2, 0), look_at=(0, 0, 0), up=(0, 0, -1))
    picture = draw_one(points((0.2, 0, 0), (0, 0, 0.2)), SIZE, above, type="points_3d")
    (one, two) = sorted(lit(picture))
    assert one[0] == 50
    assert one[1] > 50  # nearer to the lower edge: it lies opposite of what is up
    assert two[0] > 50
    assert two[1] == 50


def test_what_is_near_hides_what_is_far_whatever_comes_first() -> None:
    near = points((-0.3, -0.3, 0.2), (0.3, -0.3, 0.2), (0, 0.3, 0.2))
    far = points((-0.4, -0.4, -0.2), (0.4, -0.4, -0.2), (0, 0.4, -0.2))
    specs: list[Any] = [
        {"name": "near", "type": "triangles_3d", "color": [1, 0, 0, 1]},
        {"name": "far", "type": "triangles_3d", "color": [0, 1, 0, 1]},
    ]
    for order in (specs, specs[::-1]):
        picture = draw({"near": near, "far": far}, order, SIZE)
        assert picture[52, 50].tolist() == [255, 0, 0]
        assert (picture[..., 1] == 255).any() == (picture[90, 50, 1] == 255)


def test_lines_in_3d_have_depth_along_their_length() -> None:
    crossing = points((-0.3, 0, -0.3), (0.3, 0, 0.3))
    plane = points((-0.5, -0.5, 0), (0.5, -0.5, 0), (0, 0.7, 0))
    specs = [
        {"name": "plane", "type": "triangles_3d", "color": [0, 0, 1, 1]},
        {"name": "line", "type": "lines_3d", "color": [1, 0, 0, 1]},
    ]
    row = draw({"plane": plane, "line": crossing}, specs, SIZE)[50]
    red = np.flatnonzero(row[:, 0])
    assert red.min() >= 49  # only the half in front of the plane
    assert red.max() > 70


def test_strips_in_3d_are_connected() -> None:
    picture = draw_one(points((-0.3, 0, 0), (0.3, 0, 0), (0.3, 0.3, 0)), SIZE, type="line_strip_3d")
    assert picture[50, 30:70, 0].all()


def test_what_lies_behind_the_camera_is_cut_off() -> None:
    line = draw_one(points((0, -0.2, 0), (0, -0.2, 5)), SIZE, type="lines_3d")
    assert lit(line)
    assert min(y for _, y in lit(line)) > 50
    triangle = draw_one(points((-0.2, -0.1, 0), (0.2, -0.1, 0), (0, -0.1, 5)), SIZE, type="triangles_3d")
    assert lit(triangle)
    assert min(y for _, y in lit(triangle)) > 50
    assert not draw_one(points((0, 0, 3)), SIZE, type="points_3d").any()


def test_a_matrix_of_a_view_takes_the_place_of_the_camera() -> None:
    identity = np.eye(4).ravel().tolist()
    assert lit(
        draw_one(points((-0.99, -0.99, 0.5)), SIZE, type="points_3d", views=[{"matrix": identity}])
    ) == {(0, 0)}


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_a_depth_map_lies_around_the_origin_with_its_first_row_on_top(dtype: str) -> None:
    depth = np.zeros((4, 4), dtype)
    colors = np.full((4, 4, 4), 255, np.uint8)
    colors[0, 0] = [255, 0, 0, 255]
    specs = [{"name": "depth", "type": "depth_map"}, {"name": "colors", "type": "depth_map_color"}]
    picture = draw({"depth": depth, "colors": colors}, specs, SIZE)
    scale = 50 / np.tan(np.pi / 6)
    places = [int(50 + (place / 4 - 0.5) * scale) for place in range(4)]
    assert picture[places[0], places[0]].tolist() == [255, 0, 0]
    assert len(lit(picture)) == 16


def test_a_depth_map_of_8_bits_is_a_fraction() -> None:
    one = draw_one(np.full((2, 2), 51, np.uint8), SIZE, type="depth_map")
    same = draw_one(np.full((2, 2), 0.2, np.float32), SIZE, type="depth_map")
    assert (one == same).all()


def test_a_depth_map_is_drawn_with_points_lines_or_triangles() -> None:
    depth = np.zeros((8, 8), np.float32)
    count = {
        mode: len(lit(draw_one(depth, SIZE, type="depth_map", depth_map_render_mode=mode)))
        for mode in ("points", "lines", "triangles")
    }
    assert count["points"] == 64
    side = 50 / np.tan(np.pi / 6) * 7 / 8
    assert abs(count["triangles"] - side**2) < 3 * side
    assert 64 < count["lines"] < count["triangles"]


COLORS = np.array(
    [[[60 * (n + 1) % 256, 20 * n, 255 - 40 * n, 255] for n in range(3)] for _ in "ab"], np.uint8
)
COLORS[1, :, :3] = 9


def colored_map(depth: np.ndarray, mode: str) -> np.ndarray:
    return draw(
        {"depth": depth, "colors": COLORS},
        [
            {"name": "depth", "type": "depth_map", "depth_map_render_mode": mode},
            {"name": "colors", "type": "depth_map_color"},
        ],
        SIZE,
    )


def test_a_triangle_of_a_depth_map_has_the_colour_of_its_first_point() -> None:
    picture = colored_map(np.zeros((2, 3), np.float32), "triangles")
    seen = {tuple(color) for color in picture.reshape(-1, 3).tolist()} - {(0, 0, 0)}
    assert seen == {tuple(color[:3]) for color in COLORS[0].tolist()}, "none begins in the last row"


def test_triangles_keep_their_colours_where_others_are_cut_off() -> None:
    flat, cut = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    cut[0, 0] = 1.5  # behind the camera
    whole, part = colored_map(flat, "triangles"), colored_map(cut, "triangles")
    assert whole[:, 55:].any()
    assert (whole[:, 55:] == part[:, 55:]).all()


def test_the_depth_buffer_holds_the_nearest_depth_and_1_elsewhere() -> None:
    renderer = Renderer(*SIZE, [{"name": "it", "type": "points_3d"}])
    data = points((0, 0, 0), (0, 0, 0.5))
    specs = match(renderer.specs, {"it": data}, False)
    depth = renderer.draw(specs, {"it": data}, Camera()).depth
    near, far = 0.1, 1000.0
    expected = far / (far - near) - far * near / (far - near) / 0.5  # half a unit away
    assert depth[50, 50] == pytest.approx(expected, abs=1e-5)
    assert (np.delete(depth.ravel(), 50 * 100 + 50) == 1).all()


@pytest.mark.parametrize(
    ("tensors", "specs", "what"),
    [
        ({"d": np.zeros((4, 4), np.uint16)}, [("d", "depth_map")], "of uint8 or float32"),
        ({"d": np.zeros((4, 4, 3), np.uint8)}, [("d", "depth_map")], r"\(rows, columns\) or"),
        ({"d": np.zeros((0, 4), np.uint8)}, [("d", "depth_map")], "a depth map must be"),
        ({"c": np.zeros((4, 4, 4), np.uint8)}, [("c", "depth_map_color")], "needs a layer of type depth_map"),
        (
            {"d": np.zeros((4, 4), np.uint8), "c": np.zeros((4, 5, 4), np.uint8)},
            [("d", "depth_map"), ("c", "depth_map_color")],
            r"those of the depth map, \(4, 4\)",
        ),
        (
            {"d": np.zeros((4, 4), np.uint8), "c": np.zeros((4, 4, 3), np.uint8)},
            [("d", "depth_map"), ("c", "depth_map_color")],
            r"\(rows, columns, 4\) of uint8",
        ),
    ],
)
def test_a_depth_map_that_does_not_fit_is_refused_by_name(tensors: Any, specs: Any, what: str) -> None:
    with pytest.raises(LayerError, match=what):
        draw(tensors, [{"name": name, "type": kind} for name, kind in specs])


def test_a_depth_map_with_the_format_of_a_picture_is_refused() -> None:
    with pytest.raises(LayerError, match="must be r8_unorm, d32_sfloat or auto_detect .* not r16_unorm"):
        draw_one(np.zeros((4, 4), np.uint8), type="depth_map", image_format="r16_unorm")


def test_the_pose_takes_the_world_to_the_camera() -> None:
    pose = Camera(eye=(1, 2, 3), look_at=(1, 2, 0)).pose()
    assert pose.rotation == pytest.approx((1, 0, 0, 0, 1, 0, 0, 0, 1))
    assert pose.translation == pytest.approx((-1, -2, -3))


def test_orbit_pan_and_dolly_move_the_camera() -> None:
    camera = Camera()
    assert camera.orbit(np.pi / 2, 0).eye == pytest.approx((-1, 0, 0), abs=1e-9)
    tilted = camera.orbit(0, 0.5).eye
    assert tilted[1] == pytest.approx(np.sin(0.5))
    assert np.linalg.norm(camera.orbit(0.3, 9).eye) == pytest.approx(1)
    moved = camera.pan(0.5, 0)
    assert moved.eye[0] < 0
    assert moved.look_at[0] == pytest.approx(moved.eye[0])
    assert camera.dolly(2).eye == pytest.approx((0, 0, 2))
    assert camera.dolly(1e-9).eye[2] > 0.1  # not into what it looks at


def test_a_camera_that_looks_along_up_or_at_itself_still_has_a_picture() -> None:
    for camera in (Camera(eye=(0, 1, 0)), Camera(eye=(0, 0, 0)), Camera(up=(0, 0, 0))):
        assert np.isfinite(camera.projection(1.5)).all()


@pytest.mark.parametrize("nearest", [0, 1, 2, 3])
def test_the_nearest_point_of_a_depth_map_is_seen_whatever_its_place(nearest: int) -> None:
    depth = np.zeros(4, np.float32)
    depth[nearest] = 0.05
    colors = np.full((4, 4), 255, np.uint8)
    colors[nearest] = [255, 0, 0, 255]
    specs = [{"name": "depth", "type": "depth_map"}, {"name": "colors", "type": "depth_map_color"}]
    picture = draw({"depth": depth.reshape(2, 2), "colors": colors.reshape(2, 2, 4)}, specs, (1, 1))
    assert picture[0, 0].tolist() == [255, 0, 0]


FLAT = {"views": [{"matrix": np.eye(4).ravel().tolist()}]}  # x and y from -1 to 1, and z is the depth


def nearest_by_hand(corners: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the depth and the number of the nearest triangle at the centre of each pixel."""
    y, x = np.mgrid[0 : size[1], 0 : size[0]] + 0.5
    depth, number = np.ones((size[1], size[0])), np.full((size[1], size[0]), -1)
    for which, triangle in enumerate(corners):
        (ax, ay), (bx, by), (cx, cy) = (triangle[:, :2] + 1) / 2 * size
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        b = ((x - ax) * (cy - ay) - (y - ay) * (cx - ax)) / area
        c = ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) / area
        z = (1 - b - c) * triangle[0, 2] + b * triangle[1, 2] + c * triangle[2, 2]
        seen = (b >= 0) & (c >= 0) & (b + c <= 1) & (z >= 0) & (z < depth)
        depth[seen], number[seen] = z[seen], which
    return depth, number


@pytest.mark.parametrize("seed", range(6))
def test_random_triangles_have_the_depth_of_the_nearest_at_each_pixel(seed: int) -> None:
    """Some are partly outside, in front of what is seen, and behind it."""
    source = np.random.default_rng(seed)
    corners = source.uniform((-1.5, -1.5, -0.3), (1.5, 1.5, 1.3), (7, 3, 3)).astype(np.float32)
    renderer = Renderer(*SIZE, [{"name": "it", "type": "triangles_3d", **FLAT}])
    data = corners.reshape(-1, 3)
    specs = match(renderer.specs, {"it": data}, False)
    drawn = renderer.draw(specs, {"it": data}, Camera())
    expected, number = nearest_by_hand(corners, SIZE)
    assert 0.1 < (number >= 0).mean() < 1
    # A centre on an edge may belong to either side.
    assert (np.abs(drawn.depth - expected) > 1e-5).mean() < 0.005
    assert ((drawn.pixels[..., 0] == 255) != (number >= 0)).mean() < 0.005


def test_a_line_in_3d_is_as_wide_as_it_says_and_ends_where_it_says() -> None:
    for ends in (((-0.5, 0.01), (0.5, 0.01)), ((0.01, 0.5), (0.01, -0.5))):
        data = points(*((*end, 0.5) for end in ends))
        picture = draw_one(data, SIZE, type="lines_3d", line_width=3, **FLAT)
        extents = sorted(np.ptp(np.array(sorted(lit(picture))), axis=0).tolist())
        assert extents == [2, 52]
    slanted = draw_one(
        points((-0.9, -0.7, 0.5), (0.9, 0.7, 0.5)), SIZE, type="lines_3d", line_width=3, **FLAT
    )
    assert len(lit(slanted)) == pytest.approx(3 * (np.hypot(90, 70) + 3), rel=0.05)


def test_what_is_drawn_in_parts_looks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(3).random((9, 9)).astype(np.float32) / 5
    colors = np.random.default_rng(4).integers(0, 256, (9, 9, 4), np.uint8)
    specs = [
        {"name": "depth", "type": "depth_map", "depth_map_render_mode": "triangles"},
        {"name": "colors", "type": "depth_map_color"},
    ]
    whole = draw({"depth": data, "colors": colors}, specs, SIZE)
    monkeypatch.setattr(deep_shapes, "_AT_ONCE", 7)
    np.testing.assert_array_equal(draw({"depth": data, "colors": colors}, specs, SIZE), whole)


def test_the_number_of_a_shape_survives_among_hundreds_of_thousands() -> None:
    count = 70_000  # needs more than 16 bits
    corners = np.zeros((count, 3, 3))
    corners[-1] = [[0, 0, 0.5], [8, 0, 0.5], [0, 8, 0.5]]
    seen = deep_shapes.rasterize(corners, np.arange(count), 1.0, deep_shapes.Box(0, 0, 8, 8), True)
    assert seen is not None
    assert seen.number is not None
    assert set(seen.number[seen.depth < 1].tolist()) == {count - 1}


def test_a_depth_map_without_a_name_has_the_colour_of_its_layer() -> None:
    spec = {"type": "depth_map", "color": [1, 0, 0, 1], "depth_map_render_mode": "triangles"}
    depth = np.zeros((2, 3), np.uint8)
    named = draw({"it": depth}, [{"name": "it", **spec}], SIZE)
    assert (draw({"": depth}, [{"name": "", **spec}], SIZE) == named).all()
    assert {tuple(color) for color in named.reshape(-1, 3).tolist()} == {(0, 0, 0), (255, 0, 0)}


def test_of_a_triangle_that_reaches_beyond_the_farthest_depth_the_near_part_is_drawn() -> None:
    """The depth is 0.5 on top and 2.5 at the lower end: it is 1 after a quarter of the way."""
    triangle = points((-1, -1, 0.5), (1, -1, 0.5), (0, 1, 2.5))
    picture = draw_one(triangle, SIZE, type="triangles_3d", **FLAT)
    rows = np.flatnonzero(picture.any(axis=(1, 2)))
    assert (rows[0], rows[-1]) == (0, SIZE[1] // 4 - 1)
