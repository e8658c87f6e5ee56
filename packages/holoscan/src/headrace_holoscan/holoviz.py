"""Holoviz: its ports and parameters for scenes in 3D, what its specifications take, and the tables of their names.

headrace shows layers in 3D in Rerun, whose viewer has a camera of its own. So what sets the camera has no effect,
and a program that asks for the pose of the camera, or for a buffer of depths, is refused.

The SDK's setters check types alone, and with TypeError. A value that cannot be drawn is kept, and drawn as the
nearest one that can.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias

import numpy as np

from headrace import operators
from headrace.core import ConditionType, IOSpec
from headrace.viewer import InputSpec as _InputSpec
from headrace.viewer import View as _View
from headrace_holoscan.callbacks import (
    CALLBACKS,
    Key,
    KeyAndButtonAction,
    KeyModifiers,
    MouseButton,
    calls_of,
)
from headrace_holoscan.image_formats import (
    WORDS,
    ChromaLocation,
    ImageFormat,
    YuvModelConversion,
    YuvRange,
    format_of,
)
from headrace_holoscan.lenience import tell

_Check: TypeAlias = Callable[[Any], Any]
"""Returns a value as it is kept, or raises TypeError."""


def _of(kind: Any) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is no {getattr(kind, '__name__', 'list')}")
        return value

    return check


def _number(value: Any) -> float:
    return float(_of(Real)(value))


def _integer(value: Any) -> int:
    return int(_of(Integral)(value))


def _numbers(value: Any) -> list[float]:
    return [_number(each) for each in _of((Sequence, np.ndarray))(value)]


def _texts(value: Any) -> list[str]:
    return [_of(str)(each) for each in _of((list, tuple))(value)]


def _views(value: Any) -> list[Any]:
    return [_of(_View)(each) for each in _of((list, tuple))(value)]


def _matrix(value: Any) -> list[float] | None:
    numbers = None if value is None else _numbers(value)
    if numbers is not None and len(numbers) != 16:
        raise TypeError(f"a matrix has 16 numbers, not {len(numbers)}")
    return numbers


def _drawable(base: Any, spec: Any) -> dict[str, Any]:
    """Return the values of a specification as headrace's class takes them: the nearest that can be drawn."""
    found: dict[str, Any] = {}
    for one in fields(base):
        if one.name in WORDS:
            continue
        value = getattr(spec, one.name)
        try:
            setattr(base, one.name, value)
        except ValueError as error:
            tell(f"{type(spec).__name__}.{one.name} is {value!r}; the nearest value is drawn", str(error))
            value = _nearest(one.name, value)
        found[one.name] = value
    return found


def _nearest(name: str, value: Any) -> Any:
    if name == "color":
        numbers = [min(max(number, 0.0), 1.0) for number in value[:4]]
        return numbers + [1.0] * (4 - len(numbers))
    if name == "opacity":
        return min(max(value, 0.0), 1.0)
    return 1.0  # the size of a view, a line or a point


class View(_View):
    """Where a layer is drawn."""

    matrix: Any = None
    _checks: ClassVar[dict[str, _Check]] = {
        **dict.fromkeys(("offset_x", "offset_y", "width", "height"), _number),
        "matrix": _matrix,
    }

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._checks:
            super().__setattr__(name, value)  # which raises
        object.__setattr__(self, name, self._checks[name](value))

    def drawn(self) -> _View:
        """Return headrace's view for it."""
        if self.matrix is not None:
            tell("the matrix of a view has no effect", _WHY)
        return _View(**_drawable(_View(), self))


@dataclass(init=False, repr=False, eq=False)
class InputSpec(_InputSpec):
    """How one tensor is drawn."""

    image_format: Any = ImageFormat.AUTO_DETECT
    yuv_model_conversion: YuvModelConversion = YuvModelConversion.YUV_601
    yuv_range: YuvRange = YuvRange.ITU_FULL
    x_chroma_location: ChromaLocation = ChromaLocation.COSITED_EVEN
    y_chroma_location: ChromaLocation = ChromaLocation.COSITED_EVEN

    View = View
    _checks: ClassVar[dict[str, _Check]] = {
        **dict.fromkeys(("opacity", "line_width", "point_size"), _number),
        "priority": _integer,
        "color": _numbers,
        "text": _texts,
        "views": _views,
    }

    def __init__(self, tensor_name: str, type: Any) -> None:  # noqa: A002 (the SDK's name)
        try:
            base = _InputSpec(_of(str)(tensor_name), type)
        except ValueError as error:
            raise RuntimeError(str(error)) from None
        vars(self).update(vars(base), color=list(base.color), **WORDS)

    @classmethod
    def from_mapping(cls, values: Any) -> _InputSpec:
        """Make headrace's specification of a dict."""
        if not isinstance(values, Mapping):
            return _InputSpec.from_mapping(values)  # which raises
        words = {name: values[name] for name in WORDS if name in values}
        spec = _InputSpec.from_mapping({name: values[name] for name in values if name not in words})
        spec.image_format = format_of(words, f"tensor {spec.tensor_name!r}")
        return spec

    def __setattr__(self, name: str, value: Any) -> None:
        kept = vars(self)
        if name not in kept:
            super().__setattr__(name, value)  # which raises
        kept[name] = self._checks.get(name, _of(type(kept[name])))(value)

    def copy(self) -> _InputSpec:
        """Return headrace's specification for it."""
        views = [view.drawn() if isinstance(view, View) else view for view in self.views]
        image_format = format_of(
            {name: getattr(self, name) for name in WORDS}, f"tensor {self.tensor_name!r}"
        )
        values = _drawable(_InputSpec(), self) | {"views": views, "image_format": image_format}
        return _InputSpec(**values)


