"""InputSpec: how one tensor is drawn."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, TypeAlias

import numpy as np

from headrace.viewer.formats import (
    ChromaLocation,
    DepthMapRenderMode,
    ImageFormat,
    InputType,
    YuvModelConversion,
    YuvRange,
    member,
)


@dataclass
class View:
    """Where a layer is drawn: a part of the window, in fractions of its size, with the origin at the top left.

    Parameters
    ----------
    offset_x, offset_y
        The top left corner.
    width, height
        The size. A negative height flips the layer; `offset_y` is then its lower edge.
    matrix
        A transformation as 16 numbers, row by row, or as 4 rows of 4. It takes the coordinates of the layer to the
        range from -1 to 1 in x (right) and y (down), and 0 to 1 in z. For an image the coordinates are its corners,
        (-1, -1) to (1, 1); for a layer in 3D it takes the place of the camera.
    """

    offset_x: float = 0.0
    offset_y: float = 0.0
    width: float = 1.0
    height: float = 1.0
    matrix: Sequence[Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "matrix":
            value = None if value is None else _matrix(value)
        elif name in ("offset_x", "offset_y", "width", "height"):
            value = _number(value, f"{name} of a view")
            if (name == "width" and value <= 0) or (name == "height" and value == 0):
                raise ValueError(
                    f"{name} of a view must be {'greater than' if name == 'width' else 'other than'} 0"
                )
        else:
            raise AttributeError(
                f"a view has no attribute {name!r}; it has offset_x, offset_y, width, height and matrix"
            )
        object.__setattr__(self, name, value)


class InputSpec:
    """How one tensor is drawn.

    Every attribute is checked when it is set.

    Parameters
    ----------
    tensor_name
        The name of the tensor.
    type
        The kind of layer: an :class:`InputType` or its name.

    Attributes
    ----------
    opacity : float
        From 0, invisible, to 1.
    priority : int
        Layers with a higher priority are drawn over those with a lower one.
    color : tuple of 4 floats
        The colour of shapes and text: red, green, blue and alpha, each from 0 to 1.
    line_width, point_size : float
        In pixels.
    text : list of str
        The strings of a text layer.
    image_format : ImageFormat
        The format of an image; found from the tensor unless set.
    yuv_model_conversion, yuv_range, x_chroma_location, y_chroma_location
        How images in YUV are converted.
    depth_map_render_mode : DepthMapRenderMode
        The shapes that a depth map is drawn with.
    views : list of View
        Where the layer is drawn, once for each view; over the whole window if empty.
    """

    View: ClassVar[TypeAlias] = View

    tensor_name: str
    type: InputType
    opacity: float
    priority: int
    color: tuple[float, float, float, float]
    line_width: float
    point_size: float
    text: list[str]
    image_format: Any
    yuv_model_conversion: YuvModelConversion
    yuv_range: YuvRange
    x_chroma_location: ChromaLocation
    y_chroma_location: ChromaLocation
    depth_map_render_mode: DepthMapRenderMode
    views: list[Any]

    def __init__(self, tensor_name: str = "", type: InputType | str = InputType.UNKNOWN) -> None:  # noqa: A002  (the name)
        self.tensor_name = tensor_name
        self.type = type  # type: ignore[assignment]
        for name, (_, default) in _ATTRIBUTES.items():
            setattr(self, name, default)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> InputSpec:
        """Make a specification of a dict, as the parameter ``tensors`` of the viewer has them."""
        if not isinstance(values, Mapping):
            raise ValueError(
                f"a tensor must be described by a dict with name and type, or by an InputSpec; not {values!r}"
            )
        known = {"name", "type", *_ATTRIBUTES}
        unknown = [str(key) for key in values if key not in known]
        where = f"the description of tensor {values.get('name', '')!r}"
        if unknown:
            raise ValueError(
                f"{where} has the unknown keys {', '.join(sorted(unknown))}; "
                f"the keys are {', '.join(sorted(known))}"
            )
        for key in ("name", "type"):
            if key not in values:
                raise ValueError(f"{where} lacks the key {key!r}; name and type are needed")
        spec = cls(values["name"], values["type"])
        for name in _ATTRIBUTES:
            if name in values:
                setattr(spec, name, values[name])
        return spec

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.tensor_name

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "tensor_name":
            if not isinstance(value, str):
                raise ValueError(f"the name of a tensor must be a str, not {value!r}")
        elif name == "type":
            value = member(InputType, value, f"type of tensor {self.__dict__.get('tensor_name', '')!r}")
        elif name in _ATTRIBUTES:
            value = _ATTRIBUTES[name][0](value, f"{name} of tensor {self.tensor_name!r}")
        else:
            raise AttributeError(
                f"an InputSpec has no attribute {name!r}; it has type, {', '.join(_ATTRIBUTES)}"
            )
        object.__setattr__(self, name, value)

    def copy(self) -> InputSpec:
        """Return a copy, whose attributes can be changed by themselves."""
        other = copy.copy(self)
        other.__dict__["views"] = list(self.views)
        other.__dict__["text"] = list(self.text)
        return other

    def description(self) -> str:
        """Return the specification as lines of text, in the form of a configuration file."""
        lines = [f"name: {self.tensor_name!r}", f"type: {self.type}"]
        lines += [f"{name}: {getattr(self, name)}" for name in _ATTRIBUTES]
        return "\n".join(lines)

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, (check, default) in _ATTRIBUTES.items()
            if getattr(self, name) != check(default, name)
        ]
        return f"InputSpec({', '.join([repr(self.tensor_name), repr(str(self.type)), *changed])})"


def input_specs(given: Any, what: str) -> list[InputSpec]:
    """Return specifications from dicts and specifications, or raise ValueError naming `what`."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise ValueError(f"{what} must be a list of dicts or of InputSpecs, not {given!r}")
    return [spec.copy() if isinstance(spec, InputSpec) else InputSpec.from_mapping(spec) for spec in given]


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not isfinite(value):
        raise ValueError(f"{what} must be a number, not {value!r}")
    return float(value)


