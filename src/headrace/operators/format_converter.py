"""FormatConverterOp: another element type, size, colour layout or order of channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import gpu
from headrace.core.errors import choices
from headrace.operators._routines.colour import (
    BT601_FULL,
    BT601_LIMITED,
    BT709_FULL,
    BT709_LIMITED,
    RGB_TO_YUV420,
    TO_RGB,
    Matrix,
)
from headrace.operators._routines.conversion import COPY, FLOAT_TO_BYTE, TO_FLOAT, WIDE_TO_BYTE, pack_order
from headrace.operators._routines.resampling import FILTERS, RESAMPLE, make_taps
from headrace.operators.arrays import Plan, check_contiguous, find_tensor, workplace
from headrace.operators.tensor_operator import TensorOperator

if TYPE_CHECKING:
    from headrace.core.contexts import ExecutionContext, InputContext, OutputContext
    from headrace.core.spec import OperatorSpec
    from headrace.operators.arrays import Routine, Workplace
    from headrace.tensor import Tensor

__all__ = ["FormatConverterOp"]

_UINT8, _UINT16, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.float32)
_SMOOTH_EDGE = 0x8000000
_DEFAULT_MODE = 4
_MOST_PIXELS = 2**31 - 1  # the kernels number them with 32 bits

# The packed formats: element type and number of channels. Those of uint8 and float32 have any number.
_PACKED = {
    "rgb888": (_UINT8, 3),
    "rgba8888": (_UINT8, 4),
    "rgb161616": (_UINT16, 3),
    "rgba16161616": (_UINT16, 4),
    "uint8": (_UINT8, 0),
    "float32": (_FLOAT32, 0),
}
_YUV: dict[str, tuple[str, Matrix]] = {
    "nv12": ("nv12", BT709_FULL),
    "nv12_bt709_hdtv": ("nv12", BT709_FULL),
    "nv12_bt709_csc": ("nv12", BT709_LIMITED),
    "nv12_bt601_full": ("nv12", BT601_FULL),
    "yuyv": ("yuyv", BT601_LIMITED),
    "uyvy": ("uyvy", BT601_LIMITED),
    "yuv420": ("yuv420", BT601_FULL),
}
_OUTPUTS = ("rgb888", "uint8", "float32", "rgba8888", "yuv420")


@dataclass(frozen=True, slots=True)
class _Image:
    """What a frame is: its format, size and channels."""

    format: str
    rows: int
    columns: int
    channels: int


class _Steps(NamedTuple):
    """How the frames of one kind are converted.

    Attributes
    ----------
    resize
        The step that resizes, and converts too where it can.
    convert
        The step that converts.
    tables
        The tables of the filter for rows and columns, which the step that resizes takes too.
    """

    resize: Plan | None
    convert: Plan | None
    tables: tuple[np.ndarray[Any, Any], ...] = ()


class FormatConverterOp(TensorOperator):
    """Converts images: element type, size, colour layout and order of channels.

    It receives a message at ``source_video`` and emits a TensorMap with one tensor at ``tensor``. First the
    image is resized, then converted, then its channels are put in order.

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

    Packed images have the shape (rows, columns, channels); one channel may be left out. nv12 and yuv420 have
    the shape (3/2 rows, columns), the luma above the chroma; yuyv and uyvy have (rows, columns, 2). The rows
    and columns of the first two are even, and so are the columns of the others. Input is C-contiguous, and
    keeps its element type over a run.

    With a GPU the output is in device memory, and an image in host memory is copied there first; without one,
    an image in host memory stays on the host. GPU and NumPy give the same result, bit by bit. OpenCV, which takes
    NumPy's place on the host where it is installed (the extra ``operators``), differs by at most 1 where it rounds:
    in the resize modes 2, 4, 8 and 16, and between RGB and YUV. In limited range, luma below 16 counts as 16.

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
    """

    capturable = True

    pool: Any
    out_dtype: str
    in_dtype: str
    in_tensor_name: str
    out_tensor_name: str
    scale_min: float
    scale_max: float
    alpha_value: int
    resize_height: int
    resize_width: int
    resize_mode: int
    out_channel_order: list[int]

    def setup(self, spec: OperatorSpec) -> None:
        """Declare ports and parameters."""
        spec.input("source_video")
        spec.output("tensor")
        spec.param("pool", None)
        spec.param("out_dtype")
        spec.param("in_dtype", "")
        spec.param("in_tensor_name", "")
        spec.param("out_tensor_name", "")
        spec.param("scale_min", 0.0)
        spec.param("scale_max", 1.0)
        spec.param("alpha_value", 255)
        spec.param("resize_height", 0)
        spec.param("resize_width", 0)
        spec.param("resize_mode", 0)
        spec.param("out_channel_order", [])

    def initialize(self) -> None:
        """Check the parameters."""
        super().initialize()
        self.check_choice("out_dtype", _OUTPUTS)
        if self.in_dtype:
            self.check_choice("in_dtype", (*_PACKED, *_YUV))
        self.check_range("alpha_value", 0, 255)
        for parameter in ("resize_height", "resize_width"):
            if getattr(self, parameter) < 0:
                raise ValueError(
                    f"operator {self.name!r}: {parameter} must not be negative, not {getattr(self, parameter)}"
                )
        if self.resize_height * self.resize_width > _MOST_PIXELS:
            raise ValueError(
                f"operator {self.name!r}: resize_height={self.resize_height} and resize_width={self.resize_width} "
                f"are more than {_MOST_PIXELS} pixels"
            )
        for parameter in ("scale_min", "scale_max"):
            if not abs(getattr(self, parameter)) <= np.finfo(np.float32).max:
                raise ValueError(f"operator {self.name!r}: {parameter} must be a finite number of float32")
        mode = self.resize_mode
        if mode not in (0, _SMOOTH_EDGE):
            mode &= ~_SMOOTH_EDGE
            if mode not in FILTERS:
                known = ", ".join(f"{number} {how.name}" for number, how in FILTERS.items())
                raise ValueError(
                    f"operator {self.name!r}: resize_mode={self.resize_mode} is not known; it is 0 (cubic) "
                    f"or one of {known}"
                )
        self._filter = FILTERS[mode if mode in FILTERS else _DEFAULT_MODE]
        order = self.out_channel_order
        if any(isinstance(channel, bool) or not isinstance(channel, int) for channel in order):
            raise ValueError(
                f"operator {self.name!r}: out_channel_order must be a list of ints, not {order!r}"
            )

    def start(self) -> None:
        """Begin a run: no frame has been seen."""
        self._element: np.dtype[Any] | None = None
        # The steps for the last kind of frame: frames of a run are all of one kind, as a rule.
        self._planned_for: tuple[Any, ...] = ()
        self._steps: _Steps
        # The tables of the last size and the stream they were uploaded on, so that this happens once.
        self._taps_for: tuple[Any, int | None] = (None, None)
        self._taps: list[Any] = []

    def stop(self) -> None:
        """Let go of the tables."""
        self._taps_for, self._taps = (None, None), []

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext) -> None:
        """Convert one frame."""
        tensor = find_tensor(op_input.receive("source_video"), self.in_tensor_name, self, "source_video")
        kind = (
            tensor.shape,
            tensor.strides,
            tensor.dl_dtype,
            self.in_dtype,
            self.out_dtype,
            self.resize_height,
            self.resize_width,
            self.scale_min,
            self.scale_max,
            self.alpha_value,
            tuple(self.out_channel_order),
        )
        if kind != self._planned_for:
            self._steps = self._plan_steps(tensor)
            self._planned_for = kind
        resize, convert, tables = self._steps
        place = workplace(self, op_input, "source_video", tensor, pool=self.pool)
        result = place.bring(tensor)
        if resize is not None:
            source, result = result, place.empty(resize.shape, resize.element)
            taps = self._taps_at(place, tables)
            place.run(resize.routine, resize.threads, result, source, *taps, *resize.arguments)
        if convert is not None:
            source, result = result, place.empty(convert.shape, convert.element)
            place.run(convert.routine, convert.threads, result, source, *convert.arguments)
        op_output.emit({self.out_tensor_name: result}, "tensor")

    def _plan_steps(self, tensor: Tensor) -> _Steps:
        """Return how frames such as this one are converted; raise if they cannot be."""
        image = self._describe(tensor)
        self._check_resize(image)
        resized = self._resized(image)
        convert = self._plan(resized)
        if not self._resizes:
            return _Steps(None, convert)
        rows = make_taps(self._filter, image.rows, resized.rows)
        columns = make_taps(self._filter, image.columns, resized.columns)
        counts = (rows.positions.shape[1], columns.positions.shape[1])
        sizes = tuple(map(np.int32, (*counts, image.columns, resized.rows, resized.columns)))
        if convert.routine in (COPY[_UINT8], TO_FLOAT):
            arguments = (*sizes, *convert.arguments[1:])
            resize = convert._replace(
                routine=RESAMPLE[convert.element, self._filter.name], arguments=arguments
            )
            return _Steps(resize, None, (*rows, *columns))
        channels, zero = np.int32(resized.channels), np.float32(0)
        order = pack_order(range(resized.channels))
        arguments = (*sizes, channels, channels, order, zero, zero, np.int32(0))
        shape = (resized.rows, resized.columns, resized.channels)
        resize = Plan(
            RESAMPLE[_UINT8, self._filter.name], resized.rows * resized.columns, shape, _UINT8, arguments
        )
        return _Steps(resize, convert, (*rows, *columns))

    @property
    def _where(self) -> str:
        return f"operator {self.name!r}, input 'source_video'"

    # What the input is.

    def _describe(self, tensor: Tensor) -> _Image:
        """Return what a frame is, or raise if it is nothing that can be converted."""
        where = self._where
        if tensor.ndim not in (2, 3):
            raise ValueError(
                f"{where}: an image has the shape (rows, columns) or (rows, columns, channels), not {tensor.shape}"
            )
        if tensor.dl_dtype.name not in ("uint8", "uint16", "float32"):
            raise ValueError(
                f"{where}: the elements must be uint8, uint16 or float32, not {tensor.dl_dtype.name}"
            )
        element = tensor.dtype
        if self._element is None:
            self._element = element
        elif element != self._element:
            raise ValueError(
                f"{where}: the element type changed from {self._element} to {element}; it must stay the same"
            )
        if 0 in tensor.shape:
            raise ValueError(f"{where}: the shape {tensor.shape} has no pixels")
        check_contiguous(tensor, where)
        rows, columns = tensor.shape[:2]
        if rows * columns > _MOST_PIXELS:
            raise ValueError(
                f"{where}: an image has at most {_MOST_PIXELS} pixels; the shape is {tensor.shape}"
            )
        channels = tensor.shape[2] if tensor.ndim == 3 else 1
        if self.in_dtype in _YUV:
            return self._describe_yuv(element, rows, columns, channels, tensor.shape)
        if channels > 4:
            raise ValueError(
                f"{where}: an image has up to 4 channels; the shape {tensor.shape} has {channels}"
            )
        name = self.in_dtype or self._guess(element, channels)
        wanted, count = _PACKED[name]
        if element != wanted or (count and channels != count):
            shape = f"(rows, columns, {count})" if count else "(rows, columns[, channels])"
            raise ValueError(
                f"{where}: in_dtype={name!r} means {wanted} of the shape {shape}; received {element} of the shape "
                f"{tensor.shape}"
            )
        if name == "uint8":
            name = {3: "rgb888", 4: "rgba8888"}.get(channels, name)
        return _Image(name, rows, columns, channels)

    def _guess(self, element: np.dtype[Any], channels: int) -> str:
        """Return the format of a frame where `in_dtype` names none."""
        if element == _UINT16:
            found = {3: "rgb161616", 4: "rgba16161616"}.get(channels)
            if found is None:
                raise ValueError(
                    f"{self._where}: uint16 images have 3 or 4 channels, not {channels}; convert them first"
                )
            return found
        return "uint8" if element == _UINT8 else "float32"

    def _describe_yuv(
        self, element: np.dtype[Any], rows: int, columns: int, channels: int, shape: tuple[int, ...]
    ) -> _Image:
        name = self.in_dtype
        is_planar = _YUV[name][0] in ("nv12", "yuv420")
        wanted = "(3/2 rows, columns), with rows and columns even" if is_planar else "(rows, even columns, 2)"
        fits = (rows % 3 == 0 and channels == 1) if is_planar else channels == 2
        if element != _UINT8 or columns % 2 or not fits:
            raise ValueError(
                f"{self._where}: in_dtype={name!r} means uint8 of the shape {wanted}; received {element} of the "
                f"shape {shape}"
            )
        return _Image(name, rows // 3 * 2 if is_planar else rows, columns, channels)

    # What happens to it.

    @property
    def _resizes(self) -> bool:
        return self.resize_height > 0 and self.resize_width > 0

    def _resized(self, image: _Image) -> _Image:
        if not self._resizes:
            return image
        return _Image(image.format, self.resize_height, self.resize_width, image.channels)

    def _check_resize(self, image: _Image) -> None:
        if not self._resizes:
            return
        if image.format not in ("rgb888", "rgba8888", "uint8"):
            raise ValueError(
                f"{self._where}: only uint8 images (rgb888, rgba8888) can be resized, not {image.format!r}; "
                "convert the image first, by another FormatConverterOp"
            )
        is_larger = self.resize_height > image.rows or self.resize_width > image.columns
        if self._filter.name == "super" and is_larger:
            raise ValueError(
                f"{self._where}: resize_mode=8 (super sampling) makes images smaller; from "
                f"{image.rows}×{image.columns} to {self.resize_height}×{self.resize_width} use another mode, "
                "such as 4 (cubic)"
            )

    def _taps_at(self, place: Workplace, tables: tuple[np.ndarray[Any, Any], ...]) -> list[Any]:
        """Return the tables of the filter as tensors at a place."""
        stream = None if place.stream is None else int(place.stream)
        # Work that is captured is launched after all that the operator has submitted, so the tables are there.
        is_there = self._taps_for[1] == stream or (
            place.stream is not None and gpu.is_capturing(place.stream)
        )
        if self._taps_for[0] is not tables or not is_there:
            self._taps = [place.upload(table) for table in tables]
            self._taps_for = (tables, stream)
        return self._taps

    def _plan(self, image: _Image) -> Plan:
        """Return how an image is converted; raise if it cannot be."""
        target = self.out_dtype
        rows, columns, channels = image.rows, image.columns, image.channels
        if target == "yuv420":
            return self._plan_yuv420(image)
        if image.format in _YUV:
            layout, matrix = _YUV[image.format]
            is_known = target in ("rgb888", "uint8") or (target == "rgba8888" and layout == "yuv420")
            if not is_known:
                raise self._unsupported(image)
            channels = 4 if target == "rgba8888" else 3
            sizes = map(np.int32, (rows, columns, channels))
            order, alpha = self._order(channels, channels), np.int32(self.alpha_value)
            arguments: tuple[Any, ...] = (*sizes, order, alpha, *matrix)
            return Plan(TO_RGB[layout], rows * columns, (rows, columns, channels), _UINT8, arguments)
        routine, out_channels = self._packed_routine(image)
        element = _FLOAT32 if target == "float32" else _UINT8
        scale, offset = self._scale(image.format)
        arguments = (
            np.int64(rows * columns),
            np.int32(channels),
            np.int32(out_channels),
            self._order(max(channels, out_channels), out_channels),
            scale,
            offset,
            np.int32(self.alpha_value),
        )
        return Plan(routine, rows * columns, (rows, columns, out_channels), element, arguments)

    def _packed_routine(self, image: _Image) -> tuple[Routine, int]:
        """Return the routine from one packed format to another, and the channels of the result."""
        source, target, channels = image.format, self.out_dtype, image.channels
        if target == "uint8" and source in ("uint8", "rgb888"):
            return COPY[_UINT8], channels
        if target == "uint8" and source == "rgba8888":
            # The same format if the input was called uint8 or nothing: a copy. Otherwise alpha goes.
            return COPY[_UINT8], 3 if self.in_dtype == "rgba8888" else 4
        if target == source:
            return COPY[_FLOAT32 if source == "float32" else _UINT8], channels
        if target == "float32" and source in ("uint8", "rgb888", "rgba8888") and channels != 2:
            return TO_FLOAT, min(channels, 3)
        if source == "float32" and (channels == 3 or (channels == 1 and target == "uint8")):
            if target in ("rgb888", "uint8"):
                return FLOAT_TO_BYTE, channels
        elif (source, target) == ("rgb888", "rgba8888"):
            return COPY[_UINT8], 4
        elif (source, target) == ("rgba8888", "rgb888"):
            return COPY[_UINT8], 3
        elif source in ("rgb161616", "rgba16161616") and target in ("rgb888", "uint8"):
            return WIDE_TO_BYTE, 3
        raise self._unsupported(image)

    def _plan_yuv420(self, image: _Image) -> Plan:
        rows, columns = image.rows, image.columns
        shape = (rows * 3 // 2, columns)
        if self.out_channel_order:
            raise ValueError(
                f"operator {self.name!r}: yuv420 has no channels for out_channel_order to put in order"
            )
        if image.format == "yuv420":
            count = rows * columns * 3 // 2
            one, zero = np.int32(1), np.float32(0)
            arguments = (np.int64(count), one, one, pack_order([0]), zero, zero, one)
            return Plan(COPY[_UINT8], count, shape, _UINT8, arguments)
        if image.format != "rgb888":
            raise self._unsupported(image)
        if rows % 2 or columns % 2:
            raise ValueError(
                f"{self._where}: yuv420 needs even rows and columns, not {rows} rows and {columns} columns"
            )
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

    def _unsupported(self, image: _Image) -> ValueError:
        return ValueError(
            f"{self._where}: {image.format} with {image.channels} channels cannot be converted to "
            f"{self.out_dtype}; it can be converted to {choices(_targets(image))}"
        )


def _targets(image: _Image) -> list[str]:
    """Return the formats that an image of so many channels can be converted to."""
    without: tuple[str, ...] = ()
    if image.format == "uint8" and image.channels == 2:
        without = ("float32",)
    elif image.format == "float32" and image.channels != 3:
        without = ("rgb888",) if image.channels == 1 else ("rgb888", "uint8")
    return [target for target in _TARGETS.get(image.format, ()) if target not in without]


_TARGETS = {
    "uint8": ("uint8", "float32"),
    "rgb888": ("rgb888", "uint8", "float32", "rgba8888", "yuv420"),
    "rgba8888": ("rgba8888", "rgb888", "uint8", "float32"),
    "float32": ("float32", "rgb888", "uint8"),
    "rgb161616": ("rgb888", "uint8"),
    "rgba16161616": ("rgb888", "uint8"),
    "yuv420": ("yuv420", "rgb888", "uint8", "rgba8888"),
    **{name: ("rgb888", "uint8") for name in _YUV if name != "yuv420"},
}
