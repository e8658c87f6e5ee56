"""Layers in Rerun: where they are, and in which colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.viewer import InputSpec, Renderer
from headrace.viewer.display import Picture, Scene
from headrace.viewer.layers import match
from headrace.viewer.outlets import RerunOutlet
from tests.viewer.drawing import points

SIZE = (200, 100)
DEPTH = np.array([[0, 255], [51, 102], [0, 0]], np.uint8)
PLACES = [(-0.5, 0.5, 0), (0, 0.5, 1), (-0.5, 1 / 6, 0.2), (0, 1 / 6, 0.4), (-0.5, -1 / 6, 0), (0, -1 / 6, 0)]


@pytest.fixture(scope="module", autouse=True)
def _rerun() -> None:
    pytest.importorskip("rerun")  # here, because each process of a run collects this file, and one runs it


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Return what is logged of tensors, by entity."""

    def log(tensors: dict[str, Any], *specs: InputSpec) -> dict[str, Any]:
        logged: dict[str, Any] = {}
        outlet = RerunOutlet("it", str(tmp_path / "it.rrd"))
        outlet.close()
        outlet._recording = SimpleNamespace(
            log=logged.__setitem__, set_time=lambda name, sequence: logged.update({name: sequence})
        )
        scene = Scene(match(list(specs), tensors, False), tensors)
        outlet.show(Picture(3, Renderer(*SIZE).draw(scene.specs, tensors), scene), False)
        assert logged.pop("frame") == 3
        assert logged.pop("picture") is not None
        return logged

    return log


def rows(component: Any) -> list[Any]:
    """Return the values of a component."""
    found: list[Any] = component.as_arrow_array().to_pylist()
    return found


def colors(entity: Any) -> list[tuple[int, ...]]:
    """Return the colours of an entity, as bytes."""
    part = entity.colors if hasattr(entity, "colors") else entity.vertex_colors
    return [tuple(each.to_bytes(4, "big")) for each in rows(part)]


def test_flat_shapes_lie_where_the_picture_shows_them(log: Callable[..., dict[str, Any]]) -> None:
    logged = log(
        {"at": points((0.5, 0.5)), "box": points((0.1, 0.1), (0.6, 0.8))},
        InputSpec("at", "points", color=[1, 0, 0, 1], point_size=7),
        InputSpec("box", "rectangles"),
    )
    at, box = logged["picture/layers/at"], logged["picture/layers/box"]
    assert (rows(at.positions), colors(at), rows(at.radii)) == ([[100, 50]], [(255, 0, 0, 255)], [7])
    assert len(rows(box.strips)) == 4
    corners = np.array(rows(box.strips)).reshape(-1, 2)
    np.testing.assert_allclose((corners.min(axis=0), corners.max(axis=0)), [(20, 10), (120, 80)], atol=1e-4)


def test_flat_triangles_are_closed_lines(log: Callable[..., dict[str, Any]]) -> None:
    (entity,) = log({"it": points((0, 0), (0.5, 0), (0, 1))}, InputSpec("it", "triangles")).values()
    assert rows(entity.strips) == [[[0, 0], [100, 0], [0, 100], [0, 0]]]


@pytest.mark.parametrize(
    ("kind", "field", "shape"),
    [
        ("points_3d", "positions", (6, 3)),
        ("lines_3d", "strips", (3, 2, 3)),
        ("line_strip_3d", "strips", (5, 2, 3)),
        ("triangles_3d", "vertex_positions", (6, 3)),
    ],
)
def test_layers_in_3d_have_their_own_coordinates(
    log: Callable[..., dict[str, Any]], kind: str, field: str, shape: tuple[int, ...]
) -> None:
    data = np.random.default_rng(0).random((6, 3)).astype(np.float32)
    (entity,) = log({"it": data}, InputSpec("it", kind, color=[0, 1, 0, 0.6])).values()
    found = np.array(rows(getattr(entity, field)))
    assert found.shape == shape
    assert {tuple(row) for row in found.reshape(-1, 3)} == {tuple(row) for row in data.astype(float)}
    assert set(colors(entity)) == {(0, 255, 0, 153)}


def test_what_is_in_3d_is_no_part_of_the_picture_and_has_no_views(log: Callable[..., dict[str, Any]]) -> None:
    views = [InputSpec.View(width=0.5)]
    logged = log({"it": points((0, 0, 0))}, InputSpec("it", "points_3d", views=views))
    assert list(logged) == ["world/it"]
    assert list(log({"it": points((0, 0))}, InputSpec("it", "points", views=views))) == []


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_depth_map_lies_around_the_origin_with_its_first_row_on_top(
    log: Callable[..., dict[str, Any]], dtype: str
) -> None:
    depth = DEPTH if dtype == "uint8" else (DEPTH / 255).astype(np.float32)
    (entity,) = log({"it": depth}, InputSpec("it", "depth_map")).values()
    np.testing.assert_allclose(rows(entity.positions), PLACES, atol=1e-6)


def test_a_depth_map_has_the_colours_of_the_layer_beside_it(log: Callable[..., dict[str, Any]]) -> None:
    own = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    specs = InputSpec("it", "depth_map"), InputSpec("own", "depth_map_color")
    (entity,) = log({"it": DEPTH, "own": own}, *specs).values()
    assert colors(entity) == [tuple(row) for row in own.reshape(-1, 4).tolist()]


def test_a_depth_map_is_drawn_with_lines_or_triangles(log: Callable[..., dict[str, Any]]) -> None:
    def entity(mode: str) -> Any:
        (found,) = log({"it": DEPTH}, InputSpec("it", "depth_map", depth_map_render_mode=mode)).values()
        return found

    number = {tuple(np.round(place, 5)): at for at, place in enumerate(PLACES)}
    lines = [[number[tuple(np.round(end, 5))] for end in strip] for strip in rows(entity("lines").strips)]
    assert sorted(lines) == [[0, 1], [0, 2], [1, 3], [2, 3], [2, 4], [3, 5], [4, 5]]
    mesh = entity("triangles")
    np.testing.assert_allclose(rows(mesh.vertex_positions), PLACES, atol=1e-6)
    faces = {frozenset(face) for face in rows(mesh.triangle_indices)}
    assert faces == {frozenset(face) for face in ((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5))}


def test_a_frame_is_logged_once(tmp_path: Path) -> None:
    logged: list[str] = []
    outlet = RerunOutlet("it", str(tmp_path / "it.rrd"))
    outlet.close()
    outlet._recording = SimpleNamespace(
        log=lambda path, entity: logged.append(path), set_time=lambda *given, **named: None
    )
    picture = Picture(1, Renderer(*SIZE).draw([], {}), Scene([], {}))
    outlet.show(picture, False)
    outlet.show(picture, True)
    assert logged == ["picture"]
