"""Renderer: layers drawn to an array.

It is the only thing that draws. The page in the browser, the buffers that the viewer emits, and PNG and video files
all show its pictures, so that they agree by construction. Decided against: drawing shapes in the browser, which
would be sharper on a large screen, and a second picture to keep equal to the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.viewer.camera import Camera
from headrace.viewer.canvas import Canvas
from headrace.viewer.clipping import Box, cut
from headrace.viewer.deep_shapes import Quads, line_quads, point_quads, rasterize
from headrace.viewer.flat_shapes import draw_lines, draw_points, draw_triangles
from headrace.viewer.formats import DepthMapRenderMode, InputType
from headrace.viewer.input_spec import InputSpec, View, input_specs
from headrace.viewer.layers import GEOMETRY, IMAGES, THREE_D, Layer, Shape, guess, match
from headrace.viewer.opencv import opencv
from headrace.viewer.pixels import encode_srgb, index_image, to_rgb
from headrace.viewer.text import text_mask

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
            self._lut[:, :3] = encode_srgb()[self._lut[:, :3]]

    def render(self, tensors: Mapping[str, Any], camera: Camera | None = None) -> np.ndarray:
        """Return a picture of tensors: (height, width, 4) of uint8."""
        arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
        shapes = {name: Shape(array.shape, array.dtype) for name, array in arrays.items()}
        if not self.specs:
            self.specs = guess(shapes, self.has_lut)
        specs = match(self.specs, shapes, self.has_lut)
        return self.draw(layers_of(specs, arrays), camera or Camera()).pixels

    def draw(self, layers: Sequence[Layer], camera: Camera, canvas: Canvas | None = None) -> Canvas:
        """Draw layers, those with the lowest priority first, and return the canvas."""
        if canvas is None:
            canvas = Canvas(self.width, self.height)
        ordered = sorted(layers, key=lambda layer: layer.spec.priority)
        if not (ordered and self._covers_all(ordered[0])):
            canvas.clear()
        else:
            canvas._depth = None
        for layer in ordered:
            for view in layer.spec.views or [View()]:
                self._draw_layer(canvas, layer, view, camera)
        return canvas

    def _covers_all(self, layer: Layer) -> bool:
        """Return whether a layer hides the whole picture, which then need not be cleared."""
        spec = layer.spec
        return (
            spec.type is InputType.COLOR
            and not spec.views
            and spec.opacity == 1
            and layer.data.shape[-1] != 4
        )

    def _draw_layer(self, canvas: Canvas, layer: Layer, view: View, camera: Camera) -> None:
        if layer.spec.opacity == 0:
            return
        frame = _Frame(self.width, self.height, view)
        if layer.spec.type in IMAGES:
            self._draw_image(canvas, layer, frame)
        elif layer.spec.type is InputType.TEXT:
            self._draw_text(canvas, layer, frame)
        elif layer.spec.type is InputType.DEPTH_MAP:
            self._draw_depth_map(canvas, layer, frame, camera)
        else:
            self._draw_shapes(canvas, layer, frame, camera)

    # Images.

    def _draw_image(self, canvas: Canvas, layer: Layer, frame: _Frame) -> None:
        spec = layer.spec
        # Only the visible part of a view that is far larger than the window is computed.
        is_huge = frame.columns > 4 * self.width or frame.rows > 4 * self.height
        alpha: np.ndarray | None
        if spec.type is InputType.COLOR_LUT:
            index = index_image(layer.data, self._lut_size)
            if frame.matrix is None and not is_huge:
                index = _nearest(index, frame.columns, frame.rows)
            # Looked up as words: one for each pixel, not four bytes.
            words = np.take(self._lut.view(np.uint32)[:, 0], index)
            rgb = words.view(np.uint8).reshape(*index.shape, 4)
            alpha = rgb[..., 3]
        else:
            rgb, alpha = to_rgb(layer.data, spec, self._is_srgb)
        if frame.matrix is not None or is_huge:
            low = 0 if frame.matrix is None else -1
            _put_warped(canvas, rgb, alpha, spec.opacity, frame, (low, low, 1, 1))
            return
        rgb = _resized(rgb, frame.columns, frame.rows)
        alpha = None if alpha is None else _resized(alpha, frame.columns, frame.rows)
        if frame.is_flipped:
            rgb, alpha = rgb[::-1], None if alpha is None else alpha[::-1]
        canvas.put(rgb, alpha, spec.opacity, frame.left, frame.top)

    # Text.

    def _draw_text(self, canvas: Canvas, layer: Layer, frame: _Frame) -> None:
        spec = layer.spec
        color = self._color(spec)
        for place, coordinate in enumerate(_coordinates(layer.data)):
            x, y = coordinate[:2]
            size = coordinate[2] if len(coordinate) > 2 else _DEFAULT_SIZE
            if not np.isfinite(coordinate).all() or size <= 0:
                continue
            text = spec.text[min(place, len(spec.text) - 1)]
            pixels = max(1, round(size * frame.rows))
            if pixels > 4 * self.height:
                continue
            mask = text_mask(text, pixels, self.font_path)
            if not mask.size:
                continue
            rgb = np.broadcast_to(np.rint(color[:3] * 255).astype(np.uint8), (*mask.shape, 3))
            opacity = spec.opacity * float(color[3])
            if frame.matrix is None and not frame.is_flipped:
                left, top = frame.project(np.array([[x, y, 0]]), None)[0, :2]
                if abs(left) < 1e6 and abs(top) < 1e6:
                    canvas.put(rgb, mask, opacity, round(left), round(top))
                continue
            right, low = x + mask.shape[1] / frame.columns, y + mask.shape[0] / frame.rows
            _put_warped(canvas, rgb, mask, opacity, frame, (x, y, right, low))

    def _color(self, spec: InputSpec) -> np.ndarray:
        color = np.array(spec.color, np.float32)
        if self._is_srgb:
            color[:3] = encode_srgb()[np.rint(color[:3] * 255).astype(np.uint8)] / 255
        return color

    # Shapes.

    def _draw_shapes(self, canvas: Canvas, layer: Layer, frame: _Frame, camera: Camera) -> None:
        spec = layer.spec
        kind = spec.type
        if kind not in GEOMETRY:  # the colours of a depth map are drawn with the depth map
            return
        vertices = _coordinates(layer.data)
        color = self._color(spec)
        is_point = kind in (InputType.POINTS, InputType.POINTS_3D)
        is_triangle = kind in (InputType.TRIANGLES, InputType.TRIANGLES_3D)
        if kind not in THREE_D:
            at = [frame.box.left, frame.box.top]
            if is_point:
                xy = frame.project(vertices, None)[:, :2] - at
                draw = partial(draw_points, xy=xy, size=spec.point_size)
            elif is_triangle:
                corners = _triangles(frame, vertices.reshape(-1, 3, 2), None)[0][..., :2] - at
                draw = partial(draw_triangles, corners=corners)
            else:
                ends = _lines(frame, *_segments(kind, vertices, self.width / self.height), None)
                start, end = (place[:, :2] - at for place in ends)
                draw = partial(draw_lines, start=start, end=end, width=spec.line_width)
            canvas.draw_flat(draw, color, spec.opacity, frame.box)
            return
        shapes: tuple[np.ndarray, np.ndarray]
        if is_point:
            shapes = _point_quads(frame, vertices, camera, spec)
        elif is_triangle:
            shapes = _triangles(frame, vertices.reshape(-1, 3, 3), camera)
        else:
            shapes = _line_quads(frame, *_segments(kind, vertices, 1.0), camera, spec)
        self._draw_deep(canvas, shapes, color[None], spec, frame)

    def _draw_deep(
        self,
        canvas: Canvas,
        shapes: tuple[np.ndarray, np.ndarray],
        colors: np.ndarray,
        spec: InputSpec,
        frame: _Frame,
    ) -> None:
        seen = rasterize(*shapes, frame.box, len(colors) > 1)
        if seen is not None:
            canvas.draw_deep(seen, colors, spec.opacity)

    def _draw_depth_map(self, canvas: Canvas, layer: Layer, frame: _Frame, camera: Camera) -> None:
        spec = layer.spec
        depth = layer.data.reshape(layer.data.shape[:2])
        rows, columns = depth.shape
        z = depth / np.float32(255) if depth.dtype == np.uint8 else depth
        vertices = np.empty((rows, columns, 3))
        vertices[..., 0] = np.arange(columns) / columns - 0.5
        vertices[..., 1] = 0.5 - np.arange(rows)[:, None] / rows
        vertices[..., 2] = z
        flat = _coordinates(vertices)
        number = np.arange(rows * columns).reshape(rows, columns)
        mode = spec.depth_map_render_mode
        if mode is DepthMapRenderMode.POINTS:
            first = number.reshape(-1)
            shapes: tuple[np.ndarray, np.ndarray] = _point_quads(frame, flat, camera, spec)
        elif mode is DepthMapRenderMode.LINES:
            first = np.concatenate([number[:, :-1].reshape(-1), number[:-1].reshape(-1)])
            last = np.concatenate([number[:, 1:].reshape(-1), number[1:].reshape(-1)])
            shapes = _line_quads(frame, flat[first], flat[last], camera, spec)
        else:
            a, b = number[:-1, :-1].reshape(-1), number[:-1, 1:].reshape(-1)
            c, d = number[1:, :-1].reshape(-1), number[1:, 1:].reshape(-1)
            corners = np.concatenate([np.stack([a, b, c], axis=1), np.stack([b, d, c], axis=1)])
            first, shapes = corners[:, 0], _triangles(frame, flat[corners], camera)
        colors = self._color(spec)[None]
        if layer.colors is not None:
            colors = layer.colors.reshape(-1, 4)[first].astype(np.float32) / 255
        self._draw_deep(canvas, shapes, colors, spec, frame)


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


def layers_of(specs: Sequence[InputSpec], arrays: Mapping[str, Any]) -> list[Layer]:
    """Return the layers of specifications, with the colours of a depth map beside it."""
    colors = next(
        (arrays[spec.tensor_name] for spec in specs if spec.type is InputType.DEPTH_MAP_COLOR), None
    )
    return [
        Layer(spec, arrays[spec.tensor_name], colors if spec.type is InputType.DEPTH_MAP else None)
        for spec in specs
        if spec.type is not InputType.DEPTH_MAP_COLOR
    ]


class _Frame:
    """A view in pixels, and the way of coordinates to it."""

    def __init__(self, width: int, height: int, view: View) -> None:
        self.x, self.y = view.offset_x * width, view.offset_y * height
        self.width, self.height = view.width * width, view.height * height
        self.is_flipped = view.height < 0
        upper, lower = sorted((self.y, self.y + self.height))
        self.left, self.top = round(self.x), round(upper)
        self.columns = max(1, round(self.x + self.width) - self.left)
        self.rows = max(1, round(lower) - self.top)
        self.box = Box(
            max(0, self.left),
            max(0, self.top),
            min(width, self.left + self.columns),
            min(height, self.top + self.rows),
        )
        self.matrix = None if view.matrix is None else np.array(view.matrix).reshape(4, 4)

    def transform(self, vertices: np.ndarray, camera: Camera | None) -> np.ndarray:
        """Return homogeneous coordinates, with x and y from -1 to 1 and z from 0 to 1 where they are visible."""
        whole = np.ones((len(vertices), 4))
        whole[:, : vertices.shape[1]] = vertices
        if vertices.shape[1] == 2:
            whole[:, 2] = 0
        matrix = self.matrix
        if matrix is None and camera is not None:
            matrix = camera.projection(abs(self.width / self.height))
        if matrix is not None:
            moved: np.ndarray = whole @ matrix.T
            return moved
        whole[:, :2] = whole[:, :2] * 2 - 1
        return whole

    def to_pixels(self, clip: np.ndarray) -> np.ndarray:
        """Return homogeneous coordinates in pixels, with their depths."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            places: np.ndarray = clip[..., :3] / clip[..., 3:]
            places[..., :2] = (places[..., :2] + 1) / 2 * [self.width, self.height] + [self.x, self.y]
        return places

    def project(self, vertices: np.ndarray, camera: Camera | None) -> np.ndarray:
        """Return coordinates in pixels, with their depths; what is behind the camera is not a number."""
        clip = self.transform(vertices, camera)
        clip[clip[:, 3] <= 1e-9] = np.nan
        return self.to_pixels(clip)

    def planes(self, clip: np.ndarray, camera: Camera | None) -> list[np.ndarray]:
        """Return the distances of homogeneous coordinates to the planes that what is seen lies between."""
        if camera is None and self.matrix is None:
            return []
        # Beyond the plane in front of the camera there is no picture of a point.
        planes = [clip[..., 3] - 1e-9, clip[..., 2]]
        return planes if camera is None else [*planes, clip[..., 3] - clip[..., 2]]