@dataclass(frozen=True, slots=True)
class Pose3D:
    """The rotation (9 numbers, row by row) and the translation that take the world to the camera."""

    rotation: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)
    translation: tuple[float, ...] = (0.0, 0.0, 0.0)


_CAMERA = {"camera_eye": (0.0, 0.0, 1.0), "camera_look_at": (0.0, 0.0, 0.0), "camera_up": (0.0, 1.0, 0.0)}
_ABSENT = ("enable_depth_buffer_input", "enable_depth_buffer_output", "enable_camera_pose_output")
_WHY = "Rerun shows layers in 3D, and its viewer has a camera of its own"


def _refuse(value: bool) -> None:
    if value:
        raise ValueError(f"there are no depths and no pose to send: {_WHY}")


class ColorSpace(enum.StrEnum):
    """How the picture is to be shown. A page shows sRGB; the spaces of HDR displays are refused."""

    SRGB_NONLINEAR = "srgb_nonlinear"
    EXTENDED_SRGB_LINEAR = "extended_srgb_linear"
    BT2020_LINEAR = "bt2020_linear"
    HDR10_ST2084 = "hdr10_st2084"
    PASS_THROUGH = "pass_through"
    BT709_LINEAR = "bt709_linear"
    AUTO = "auto"


def _check_color_space(value: Any) -> None:
    space, allowed = ColorSpace(value), ("auto", "srgb_nonlinear", "pass_through")
    if space.value not in allowed:
        raise ValueError(f"it is one of HDR displays, and a page shows sRGB; use {', '.join(allowed)}")


def _refuse_exclusive_display(value: bool) -> None:
    if value:
        raise ValueError("a page in the browser has no display of its own; use fullscreen=True")


def _check_receivers(receivers: Any) -> None:
    for receiver in receivers:
        if not (isinstance(receiver, str) or getattr(receiver, "io_type", None) is IOSpec.IOType.INPUT):
            raise ValueError(f"receivers must be names or inputs, not {receiver!r}")


def _check_tensors(tensors: Any) -> None:
    for tensor in tensors:
        if not isinstance(tensor, _InputSpec):
            InputSpec.from_mapping(tensor)


class HolovizOp(operators.HolovizOp):
    """Shows images, shapes and text, and in Rerun layers in 3D; see `headrace.operators.HolovizOp`."""

    InputSpec = InputSpec
    ImageFormat = ImageFormat
    YuvModelConversion = YuvModelConversion
    YuvRange = YuvRange
    ChromaLocation = ChromaLocation
    Key = Key
    KeyAndButtonAction = KeyAndButtonAction
    KeyModifiers = KeyModifiers
    MouseButton = MouseButton
    Pose3D = Pose3D
    ColorSpace = ColorSpace

    def setup(self, spec: Any) -> None:
        """Declare what the SDK's operator has besides."""
        super().setup(spec)
        # A page is on no particular display, and a browser waits for its own; operators are connected by flows.
        spec.param("receivers", (), check=_check_receivers)
        spec.param("tensors", (), check=_check_tensors)
        spec.param("display_name", "DP-0")
        spec.param("vsync", False)
        spec.param("use_exclusive_display", False, check=_refuse_exclusive_display)
        spec.param("display_color_space", ColorSpace.AUTO, check=_check_color_space)
        for name, value in _CAMERA.items():
            spec.param(name, value)
            spec.input(f"{name}_input").condition(ConditionType.NONE)
        spec.param("camera_pose_output_type", "projection_matrix")
        for name in CALLBACKS:
            spec.param(name, None, check=callable)
        for name in _ABSENT:
            spec.param(name, False, check=_refuse)

    def start(self) -> None:
        """Tell of a camera that has no effect, and open what shows the pictures and calls back."""
        if any(tuple(getattr(self, name)) != value for name, value in _CAMERA.items()):
            self._tell_of_camera()
        self.on_event = self._call_back
        super().start()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Take the messages for the camera, which has none here; show the others."""
        received = [op_input.receive(f"{name}_input") for name in _CAMERA]
        if any(message is not None for message in received):
            self._tell_of_camera()
        super().compute(op_input, op_output, context)

    def _call_back(self, event: dict[str, Any]) -> None:
        """Call the functions of the program that an event is for."""
        for name, arguments in calls_of(event).items():
            function = getattr(self, name)
            if function is not None:
                function(*arguments)

    def _tell_of_camera(self) -> None:
        tell(f"the camera of {self.name!r} has no effect", _WHY)


_TABLES = {
    "input_type": HolovizOp.InputType,
    "image_format": HolovizOp.ImageFormat,
    "depth_map_render_mode": HolovizOp.DepthMapRenderMode,
    "yuv_model_conversion": HolovizOp.YuvModelConversion,
    "yuv_range": HolovizOp.YuvRange,
    "chroma_location": HolovizOp.ChromaLocation,
    "color_space": HolovizOp.ColorSpace,
}


def table(name: str) -> dict[str, Any] | None:
    """Return one of the SDK's private tables, of the names of an enumeration; None if there is none."""
    kind: Any = _TABLES.get(name.removeprefix("_holoviz_str_to_"))
    return None if kind is None else {each.name.lower(): each for each in kind}