def _fraction(value: Any, what: str) -> float:
    number = _number(value, what)
    if not 0 <= number <= 1:
        raise ValueError(f"{what} must be between 0 and 1, not {value!r}")
    return number


def _positive(value: Any, what: str) -> float:
    number = _number(value, what)
    if number <= 0:
        raise ValueError(f"{what} must be greater than 0, not {value!r}")
    return number


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{what} must be an int, not {value!r}")
    return int(value)


def _color(value: Any, what: str) -> tuple[float, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{what} must be 4 numbers between 0 and 1 (red, green, blue, alpha), not {value!r}")
    numbers = list(value)
    if len(numbers) != 4:
        raise ValueError(f"{what} must be 4 numbers (red, green, blue, alpha), not {len(numbers)}: {value!r}")
    return tuple(_fraction(number, what) for number in numbers)


def _strings(value: Any, what: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{what} must be a list of strings, not {value!r}")
    strings = list(value)
    for string in strings:
        if not isinstance(string, str):
            raise ValueError(f"{what} must be a list of strings, and {string!r} is none")
    return strings


def _views(value: Any, what: str) -> list[View]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise ValueError(f"{what} must be a list of views, not {value!r}")
    views = []
    for view in value:
        if isinstance(view, Mapping):
            try:
                view = View(**view)
            except TypeError as error:
                raise ValueError(
                    f"{what}: {error}; a view has offset_x, offset_y, width, height, matrix"
                ) from None
        if not isinstance(view, View):
            raise ValueError(f"{what} must be a list of InputSpec.View, and {view!r} is none")
        views.append(view)
    return views


def _matrix(value: Any) -> tuple[float, ...]:
    numbers = np.asarray(value, dtype=np.float64).ravel()
    if numbers.size != 16 or not np.isfinite(numbers).all():
        raise ValueError(f"the matrix of a view must be 16 numbers, row by row, not {value!r}")
    return tuple(numbers.tolist())


def _one_of(kind: Any) -> Any:
    return lambda value, what: member(kind, value, what)


# Each attribute with its check and its default.
_ATTRIBUTES: dict[str, tuple[Any, Any]] = {
    "opacity": (_fraction, 1.0),
    "priority": (_integer, 0),
    "color": (_color, (1.0, 1.0, 1.0, 1.0)),
    "line_width": (_positive, 1.0),
    "point_size": (_positive, 1.0),
    "text": (_strings, ()),
    "image_format": (_one_of(ImageFormat), "auto_detect"),
    "yuv_model_conversion": (_one_of(YuvModelConversion), "yuv_601"),
    "yuv_range": (_one_of(YuvRange), "itu_full"),
    "x_chroma_location": (_one_of(ChromaLocation), "cosited_even"),
    "y_chroma_location": (_one_of(ChromaLocation), "cosited_even"),
    "depth_map_render_mode": (_one_of(DepthMapRenderMode), "points"),
    "views": (_views, ()),
}