def _coordinates(data: np.ndarray) -> np.ndarray:
    """Return coordinates in double precision; those that are infinite, or too large to compute with, are NaN."""
    coordinates = data.reshape(-1, data.shape[-1]).astype(np.float64)
    coordinates[~(np.abs(coordinates) < 1e100)] = np.nan
    return coordinates


def _segments(kind: InputType, vertices: np.ndarray, aspect: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of the lines that a layer consists of."""
    if kind in (InputType.LINES, InputType.LINES_3D):
        return vertices[0::2], vertices[1::2]
    if kind in (InputType.LINE_STRIP, InputType.LINE_STRIP_3D):
        return vertices[:-1], vertices[1:]
    if kind is InputType.RECTANGLES:
        (x0, y0), (x1, y1) = vertices[0::2].T, vertices[1::2].T
        corners = np.stack([np.stack(pair, axis=1) for pair in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))])
        return corners.reshape(-1, 2), np.roll(corners, -1, axis=0).reshape(-1, 2)
    center = vertices[:, :2]
    sizes = [
        vertices[:, place] if vertices.shape[1] > place else np.full(len(vertices), _DEFAULT_SIZE)
        for place in (2, 3)
    ]
    if kind is InputType.CROSSES:
        # The size is the width; the height follows, so that crosses are as high as wide on the screen.
        half_x, half_y = sizes[0] / 2, sizes[0] * aspect / 2
        zero = np.zeros_like(half_x)
        across, up = np.stack([half_x, zero], axis=1), np.stack([zero, half_y], axis=1)
        return np.concatenate([center - across, center - up]), np.concatenate([center + across, center + up])
    angles = np.linspace(0, 2 * np.pi, _OVAL_SEGMENTS + 1)
    radii = np.stack(sizes, axis=1) / 2
    around = center[None] + np.stack([np.cos(angles), np.sin(angles)], axis=1)[:, None] * radii[None]
    return around[:-1].reshape(-1, 2), around[1:].reshape(-1, 2)


def _point_quads(frame: _Frame, vertices: np.ndarray, camera: Camera, spec: InputSpec) -> Quads:
    places = frame.project(vertices, camera)
    return point_quads(places[:, :2], places[:, 2], spec.point_size)


def _lines(
    frame: _Frame, start: np.ndarray, end: np.ndarray, camera: Camera | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of lines in pixels, with their depths; those that are not seen are not numbers."""
    p, q = frame.transform(start, camera), frame.transform(end, camera)
    for plane in range(len(frame.planes(p, camera))):
        before, after = frame.planes(p, camera)[plane], frame.planes(q, camera)[plane]
        with np.errstate(divide="ignore", invalid="ignore"):
            on_plane = p + (q - p) * (before / (before - after))[:, None]
        p, q = (
            np.where(((before < 0) & (after >= 0))[:, None], on_plane, p),
            np.where(((after < 0) & (before >= 0))[:, None], on_plane, q),
        )
        p[(before < 0) & (after < 0)] = np.nan
    return frame.to_pixels(p), frame.to_pixels(q)


def _line_quads(frame: _Frame, start: np.ndarray, end: np.ndarray, camera: Camera, spec: InputSpec) -> Quads:
    return line_quads(*_lines(frame, start, end, camera), spec.line_width, frame.box)


def _triangles(frame: _Frame, corners: np.ndarray, camera: Camera | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the parts of triangles that are seen, in pixels with their depths, and which they are of."""
    clip = frame.transform(corners.reshape(-1, corners.shape[2]), camera).reshape(-1, 3, 4)
    number = np.flatnonzero(np.isfinite(clip).all(axis=(1, 2)))
    clip = clip[number]
    for plane in range(len(frame.planes(clip, camera))):
        clip, number = cut(clip, number, frame.planes(clip, camera)[plane])
    return frame.to_pixels(clip), number


def _nearest(plane: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Return a picture at another size, each pixel that of the nearest element."""
    if plane.shape == (rows, columns):
        return plane
    y = ((np.arange(rows) + 0.5) * plane.shape[0] / rows).astype(np.intp)
    x = ((np.arange(columns) + 0.5) * plane.shape[1] / columns).astype(np.intp)
    scaled: np.ndarray = plane[y[:, None], x[None, :]]
    return scaled


def _resized(image: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Return an image at another size: where it shrinks the mean of an area, else linearly between its pixels."""
    cv2 = opencv()
    is_gray = image.ndim == 3 and image.strides[-1] == 0  # one channel, shown as grey
    scaled = np.ascontiguousarray(image[..., 0] if is_gray else image)
    smaller = min(columns, image.shape[1]), min(rows, image.shape[0])
    for size, how in ((smaller, cv2.INTER_AREA), ((columns, rows), cv2.INTER_LINEAR)):
        if scaled.shape[1::-1] != size:
            scaled = cv2.resize(scaled, size, interpolation=how)
    return np.broadcast_to(scaled[..., None], (rows, columns, 3)) if is_gray else scaled


def _put_warped(
    canvas: Canvas,
    rgb: np.ndarray,
    alpha: np.ndarray | None,
    opacity: float,
    frame: _Frame,
    place: tuple[float, float, float, float],
) -> None:
    """Draw an image with its corners at a place of a view: left, top, right and bottom.

    It is left out if it is not visible, or partly behind the camera.
    """
    left, top, right, bottom = place
    around = np.array([[left, top, 0], [right, top, 0], [right, bottom, 0], [left, bottom, 0]])
    corners, box = frame.project(around, None)[:, :2], frame.box
    if not np.isfinite(corners).all():
        return
    begin = np.maximum(np.floor(corners.min(axis=0)), [box.left, box.top])
    end = np.minimum(np.ceil(corners.max(axis=0)), [box.right, box.bottom])
    if (end <= begin).any():
        return
    # Only now: a place outside of the picture may be too large for an integer.
    low, high = begin.astype(int), end.astype(int)
    cv2 = opencv()
    rows, columns = (min(extent, _LARGEST) for extent in rgb.shape[:2])
    # Places are the centres of pixels, of which the first is from 0 to 1.
    around = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]])
    source, target = (np.float32(places - 0.5) for places in (around, corners - low))
    matrix = cv2.getPerspectiveTransform(source, target)
    if abs(np.linalg.det(matrix)) < 1e-12:  # seen from the side, it has no area
        return
    size = tuple((high - low).tolist())
    whole = np.full((rows, columns), 255, np.uint8)
    mask = cv2.warpPerspective(whole, matrix, size, flags=cv2.INTER_NEAREST)

    def moved(image: np.ndarray) -> Any:
        scaled = np.ascontiguousarray(_resized(image, columns, rows))
        return cv2.warpPerspective(scaled, matrix, size, borderMode=cv2.BORDER_REPLICATE)

    if alpha is not None:
        mask = cv2.bitwise_and(moved(alpha), mask)
    canvas.put(moved(rgb[..., :3]), mask, opacity, int(low[0]), int(low[1]))
