"""FormatConverterOp: another element type, size, colour layout, order of channels or order of dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.core.construction import needs_fragment
from headrace.core.errors import ParameterError, choices
from headrace.core.parameters import REQUIRED, declared, parameter
from headrace.operators._routines.conversion import (
    COPY,
    FLOAT_TO_BYTE,
    MATRICES,
    PLANAR_INPUT,
    PLANAR_OUTPUT,
    RGB_TO_YUV420,
    TO_FLOAT,
    TO_RGB,
    WIDE_TO_BYTE,
    Matrix,
    pack_order,
)
from headrace.operators._routines.resampling import FILTERS, RESAMPLE, Filter, make_taps
from headrace.operators.arrays import Routine, check_contiguous
from headrace.operators.tensor_operator import FrameOperator, Plan, place_of
from headrace.tensor import Tensor

if TYPE_CHECKING:
    from headrace.resources import Allocator

_UINT8, _UINT16, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32)
_SMOOTH_EDGE = 0x8000000
_DEFAULT_MODE = 4
_MOST_FLOAT = float(np.finfo(np.float32).max)
_MOST_PIXELS = 2**31 - 1  # the kernels number them with 32 bits


class _Format(NamedTuple):
    """A format to convert from.

    Attributes
    ----------
    element, channels
        The element type and the number of channels; 0 for any number.
    targets
        The formats that it can be converted to.
    layout, matrix
        For YUV: where the samples are, and the matrix to RGB.
    """

    element: np.dtype[Any]
    channels: int
    targets: tuple[str, ...] = ("rgb888", "uint8")
    layout: str = ""
    matrix: Matrix | None = None


_FULL_601, _LIMITED_601 = MATRICES["601", True], MATRICES["601", False]
_FORMATS = {
    "uint8": _Format(_UINT8, 0, ("uint8", "float32")),
    "rgb888": _Format(_UINT8, 3, ("rgb888", "uint8", "float32", "rgba8888", "yuv420")),
    "rgba8888": _Format(_UINT8, 4, ("rgba8888", "rgb888", "uint8", "float32")),
    "float32": _Format(_FLOAT32, 0, ("float32", "rgb888", "uint8")),
    "rgb161616": _Format(_UINT16, 3),
    "rgba16161616": _Format(_UINT16, 4),
    "nv12": _Format(_UINT8, 1, layout="nv12", matrix=MATRICES["709", True]),
    "nv12_bt709_hdtv": _Format(_UINT8, 1, layout="nv12", matrix=MATRICES["709", True]),
    "nv12_bt709_csc": _Format(_UINT8, 1, layout="nv12", matrix=MATRICES["709", False]),
    "nv12_bt601_full": _Format(_UINT8, 1, layout="nv12", matrix=_FULL_601),
    "yuyv": _Format(_UINT8, 2, layout="yuyv", matrix=_LIMITED_601),
    "uyvy": _Format(_UINT8, 2, layout="uyvy", matrix=_LIMITED_601),
    "yuv420": _Format(_UINT8, 1, ("yuv420", "rgb888", "uint8", "rgba8888"), "yuv420", _FULL_601),
}
_LAYOUTS = ("hwc", "chw", "nhwc", "nchw")
_PLANAR = ("chw", "nchw")
_OUTPUTS = ("rgb888", "uint8", "float32", "rgba8888", "yuv420")
_CONVERTED = {
    (_UINT8, _FLOAT32): TO_FLOAT,
    (_FLOAT32, _UINT8): FLOAT_TO_BYTE,
    (_UINT16, _UINT8): WIDE_TO_BYTE,
}


@dataclass(frozen=True, slots=True)
class _Image:
    """The format, the size and the channels of a frame."""

    format: str
    rows: int
    columns: int
    channels: int


@declared
class FormatConverterOp(FrameOperator):
    """Converts images: element type, size, colour layout, order of channels and order of dimensions.

    It receives a message at ``source_video`` and emits a TensorMap with one tensor at ``tensor``. First the
    image is resized, then converted, then its channels are put in order, then its dimensions.

    ========================================  ====================================================================
    from → to                                 result
    ========================================  ====================================================================
    the same                                  a copy
    uint8, rgb888 → float32                   ``scale_min + v / 255 * (scale_max - scale_min)``
    rgba8888 → float32                        the same of three channels, without alpha
    float32 → uint8, rgb888                   ``(v - scale_min) / (scale_max - scale_min) * 255``, to the nearest,
                                              saturated; NaN becomes 0
    rgb888 → rgba8888                         alpha_value appended
    rgba8888 → rgb888, uint8                  without alpha
    rgb161616, rgba16161616 → rgb888          16 bits to 8 by full range, without alpha
    nv12, nv12_bt709_hdtv → rgb888            BT.709, full range
    nv12_bt709_csc → rgb888                   BT.709, limited range
    nv12_bt601_full → rgb888                  BT.601, full range
    yuyv, uyvy → rgb888                       BT.601, limited range
    yuv420 → rgb888, rgba8888                 BT.601, full range; alpha_value appended
    rgb888 → yuv420                           BT.601, full range
    ========================================  ====================================================================

    Packed images have the shape (rows, columns, channels), unless `in_layout` says otherwise; one channel may be
    left out. nv12 and yuv420 have the shape (3/2 rows, columns), the luma above the chroma; yuyv and uyvy have
    (rows, columns, 2). The rows and columns of the first two are even, and so are the columns of the others. Input
    is C-contiguous, and keeps its element type over a run.

    With a GPU the output is in device memory, and an image in host memory is copied there first; without one,
    an image in host memory stays on the host. GPU and NumPy give the same result, bit by bit. OpenCV, which takes
    NumPy's place on the host where it is installed (the extra ``operators``), differs by at most 1 where it rounds:
    in the resize modes 2, 4, 8 and 16, and between RGB and YUV. In limited range, luma below 16 counts as 16.

    Layouts cost no further pass over the image, except from chw or nchw to another size or to yuv420, and from YUV
    to chw or nchw. There, a frame needs one more block.

    A frame needs one block for the output, one more of ``resize_height * resize_width * channels`` bytes where
    it is resized and becomes yuv420, and one more of the input's size where it is copied from host memory to a GPU.

    Parameters
    ----------
    pool
        The allocator of the output; an UnboundedAllocator unless given.
    out_dtype
        The format to convert to: ``rgb888``, ``uint8``, ``float32``, ``rgba8888`` or ``yuv420``.
    in_dtype
        The format to convert from; ``""`` finds it from the element type and the number of channels: uint8 with
        three channels is rgb888, with four rgba8888; uint16 with three is rgb161616, with four rgba16161616.
    in_tensor_name
        The tensor to take; ``""`` takes the one with that name, or else the only one. Several are an error.
    out_tensor_name
        The name of the tensor that is sent.
    scale_min, scale_max
        The values of float32 that stand for 0 and 255.
    alpha_value
        The alpha channel where one is added.
    resize_height, resize_width
        The size of the output. An image is resized only if both are positive.
    resize_mode
        1 nearest, 2 linear, 4 cubic (a = -0.75), 5 cubic B-spline, 6 Catmull-Rom, 7 cubic with B = 0.5 and C =
        0.3, 8 super sampling (the mean of the area; for smaller sizes only), 16 Lanczos with four lobes, 17
        Lanczos with three lobes, widened for smaller sizes. 0 means cubic. 0x8000000 (smooth edges) may be
        added, or stand alone for cubic: borders are always interpolated. Only uint8 with up to four channels is
        resized.
    out_channel_order
        For each output channel the channel that it takes.
    in_layout, out_layout
        The order of the dimensions: ``"hwc"`` (rows, columns, channels), ``"chw"``, ``"nhwc"`` or ``"nchw"``, where
        n is 1. YUV has no channels to be put in another place.
    copy
        Whether the output always has memory of its own. With False, a frame of which only the layout changes is
        sent as a view of the input, with other strides, for receivers that take strides and change nothing. Such an
        operator is not captured.
    """

    capturable = True

    pool: Allocator = parameter(default=None)
    out_dtype: str = parameter(default=REQUIRED, choices=_OUTPUTS)
    in_dtype: str = parameter(default="", choices=("", *_FORMATS))
    in_tensor_name: str = ""
    out_tensor_name: str = ""
    scale_min: float = parameter(default=0.0, minimum=-_MOST_FLOAT, maximum=_MOST_FLOAT)
    scale_max: float = parameter(default=1.0, minimum=-_MOST_FLOAT, maximum=_MOST_FLOAT)
    alpha_value: int = parameter(default=255, minimum=0, maximum=255)
    resize_height: int = parameter(default=0, minimum=0)
    resize_width: int = parameter(default=0, minimum=0)
    resize_mode: int = parameter(default=0, check=lambda mode: _filter_of(mode))
    out_channel_order: list[int] = parameter(default_factory=list, check=lambda order: _check_order(order))
    in_layout: str = parameter(default="hwc", choices=_LAYOUTS)
    out_layout: str = parameter(default="hwc", choices=_LAYOUTS)
    copy: bool = True

    ports = ("source_video", "tensor")

    if not TYPE_CHECKING:  # a type checker has the parameters as arguments (`declared`)

        @needs_fragment
        def __init__(self, fragment: Any, *args: Any, name: str = "", **params: Any) -> None:
            super().__init__(fragment, *args, name=name, **params)
            if not self.copy:
                self.capturable = False  # what it sends is no memory of its own

    def initialize(self) -> None:
        """Check the parameters."""
        super().initialize()
        if self.resize_height * self.resize_width > _MOST_PIXELS:
            raise ParameterError(
                f"operator {self.name!r}: resize_height={self.resize_height} and resize_width={self.resize_width} "
                f"are more than {_MOST_PIXELS} pixels"
            )
        self._filter = _filter_of(self.resize_mode)

    def start(self) -> None:
        """Begin a run: no frame has been seen."""
        super().start()
        self._element: np.dtype[Any] | None = None

    def plan(self, tensor: Tensor) -> list[Plan]:
        """Return how frames such as this one are converted; raise if they cannot be."""
        image = self._describe(tensor)
        steps = self._plan_packed(image)
        if not self.copy and self._is_same(image, steps):
            return []
        steps = self._with_layouts(image, steps)
        made = steps[-1].shape
        if self.out_layout == "hwc":
            return steps
        rows, columns, channels = made
        made = (channels, rows, columns) if self.out_layout in _PLANAR else made
        made = (1, *made) if self.out_layout.startswith("n") else made
        return [*steps[:-1], steps[-1]._replace(shape=made)]

    def _is_same(self, image: _Image, steps: list[Plan]) -> bool:
        """Return whether an image has all values of the result, perhaps in another layout."""
        step, *others = steps
        is_copy = step.routine in COPY.values() and not _FORMATS[image.format].layout
        return not others and is_copy and step.shape[2] == image.channels and not self.out_channel_order

    def view(self, tensor: Tensor) -> Tensor:
        """Return a frame with its dimensions in the order of `out_layout`."""
        dimensions = {"c": (1, tensor.itemsize), "n": (1, tensor.nbytes)}
        dimensions |= dict(zip(self.in_layout, zip(tensor.shape, tensor.strides, strict=True), strict=False))
        shape, strides = zip(*[dimensions[letter] for letter in self.out_layout], strict=True)
        described = (tensor.data, shape, strides, tensor.dl_dtype, tensor.device, tensor.is_readonly)
        return Tensor._at(described, tensor)

    def _plan_packed(self, image: _Image) -> list[Plan]:
        """Return the steps where the channels of a pixel are together."""
        if not (self.resize_height > 0 and self.resize_width > 0):
            return [self._plan_conversion(image)]
        self._check_resize(image)
        resized = replace(image, rows=self.resize_height, columns=self.resize_width)
        convert = self._plan_conversion(resized)
        rows = make_taps(self._filter, image.rows, resized.rows)
        columns = make_taps(self._filter, image.columns, resized.columns)
        counts = (rows.positions.shape[1], columns.positions.shape[1])
        sizes = tuple(map(np.int32, (*counts, image.columns, resized.rows, resized.columns)))
        is_one_step = convert.routine in (COPY[_UINT8], TO_FLOAT)  # the step that resizes converts, too
        copy = convert if is_one_step else self._copy_of(resized)
        resize = copy._replace(
            routine=RESAMPLE[copy.element, self._filter.name],
            arguments=(*sizes, *copy.arguments[1:]),
            tables=(*rows, *columns),
        )
        return [resize] if is_one_step else [resize, convert]

    def _with_layouts(self, image: _Image, steps: list[Plan]) -> list[Plan]:
        """Return steps from and to images with a plane for each channel, where the layouts say so."""
        if self.in_layout in _PLANAR:
            if _name_of(steps[0]) != "convert":  # it is brought into the usual layout first
                steps = [self._copy_of(image), *steps]
            steps[0] = _with_planes(steps[0], PLANAR_INPUT)
        if self.out_layout in _PLANAR:
            if _name_of(steps[-1]) not in ("convert", "resample"):
                steps = [*steps, self._copy_of(_Image(self.out_dtype, *steps[-1].shape))]
            steps[-1] = _with_planes(steps[-1], PLANAR_OUTPUT)
        return steps

    def _copy_of(self, image: _Image) -> Plan:
        shape = (image.rows, image.columns, image.channels)
        return _packed_plan(COPY[_UINT8], shape, image.channels, _UINT8, pack_order(range(image.channels)))

    # The kind of frame.

    def _describe(self, tensor: Tensor) -> _Image:
        """Return what a frame is, or raise if it is nothing that can be converted."""
        shape = self._usual_shape(tensor.shape)
        if tensor.dl_dtype.name not in ("uint8", "uint16", "float32"):
            raise self.refusal(f"the elements must be uint8, uint16 or float32, not {tensor.dl_dtype.name}")
        element = tensor.dtype
        if self._element is None:
            self._element = element
        elif element != self._element:
            raise self.refusal(
                f"the element type changed from {self._element} to {element}; it must stay the same"
            )
        if 0 in tensor.shape:
            raise self.refusal(f"the shape {tensor.shape} has no pixels")
        check_contiguous(tensor, place_of(self, "source_video"))
        rows, columns = shape[:2]
        if rows * columns > _MOST_PIXELS:
            raise self.refusal(f"an image has at most {_MOST_PIXELS} pixels; the shape is {tensor.shape}")
        channels = shape[2] if len(shape) == 3 else 1
        name = self.in_dtype or self._guess(element, channels)
        layout, count = _FORMATS[name].layout, _FORMATS[name].channels
        if layout and self.in_layout != "hwc":
            raise self.refusal(f"{name} has no channels that in_layout={self.in_layout!r} could place")
        if self.out_dtype == "yuv420" and self.out_layout != "hwc":
            raise self.refusal(f"yuv420 has no channels that out_layout={self.out_layout!r} could place")
        expected = f"(rows, columns, {count})" if count else "(rows, columns[, channels])"
        fits = channels == (count or channels)
        if layout in ("nv12", "yuv420"):
            expected = "(3/2 rows, columns), with rows and columns even"
            fits &= rows % 3 == 0 and columns % 2 == 0
            rows = rows // 3 * 2
        elif layout:
            expected = "(rows, even columns, 2)"
            fits &= columns % 2 == 0
        elif channels > 4:
            raise self.refusal(f"an image has up to 4 channels; the shape {tensor.shape} has {channels}")
        if element != _FORMATS[name].element or not fits:
            raise self.refusal(
                f"in_dtype={name!r} means {_FORMATS[name].element} of the shape {expected}; received {element} of "
                f"the shape {tensor.shape}"
            )
        if name == "uint8":
            name = {3: "rgb888", 4: "rgba8888"}.get(channels, name)
        return _Image(name, rows, columns, channels)

    def _usual_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an image as (rows, columns) or (rows, columns, channels)."""
        layout = self.in_layout
        if layout == "hwc":
            if len(shape) in (2, 3):
                return shape
            raise self.refusal(
                f"an image has the shape (rows, columns) or (rows, columns, channels), not {shape}; in_layout "
                "names other layouts"
            )
        if len(shape) != len(layout) or (layout.startswith("n") and shape[0] != 1):
            one = {"n": "1", "h": "rows", "w": "columns", "c": "channels"}
            wanted = ", ".join(one[letter] for letter in layout)
            raise self.refusal(f"in_layout={layout!r} means an image of the shape ({wanted}), not {shape}")
        shape = shape[-3:]
        return (*shape[1:], shape[0]) if layout in _PLANAR else shape

    def _guess(self, element: np.dtype[Any], channels: int) -> str:
        """Return the format of a frame where `in_dtype` names none."""
        if element != _UINT16:
            return element.name
        if channels not in (3, 4):
            raise self.refusal(f"uint16 images have 3 or 4 channels, not {channels}; convert them first")
        return "rgb161616" if channels == 3 else "rgba16161616"

    # The steps of its conversion.

    def _check_resize(self, image: _Image) -> None:
        if image.format not in ("rgb888", "rgba8888", "uint8"):
            raise self.refusal(
                f"only uint8 images (rgb888, rgba8888) can be resized, not {image.format!r}; "
                "convert the image first, by another FormatConverterOp"
            )
        is_larger = self.resize_height > image.rows or self.resize_width > image.columns
        if self._filter.name == "super" and is_larger:
            raise self.refusal(
                f"resize_mode=8 (super sampling) makes images smaller; from "
                f"{image.rows}×{image.columns} to {self.resize_height}×{self.resize_width} use another mode, "
                "such as 4 (cubic)"
            )

    def _plan_conversion(self, image: _Image) -> Plan:
        """Return how an image is converted; raise if it cannot be."""
        target, source = self.out_dtype, _FORMATS[image.format]
        rows, columns, channels = image.rows, image.columns, image.channels
        if target not in _targets(image):
            raise self.refusal(
                f"{image.format} with {channels} channels cannot be converted to {target}; it can be converted to "
                f"{choices(_targets(image))}"
            )
        if target == "yuv420":
            return self._plan_yuv420(image)
        made = (
            4 if target == "rgba8888" else 3 if source.matrix or image.format.startswith("rgba") else channels
        )
        if source.matrix is not None:
            sizes = map(np.int32, (rows, columns, made))
            arguments = (*sizes, self._order(made, made), np.int32(self.alpha_value), *source.matrix)
            return Plan(TO_RGB[source.layout], rows * columns, (rows, columns, made), _UINT8, arguments)
        if (image.format, target) == ("rgba8888", "uint8") and self.in_dtype != "rgba8888":
            made = 4  # the same format if the input was called uint8 or nothing: alpha stays
        element = _FLOAT32 if target == "float32" else _UINT8
        routine = COPY[element] if element == source.element else _CONVERTED[source.element, element]
        order = self._order(max(channels, made), made)
        scale = self._scale(image.format)
        return _packed_plan(
            routine, (rows, columns, made), channels, element, order, *scale, self.alpha_value
        )

    def _plan_yuv420(self, image: _Image) -> Plan:
        rows, columns = image.rows, image.columns
        shape = (rows * 3 // 2, columns)
        if self.out_channel_order:
            raise ValueError(
                f"operator {self.name!r}: yuv420 has no channels for out_channel_order to put in order"
            )
        if image.format == "yuv420":
            return _packed_plan(COPY[_UINT8], shape, 1, _UINT8, pack_order([0]))
        if rows % 2 or columns % 2:
            raise self.refusal(f"yuv420 needs even rows and columns, not {rows} rows and {columns} columns")
        return Plan(RGB_TO_YUV420, rows * columns // 4, shape, _UINT8, (np.int32(rows), np.int32(columns)))

    def _scale(self, source: str) -> tuple[np.float32, np.float32]:
        """Return the factor and the offset between bytes and floats."""
        least, most = self.scale_min, self.scale_max
        if source != "float32":
            return np.float32((most - least) / 255), np.float32(least)
        if self.out_dtype == "float32":
            return np.float32(1), np.float32(0)
        factor = np.float32(255 / (most - least)) if most != least else np.float32(np.inf)
        if not np.isfinite(factor):
            raise ValueError(
                f"operator {self.name!r}: scale_min={least} and scale_max={most} must differ to convert "
                "float32 to bytes"
            )
        return factor, np.float32(least)

    def _order(self, available: int, channels: int) -> np.int32:
        """Return the order of the channels, packed; raise if it does not fit."""
        order = self.out_channel_order
        if not order:
            return pack_order(range(channels))
        is_permutation = len(set(order)) == len(order) and all(0 <= one < available for one in order)
        if len(order) != channels or not is_permutation:
            raise ValueError(
                f"operator {self.name!r}: out_channel_order must hold {channels} different numbers from 0 to "
                f"{available - 1} for this output, not {list(order)}"
            )
        return pack_order(order)


def _packed_plan(
    routine: Routine,
    shape: tuple[int, ...],
    channels: int,
    element: np.dtype[Any],
    order: np.int32,
    scale: float | np.float32 = 0,
    offset: float | np.float32 = 0,
    alpha: int = 0,
) -> Plan:
    """Return the conversion of packed pixels, of so many channels, to a shape."""
    pixels, made = shape[0] * shape[1], shape[2] if len(shape) == 3 else 1
    numbers = (
        np.int64(pixels),
        np.int32(channels),
        np.int32(made),
        order,
        np.float32(scale),
        np.float32(offset),
    )
    return Plan(routine, pixels, shape, element, (*numbers, np.int32(alpha), np.int32(0)))


def _name_of(step: Plan) -> str:
    return str(step.routine.kernel.name)


def _with_planes(step: Plan, side: int) -> Plan:
    """Return a step, whose last argument tells the planes, for an image with a plane for each channel on a side."""
    *arguments, planes = step.arguments
    return step._replace(arguments=(*arguments, planes | np.int32(side)))


def _filter_of(mode: int) -> Filter:
    """Return the filter of a resize mode, or raise ValueError."""
    number = mode & ~_SMOOTH_EDGE or _DEFAULT_MODE
    if number not in FILTERS:
        known = ", ".join(f"{number} {how.name}" for number, how in FILTERS.items())
        raise ValueError(f"it is 0 (cubic) or one of {known}")
    return FILTERS[number]


def _check_order(order: list[int]) -> None:
    if any(isinstance(channel, bool) or not isinstance(channel, int) for channel in order):
        raise ValueError("it is a list of ints")


def _targets(image: _Image) -> list[str]:
    """Return the formats that an image of so many channels can be converted to."""
    without: tuple[str, ...] = ()
    if image.format == "uint8" and image.channels == 2:
        without = ("float32",)
    elif image.format == "float32" and image.channels != 3:
        without = ("rgb888",) if image.channels == 1 else ("rgb888", "uint8")
    return [target for target in _FORMATS[image.format].targets if target not in without]
