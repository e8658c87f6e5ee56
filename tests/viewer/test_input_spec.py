"""Specifications of layers: what they take, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.viewer import DepthMapRenderMode, ImageFormat, InputSpec, InputType, View
from headrace.viewer.input_spec import input_specs


def test_a_dict_becomes_a_specification_with_the_defaults_of_the_rest() -> None:
    spec = InputSpec.from_mapping(
        {"name": "box", "type": "rectangles", "color": [1, 0, 0, 0.5], "priority": 3}
    )
    assert (spec.tensor_name, spec.name, spec.type) == ("box", "box", InputType.RECTANGLES)
    assert (spec.color, spec.priority) == ((1.0, 0.0, 0.0, 0.5), 3)
    assert (spec.opacity, spec.line_width, spec.point_size, spec.text, spec.views) == (1.0, 1.0, 1.0, [], [])
    assert spec.image_format == ImageFormat()
    assert spec.depth_map_render_mode is DepthMapRenderMode.POINTS


def test_names_and_members_mean_the_same() -> None:
    spec = InputSpec("it", InputType.DEPTH_MAP)
    spec.depth_map_render_mode = "LINES"  # names in any case
    assert spec.depth_map_render_mode is DepthMapRenderMode.LINES
    assert InputSpec("it", "color").type is InputType.COLOR


def test_views_are_dicts_or_views() -> None:
    view = InputSpec.View()
    assert (view.offset_x, view.offset_y, view.width, view.height) == (0, 0, 1, 1)
    spec = InputSpec("it", "color")
    spec.views = [view, {"offset_x": 0.5, "width": 0.5}]
    assert spec.views == [view, View(0.5, 0, 0.5, 1)]


def test_a_description_names_every_attribute() -> None:
    text = InputSpec("it", "text").description()
    assert "name: 'it'" in text
    assert "type: text" in text
    assert "depth_map_render_mode: points" in text


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            {"name": "it", "type": "color", "colour": 1, "wide": 2},
            "'it' has the unknown keys colour, wide; the keys",
        ),
        ({"type": "color"}, "lacks the key 'name'"),
        ({"name": "it"}, "'it' lacks the key 'type'"),
        ({"name": 3, "type": "color"}, "name of a tensor must be a str"),
        ({"name": "it", "type": "circles"}, "type of tensor 'it' must be one of unknown, color, .*'circles'"),
        ({"name": "it", "type": "color", "opacity": 1.5}, "opacity of tensor 'it' must be between 0 and 1"),
        ({"name": "it", "type": "color", "opacity": "1"}, "opacity of tensor 'it' must be a number"),
        (
            {"name": "it", "type": "points", "color": [1, 0, 0]},
            "color of tensor 'it' must be 4 numbers .* not 3",
        ),
        (
            {"name": "it", "type": "points", "color": [2, 0, 0, 1]},
            "color of tensor 'it' must be between 0 and 1",
        ),
        ({"name": "it", "type": "points", "color": "red"}, "must be 4 numbers"),
        (
            {"name": "it", "type": "points", "point_size": 0},
            "point_size of tensor 'it' must be greater than 0",
        ),
        (
            {"name": "it", "type": "lines", "line_width": float("nan")},
            "line_width of tensor 'it' must be a number",
        ),
        ({"name": "it", "type": "lines", "priority": 1.5}, "priority of tensor 'it' must be an int"),
        ({"name": "it", "type": "text", "text": "one"}, "text of tensor 'it' must be a list of strings"),
        ({"name": "it", "type": "text", "text": ["one", 2]}, "2 is none"),
        (
            {"name": "it", "type": "color", "image_format": "rgb"},
            "image_format of tensor 'it' must be an ImageFormat, not 'rgb'",
        ),
        (
            {"name": "it", "type": "depth_map", "depth_map_render_mode": "dots"},
            "must be one of points, lines, triangles",
        ),
        (
            {"name": "it", "type": "color", "views": [{"left": 1}]},
            "views of tensor 'it'.*left.*a view has offset_x",
        ),
        ({"name": "it", "type": "color", "views": {"width": 1}}, "must be a list of views"),
        ({"name": "it", "type": "color", "views": [{"width": 0}]}, "width of a view must be greater than 0"),
        ("color", "must be described by a dict"),
    ],
)
def test_a_wrong_description_is_refused_by_name(given: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        InputSpec.from_mapping(given)


def test_an_attribute_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="no attribute 'colour'; it has type, opacity"):
        InputSpec("it", "color").colour = 1
    with pytest.raises(AttributeError, match="a view has no attribute 'x'"):
        View().x = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", ["color", {"name": "it", "type": "color"}, 3])
def test_a_list_of_specifications_must_be_a_list(given: Any) -> None:
    with pytest.raises(ValueError, match="tensors must be a list"):
        input_specs(given, "tensors")


def test_a_list_of_specifications_holds_copies() -> None:
    spec = InputSpec("it", "color")
    (copy,) = input_specs([spec], "tensors")
    copy.views.append(View())
    copy.text.append("more")
    copy.opacity = 0.5
    assert (spec.views, spec.text, spec.opacity) == ([], [], 1.0)
