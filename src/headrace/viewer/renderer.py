"""Renderer: layers drawn to an array.

It is the only thing that draws. The page in the browser, the buffers that the viewer emits, and PNG and video files
all show its pictures, so that they agree by construction. Decided against: drawing shapes in the browser, which
would be sharper on a large screen, and a second picture to keep equal to the first.

Layers in 3D are not drawn here: Rerun shows them (`outlets`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.viewer.input_spec import InputSpec, InputType, View, input_specs
from headrace.viewer.layers import GEOMETRY, IMAGES, THREE_D, guess, match, refuse_3d
from headrace.viewer.pictures import clear, draw_shapes, opencv, put, text_mask
from headrace.viewer.pixels import index_image, srgb_table

_OVAL_SEGMENTS = 64
_DEFAULT_SIZE = 0.05
_LARGEST = 32766  # rows and columns of what OpenCV warps


class Renderer:
    """Draws tensors to a picture.

    Parameters
    ----------
    width, height
        The size of the picture in pixels.
    tensors
        How tensors are drawn: dicts or :class:`InputSpec`. Without any, the first tensors are drawn as their shapes
        and dtypes suggest.
    color_lut
        The colours of ``color_lut`` layers: rows of 4 floats from 0 to 1.
    font_path
        A TrueType or OpenType font for text; Pillow's own unless given.
    framebuffer_srgb
        Whether the picture has the sRGB curve. Images in sRGB formats are then shown as they are, and what is
        linear is given the curve.

    Examples
    --------
    >>> renderer = Renderer(640, 480, [{"name": "box", "type": "rectangles", "color": [1, 0, 0, 1]}])
    >>> picture = renderer.render({"box": np.array([[0.1, 0.1], [0.9, 0.9]], np.float32)})
    """

    def __init__(
        self,
        width: int,
        height: int,
        tensors: Iterable[InputSpec | Mapping[str, Any]] = (),
        *,
        color_lut: Iterable[Sequence[float]] = (),
        font_path: str = "",
        framebuffer_srgb: bool = False,
    ) -> None:
        if width < 1 or height < 1:
            raise ValueError(f"a picture must have at least 1 by 1 pixels, not {width} by {height}")
        self.width, self.height = int(width), int(height)
        self.specs = input_specs(tensors, "tensors")
        self.font_path = font_path
        self._is_srgb = framebuffer_srgb
        table = color_table(color_lut)
        self.has_lut = bool(len(table))
        self._lut_size = len(table)
        self._lut = np.rint(table * 255).astype(np.uint8)
        if self.has_lut:  # with a row for every value of 8 bits
            self._lut = np.concatenate([self._lut, np.repeat(self._lut[-1:], 256, axis=0)])
        if framebuffer_srgb and self.has_lut:
            self._lut[:, :3] = srgb_table(True)[self._lut[:, :3]]

    def render(self, tensors: Mapping[str, Any]) -> np.ndarray:
        """Return a picture of tensors: (height, width, 4) of uint8."""
        arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
        if not self.specs:
            self.specs = guess(arrays, self.has_lut)
        specs = match(self.specs, arrays, self.has_lut)
        refuse_3d(specs)
        return self.draw(specs, arrays)

    def draw(
        self, specs: Sequence[InputSpec], arrays: Mapping[str, Any], pixels: np.ndarray | None = None
    ) -> np.ndarray:
        """Return a picture of the flat ones of layers, the lowest priority first, in `pixels` or in new memory."""
        if pixels is None:
            pixels = np.empty((self.height, self.width, 4), np.uint8)
        clear(pixels)
        flat = [spec for spec in specs if spec.type not in THREE_D and spec.opacity]
        for spec in sorted(flat, key=lambda spec: spec.priority):
            draw = self._draw_text if spec.type is InputType.TEXT else self._draw_shapes
            draw = self._draw_image if spec.type in IMAGES else draw
            for view in spec.views or [View()]:
                frame = _Frame(pixels, view)
                if frame.target.size:
                    draw(frame, spec, arrays[spec.tensor_name])
        return pixels

    def _draw_image(self, frame: _Frame, spec: InputSpec, data: np.ndarray) -> None:
        is_table = spec.type is InputType.COLOR_LUT
        if is_table:
            # Looked up as words: one for each pixel, not four bytes.
            words = np.take(self._lut.view(np.uint32)[:, 0], index_image(data, self._lut_size))
            rgb = words.view(np.uint8).reshape(*words.shape, 4)
        else:
            rgb = spec.image_format.to_rgb(data)
        alpha = rgb[..., 3] if rgb.shape[2] == 4 else None
        if not is_table and self._is_srgb != spec.image_format.is_srgb:
            rgb = srgb_table(self._is_srgb)[rgb[..., :3]]
        if alpha is not None and int(alpha.min()) == 255:
            alpha = None
        if frame.is_flipped:
            rgb, alpha = rgb[::-1], None if alpha is None else alpha[::-1]
        if frame.columns > 4 * self.width or frame.rows > 4 * self.height:
            rgb = frame.visible(rgb[..., :3], is_table)
            alpha = None if alpha is None else frame.visible(alpha, is_table)
            put(frame.target, rgb, alpha, spec.opacity, 0, 0)
            return
        rgb = _resized(rgb, frame.columns, frame.rows, is_table)
        alpha = None if alpha is None else _resized(alpha, frame.columns, frame.rows, is_table)
        put(frame.target, rgb, alpha, spec.opacity, frame.left, frame.top)

    def _draw_text(self, frame: _Frame, spec: InputSpec, data: np.ndarray) -> None:
        color = self._color(spec)
        for place, coordinate in enumerate(coordinates_of(data)):
            x, y = coordinate[:2]
            size = coordinate[2] if len(coordinate) > 2 else _DEFAULT_SIZE
            if not np.isfinite(coordinate).all() or not 0 < round(size * frame.rows) <= 4 * self.height:
                continue
            text = spec.text[min(place, len(spec.text) - 1)]
            mask = text_mask(text, round(size * frame.rows), self.font_path)
            if not mask.size:
                continue
            rgb = np.broadcast_to(np.rint(color[:3] * 255).astype(np.uint8), (*mask.shape, 3))
            opacity = spec.opacity * float(color[3])
            left, top = frame.project(np.array([x, y]))
            if frame.is_flipped:
                mask, top = mask[::-1], top - mask.shape[0]
            if abs(left) < 1e6 and abs(top) < 1e6:
                put(frame.target, rgb, mask, opacity, round(left), round(top))

    def _color(self, spec: InputSpec) -> np.ndarray:
        color = np.array(spec.color, np.float32)
        if self._is_srgb:
            color[:3] = srgb_table(True)[np.rint(color[:3] * 255).astype(np.uint8)] / 255
        return color

    def _draw_shapes(self, frame: _Frame, spec: InputSpec, data: np.ndarray) -> None:
        shapes = shapes_of(spec.type, coordinates_of(data), self.width / self.height)
        size = spec.point_size if shapes.shape[1] == 1 else spec.line_width
        corners, color = frame.project(shapes), self._color(spec)
        opacity = spec.opacity * float(color[3])
        rgb = np.rint(color[:3] * 255).astype(np.uint8)
        if opacity >= 1:
            draw_shapes(frame.target, (*rgb.tolist(), 255), corners, size)
            return
        # By way of a mask, so that a pixel that several shapes cover, as lines do at their ends, is drawn once.
        mask = np.zeros(frame.target.shape[:2], np.uint8)
        draw_shapes(mask, 255, corners, size)
        left, top, width, height = opencv().boundingRect(mask)
        mask = mask[top : top + height, left : left + width]
        put(frame.target, np.broadcast_to(rgb, (height, width, 3)), mask, opacity, left, top)


def color_table(rows: Any) -> np.ndarray:
    """Return a colour table as (N, 4) floats, or raise ValueError."""
    rows = list(rows)
    if not rows:
        return np.empty((0, 4))
    try:
        table = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    if table.ndim != 2 or table.shape[1] != 4 or not ((table >= 0) & (table <= 1)).all():
        raise ValueError(
            f"color_lut must be rows of 4 numbers from 0 to 1 (red, green, blue, alpha), not {rows!r:.200}"
        )
    return table


class _Frame:
    """A view of a picture, and the way of coordinates to it.

    Attributes
    ----------
    target
        The part of the picture that the view covers.
    left, top
        Where the view begins, in pixels of that part: at 0, or before it.
    columns, rows
        The size of the whole view.
    """

    def __init__(self, pixels: np.ndarray, view: View) -> None:
        height, width = pixels.shape[:2]
        x, y = view.offset_x * width, view.offset_y * height
        upper, lower = sorted((y, y + view.height * height))
        self.is_flipped = view.height < 0
        left, top = round(x), round(upper)
        self.columns = max(1, round(x + view.width * width) - left)
        self.rows = max(1, round(lower) - top)
        first = [max(0, left), max(0, top)]
        self.target = pixels[first[1] : max(0, top + self.rows), first[0] : max(0, left + self.columns)]
        self.left, self.top = left - first[0], top - first[1]
        self._size = np.array([view.width * width, view.height * height])
        self._origin = np.subtract([x, y], first)

    def project(self, coordinates: np.ndarray) -> np.ndarray:
        """Return (..., 2) coordinates in pixels."""
        places: np.ndarray = coordinates * self._size + self._origin
        return places

    def visible(self, image: np.ndarray, is_table: bool) -> Any:
        """Return the part of an image that the picture shows, of a view that is far larger than that."""
        rows, columns = (min(extent, _LARGEST) for extent in image.shape[:2])
        image = np.ascontiguousarray(_resized(image, columns, rows, is_table))
        across, down = columns / self.columns, rows / self.rows
        # Places are the centres of pixels, of which the first is from 0 to 1.
        matrix = np.array(
            [
                [across, 0, (0.5 - self.left) * across - 0.5],
                [0, down, (0.5 - self.top) * down - 0.5],
            ]
        )
        cv2 = opencv()
        flags = (cv2.INTER_NEAREST if is_table else cv2.INTER_LINEAR) | cv2.WARP_INVERSE_MAP
        return cv2.warpAffine(image, matrix, self.target.shape[1::-1], None, flags, cv2.BORDER_REPLICATE)


def coordinates_of(data: np.ndarray) -> np.ndarray:
    """Return coordinates in double precision; those that are infinite, or too large to compute with, are NaN."""
    coordinates = data.reshape(-1, data.shape[-1]).astype(np.float64)
    coordinates[~(np.abs(coordinates) < 1e100)] = np.nan
    return coordinates


def shapes_of(kind: InputType, vertices: np.ndarray, aspect: float) -> np.ndarray:
    """Return what a layer consists of: points, lines or triangles, (N, 1, 2 or 3, D)."""
    count = GEOMETRY[kind].corners
    if kind in (InputType.LINE_STRIP, InputType.LINE_STRIP_3D):
        return np.stack([vertices[:-1], vertices[1:]], axis=1)
    if kind is InputType.RECTANGLES:
        corners = vertices.reshape(-1, 4)[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
        return np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2, 2)
    if kind not in (InputType.CROSSES, InputType.OVALS):
        return vertices.reshape(-1, count, vertices.shape[1])
    sizes = np.full((len(vertices), 2), _DEFAULT_SIZE)
    sizes[:, : vertices.shape[1] - 2] = vertices[:, 2:]
    if kind is InputType.CROSSES:
        # The size is the width; the height follows, so that crosses are as high as wide on the screen.
        offsets = np.array([[[-0.5, 0], [0.5, 0]], [[0, -0.5 * aspect], [0, 0.5 * aspect]]])
        sizes[:, 1] = sizes[:, 0]
    else:
        angles = np.linspace(0, 2 * np.pi, _OVAL_SEGMENTS + 1)
        around = np.stack([np.cos(angles), np.sin(angles)], axis=1) / 2
        offsets = np.stack([around[:-1], around[1:]], axis=1)
    places: np.ndarray = vertices[:, None, None, :2] + offsets[None] * sizes[:, None, None]
    return places.reshape(-1, 2, 2)


def _resized(image: np.ndarray, columns: int, rows: int, is_table: bool = False) -> np.ndarray:
    """Return an image at another size: where it shrinks the mean of an area, else linearly between its pixels.

    Of colours from a table, each pixel is the nearest.
    """
    cv2 = opencv()
    is_gray = image.ndim == 3 and image.strides[-1] == 0  # one channel, shown as grey
    scaled = np.ascontiguousarray(image[..., 0] if is_gray else image)
    smaller = min(columns, image.shape[1]), min(rows, image.shape[0])
    steps = [(smaller, cv2.INTER_AREA), ((columns, rows), cv2.INTER_LINEAR)]
    for size, how in [((columns, rows), cv2.INTER_NEAREST_EXACT)] if is_table else steps:
        if scaled.shape[1::-1] != size:
            scaled = cv2.resize(scaled, size, interpolation=how)
    return np.broadcast_to(scaled[..., None], (rows, columns, 3)) if is_gray else scaled
