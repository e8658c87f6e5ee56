"""Layers: tensors checked against the specifications that say how they are drawn.

A check needs the shape and the dtype of a tensor, which may be of any library, and not its data. So it is made when
the tensor arrives, also for one whose data is still on its way from a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from headrace.viewer.input_spec import InputSpec, InputType


class LayerError(ValueError):
    """A tensor cannot be drawn as its specification says."""


IMAGES = (InputType.COLOR, InputType.COLOR_LUT)
THREE_D = (
    InputType.POINTS_3D,
    InputType.LINES_3D,
    InputType.LINE_STRIP_3D,
    InputType.TRIANGLES_3D,
    InputType.DEPTH_MAP,
    InputType.DEPTH_MAP_COLOR,
)


class Geometry(NamedTuple):
    """The coordinates of a layer of shapes.

    Attributes
    ----------
    components
        The components that a coordinate may have.
    group
        The number of coordinates of one of the shapes.
    corners
        The corners of what is drawn: 1 for points, 2 for lines, 3 for triangles.
    """

    components: tuple[int, ...]
    group: int
    corners: int


GEOMETRY = {
    InputType.POINTS: Geometry((2,), 1, 1),
    InputType.LINES: Geometry((2,), 2, 2),
    InputType.LINE_STRIP: Geometry((2,), 1, 2),
    InputType.TRIANGLES: Geometry((2,), 3, 3),
    InputType.CROSSES: Geometry((2, 3), 1, 2),
    InputType.RECTANGLES: Geometry((2,), 2, 2),
    InputType.OVALS: Geometry((2, 3, 4), 1, 2),
    InputType.TEXT: Geometry((2, 3), 1, 0),
    InputType.POINTS_3D: Geometry((3,), 1, 1),
    InputType.LINES_3D: Geometry((3,), 2, 2),
    InputType.LINE_STRIP_3D: Geometry((3,), 1, 2),
    InputType.TRIANGLES_3D: Geometry((3,), 3, 3),
}


def match(specs: list[InputSpec], tensors: Mapping[str, Any], has_lut: bool) -> list[InputSpec]:
    """Return the specifications with their types resolved; raise if a tensor is missing or does not fit.

    Tensors without a specification are ignored.
    """
    resolved = []
    for spec in specs:
        if spec.tensor_name not in tensors:
            there = ", ".join(map(repr, tensors)) or "none"
            raise LayerError(
                f"layer {spec.tensor_name!r} ({spec.type}): no message has a tensor of that name; "
                f"the tensors are {there}"
            )
        resolved.append(complete(spec, tensors[spec.tensor_name], has_lut))
    sizes = {spec.type: (spec, tensors[spec.tensor_name]) for spec in resolved}
    if InputType.DEPTH_MAP_COLOR in sizes:
        spec, colors = sizes[InputType.DEPTH_MAP_COLOR]
        if InputType.DEPTH_MAP not in sizes:
            raise _error(spec, colors, "it needs a layer of type depth_map beside it")
        depth = sizes[InputType.DEPTH_MAP][1]
        if colors.shape[:2] != depth.shape[:2]:
            raise _error(
                spec, colors, f"its rows and columns must be those of the depth map, {depth.shape[:2]}"
            )
    return resolved


def refuse_3d(specs: Iterable[InputSpec]) -> None:
    """Raise LayerError if one of the layers is in 3D, and so cannot be part of a picture."""
    for spec in specs:
        if spec.type in THREE_D:
            raise LayerError(
                f"layer {spec.tensor_name!r} ({spec.type}): it is in 3D, which Rerun alone shows; set outlets, or "
                "HEADRACE_VIEW, to 'rerun', 'rerun-web' or a file that ends in .rrd"
            )


def guess(tensors: Mapping[str, Any], has_lut: bool) -> list[InputSpec]:
    """Return specifications for tensors that have none."""
    return [complete(InputSpec(name), shape, has_lut) for name, shape in tensors.items()]


def complete(spec: InputSpec, tensor: Any, has_lut: bool) -> InputSpec:
    """Return a specification with its type resolved, or raise LayerError."""
    spec = spec.copy()
    if spec.type is InputType.UNKNOWN:
        spec.type = _guess_type(spec, tensor, has_lut)
    if spec.type in GEOMETRY:
        problem = _problem_of_geometry(spec, tensor)
    elif spec.type is InputType.DEPTH_MAP:
        problem = _problem_of_depth_map(tensor)
    elif spec.type is InputType.DEPTH_MAP_COLOR:
        fits = len(tensor.shape) == 3 and tensor.shape[2] == 4 and tensor.dtype == np.uint8
        problem = "" if fits else "the colours of a depth map must be (rows, columns, 4) of uint8"
    else:
        problem = _problem_of_image(spec, tensor, has_lut)
    if problem:
        raise _error(spec, tensor, problem)
    return spec


def _error(spec: InputSpec, tensor: Any, why: str) -> LayerError:
    return LayerError(
        f"layer {spec.tensor_name!r} ({spec.type}): the tensor has the shape {tensor.shape} and the "
        f"dtype {tensor.dtype}; {why}"
    )


def _guess_type(spec: InputSpec, tensor: Any, has_lut: bool) -> InputType:
    shape = tensor.shape
    channels = shape[2] if len(shape) == 3 else 1
    if has_lut and len(shape) in (2, 3) and channels == 1 and tensor.dtype.kind in "iu":
        return InputType.COLOR_LUT
    if len(shape) >= 2 and shape[-1] == 2 and tensor.dtype in (np.float32, np.float64):
        return InputType.CROSSES
    if len(shape) in (2, 3) and all(shape) and not spec.image_format.problem(shape, tensor.dtype):
        return InputType.COLOR
    why = (
        "its type cannot be guessed: describe it in tensors, with a type. An image is (rows, columns) or "
        "(rows, columns, 1, 3 or 4) of integers or floats; coordinates are (N, 2) of float32"
    )
    raise _error(spec, tensor, why)


def _problem_of_geometry(spec: InputSpec, tensor: Any) -> str:
    """Return what is wrong with coordinates, or an empty text."""
    components, group, _ = GEOMETRY[spec.type]
    wanted = " or ".join(f"(N, {count})" for count in components)
    shape = tensor.shape
    if tensor.dtype not in (np.float32, np.float64):
        return f"coordinates must be {wanted} of float32 or float64"
    if len(shape) < 2 or shape[-1] not in components:
        return f"coordinates must be {wanted}"
    count = prod(shape[:-1])  # (boxes, 2, 2) are the corners of boxes, one after another
    if count % group:
        return f"one of the {spec.type} takes {group} coordinates, so N must be a multiple of {group}"
    if count == 1 and spec.type in (InputType.LINE_STRIP, InputType.LINE_STRIP_3D):
        return "a strip needs at least 2 coordinates, or none"
    if spec.type is InputType.TEXT and not spec.text:
        return "its specification has no text: set text to a list of strings"
    return ""


def _problem_of_depth_map(tensor: Any) -> str:
    """Return what is wrong with a depth map, or an empty text."""
    is_grid = len(tensor.shape) == 2 or (len(tensor.shape) == 3 and tensor.shape[2] == 1)
    if not is_grid or 0 in tensor.shape or tensor.dtype.name not in ("uint8", "float32"):
        return "a depth map must be (rows, columns) or (rows, columns, 1) of uint8 or float32"
    return ""


def _problem_of_image(spec: InputSpec, tensor: Any, has_lut: bool) -> str:
    """Return what is wrong with an image, or an empty text."""
    is_lut, shape, dtype = spec.type is InputType.COLOR_LUT, tensor.shape, tensor.dtype
    if is_lut and not has_lut:
        return "there is no color_lut to look colours up in: set the parameter color_lut"
    if len(shape) not in (2, 3) or 0 in shape:
        return "an image must be (rows, columns) or (rows, columns, channels), none of them 0"
    if is_lut and (dtype.kind not in "iu" or dtype.itemsize > 4 or shape[2:] not in ((), (1,))):
        return "colours are looked up by one channel of (u)int8, (u)int16 or (u)int32"
    return spec.image_format.problem(shape, dtype)
