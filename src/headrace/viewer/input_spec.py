"""InputSpec: how one tensor is drawn, and the words that it is described with.

The words are enumerations. Their values are the names that a configuration file uses, and their members are
spelled as programs for the Holoscan SDK spell them. A value is the name of its member in small letters, so the long
ones are made of the names alone.
"""

# ruff: noqa: RUF009  (the calls in the defaults are those of `dataclasses.field`)

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from headrace.brief import brief
from headrace.viewer.pixels import ImageFormat

InputType = enum.StrEnum(
    "InputType",
    "UNKNOWN COLOR COLOR_LUT POINTS LINES LINE_STRIP TRIANGLES CROSSES RECTANGLES OVALS TEXT "
    "DEPTH_MAP DEPTH_MAP_COLOR POINTS_3D LINES_3D LINE_STRIP_3D TRIANGLES_3D",
)
InputType.__doc__ = "The kinds of layers that a tensor is drawn as."


class DepthMapRenderMode(enum.StrEnum):
    """The shapes that a depth map is drawn with."""

    POINTS = "points"
    LINES = "lines"
    TRIANGLES = "triangles"


_Member = TypeVar("_Member", bound=enum.Enum)


def member(kind: type[_Member], value: Any, what: str) -> _Member:
    """Return the member of an enumeration that a name or a member stands for, or raise ValueError."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        try:
            return kind(value.lower())
        except ValueError:
            pass
    raise ValueError(
        f"{what} must be one of {', '.join(str(one.value) for one in kind)}, or a {kind.__name__}; "
        f"not {brief(value)}"
    )


_Check: TypeAlias = Callable[[Any, str], Any]
"""Returns a value as it is stored, or raises ValueError that begins with a text."""


def _checked(check: _Check, default: Any) -> Any:
    return field(default=default, metadata={"check": check})


class _Checked:
    """The base of dataclasses whose fields are checked when they are set."""

    def __setattr__(self, name: str, value: Any) -> None:
        found = next((one for one in fields(self) if one.name == name), None)  # type: ignore[arg-type]
        if found is None:
            known = ", ".join(one.name for one in fields(self) if one.name != "tensor_name")  # type: ignore[arg-type]
            raise AttributeError(f"{self._kind} has no attribute {name!r}; it has {known}")
        object.__setattr__(self, name, found.metadata["check"](value, f"{name} of {self._owner()}"))

    _kind: ClassVar[str]

    def _owner(self) -> str:
        return self._kind


def _number_that(is_right: Callable[[float], object], wanted: str) -> _Check:
    """Return the check of a number."""

    def check(value: Any, what: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not isfinite(value):
            raise ValueError(f"{what} must be a number, not {brief(value)}")
        if not is_right(float(value)):
            raise ValueError(f"{what} must be {wanted}, not {brief(value)}")
        return float(value)

    return check


_number = _number_that(lambda number: True, "")
_fraction = _number_that(lambda number: 0 <= number <= 1, "between 0 and 1")
_positive = _number_that(lambda number: number > 0, "greater than 0")


@dataclass
class View(_Checked):
    """Where a layer is drawn: a part of the window, in fractions of its size, with the origin at the top left.

    Parameters
    ----------
    offset_x, offset_y
        The top left corner.
    width, height
        The size. A negative height flips the layer; `offset_y` is then its lower edge.
    """

    _kind = "a view"

    offset_x: float = _checked(_number, 0.0)
    offset_y: float = _checked(_number, 0.0)
    width: float = _checked(_positive, 1.0)
    height: float = _checked(_number_that(bool, "other than 0"), 1.0)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the name of a tensor must be a str, not {brief(value)}")
    return value


def _integer(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{what} must be an int, not {brief(value)}")
    return int(value)


def _listed(value: Any, wanted: str) -> list[Any]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise ValueError(f"{wanted}, not {brief(value)}")
    return list(value)


def _color(value: Any, what: str) -> tuple[float, ...]:
    wanted = f"{what} must be 4 numbers between 0 and 1 (red, green, blue, alpha)"
    numbers = _listed(value, wanted)
    if len(numbers) != 4:
        raise ValueError(f"{wanted}, not {len(numbers)}: {brief(value)}")
    return tuple(_fraction(number, what) for number in numbers)


def _strings(value: Any, what: str) -> list[str]:
    strings = _listed(value, f"{what} must be a list of strings")
    for string in strings:
        if not isinstance(string, str):
            raise ValueError(f"{what} must be a list of strings, and {string!r} is none")
    return strings


def _views(value: Any, what: str) -> list[View]:
    views = _listed(value, f"{what} must be a list of views")
    for place, view in enumerate(views):
        try:
            views[place] = View(**view) if isinstance(view, Mapping) else view
        except TypeError as error:
            raise ValueError(f"{what}: {error}; a view has offset_x, offset_y, width, height") from None
        if not isinstance(views[place], View):
            raise ValueError(f"{what} must be a list of InputSpec.View, and {view!r} is none")
    return views


def _format(value: Any, what: str) -> ImageFormat:
    if not isinstance(value, ImageFormat):
        raise ValueError(f"{what} must be an ImageFormat, not {brief(value)}")
    return value


def _one_of(kind: Any) -> _Check:
    return lambda value, what: member(kind, value, what)


@dataclass(init=False, repr=False, eq=False)
class InputSpec(_Checked):
    """How one tensor is drawn.

    Every attribute is checked when it is set.

    Parameters
    ----------
    tensor_name
        The name of the tensor.
    type
        The kind of layer: an :class:`InputType` or its name.
    **attributes
        Other attributes.

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
        How an image becomes RGB: as its dtype and its channels say, unless set.
    depth_map_render_mode : DepthMapRenderMode
        The shapes that a depth map is drawn with.
    views : list of View
        Where the layer is drawn, once for each view; over the whole window if empty.
    """

    View: ClassVar[TypeAlias] = View
    _kind = "an InputSpec"

    tensor_name: str = _checked(_text, "")
    type: InputType = _checked(_one_of(InputType), "unknown")
    opacity: float = _checked(_fraction, 1.0)
    priority: int = _checked(_integer, 0)
    color: tuple[float, float, float, float] = _checked(_color, (1.0, 1.0, 1.0, 1.0))
    line_width: float = _checked(_positive, 1.0)
    point_size: float = _checked(_positive, 1.0)
    text: list[str] = _checked(_strings, ())
    image_format: ImageFormat = _checked(_format, ImageFormat())
    depth_map_render_mode: DepthMapRenderMode = _checked(_one_of(DepthMapRenderMode), "points")
    views: list[Any] = _checked(_views, ())

    def __init__(
        self,
        tensor_name: str = "",
        type: InputType | str = InputType.UNKNOWN,  # noqa: A002  (the name)
        **attributes: Any,
    ) -> None:
        defaults = {one.name: one.default for one in fields(self)}
        for name, value in (defaults | {"tensor_name": tensor_name, "type": type} | attributes).items():
            setattr(self, name, value)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> InputSpec:
        """Make a specification of a dict, as the parameter ``tensors`` of the viewer has them."""
        if not isinstance(values, Mapping):
            raise ValueError(
                f"a tensor must be described by a dict with name and type, or by an InputSpec; not {brief(values)}"
            )
        known = {"name"} | {one.name for one in fields(cls)} - {"tensor_name"}
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
        return cls(values["name"], **{key: value for key, value in values.items() if key != "name"})

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.tensor_name

    def _owner(self) -> str:
        return f"tensor {self.__dict__.get('tensor_name', '')!r}"

    def copy(self) -> InputSpec:
        """Return a copy, whose attributes can be changed by themselves."""
        other = copy.copy(self)
        other.__dict__.update(views=list(self.views), text=list(self.text))
        return other

    def description(self) -> str:
        """Return the specification as lines of text, in the form of a configuration file."""
        lines = [f"{one.name}: {getattr(self, one.name)}" for one in fields(self)[1:]]
        return "\n".join([f"name: {self.tensor_name!r}", *lines])

    def __repr__(self) -> str:
        usual = InputSpec()
        changed = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)[2:]
            if getattr(self, one.name) != getattr(usual, one.name, one.default)
        ]
        return f"InputSpec({', '.join([repr(self.tensor_name), repr(str(self.type)), *changed])})"


def input_specs(given: Any, what: str, kind: type[InputSpec] = InputSpec) -> list[InputSpec]:
    """Return specifications from dicts and specifications, or raise ValueError naming `what`.

    Parameters
    ----------
    given
        The dicts and specifications.
    what
        What they are, for errors.
    kind
        The class that makes specifications of dicts.
    """
    return [
        spec.copy() if isinstance(spec, InputSpec) else kind.from_mapping(spec)
        for spec in _listed(given, f"{what} must be a list of dicts or of InputSpecs")
    ]
