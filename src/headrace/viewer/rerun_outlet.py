"""RerunOutlet: pictures and layers in Rerun's viewer (the extra ``rerun``), which alone shows layers in 3D."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.viewer.display import Outlet, Picture
from headrace.viewer.formats import DepthMapRenderMode, InputType
from headrace.viewer.input_spec import InputSpec
from headrace.viewer.layers import GEOMETRY, THREE_D
from headrace.viewer.renderer import coordinates_of, shapes_of


class RerunOutlet(Outlet):
    """Logs to Rerun: the picture as ``picture``, and layers of shapes as entities ``layers/<name>``.

    Coordinates are logged in pixels of the picture, so that shapes lie where the picture shows them. What is in 3D
    is logged under ``world``, in its own coordinates.

    Parameters
    ----------
    title
        The name of the recording.
    target
        ``"window"`` opens Rerun's viewer, ``"web"`` serves it to a browser, and anything else is the path of an
        ``.rrd`` file.
    """

    def __init__(self, title: str, target: str) -> None:
        self._rr = import_or_explain("rerun", "rerun", "to show pictures in Rerun")
        self._recording = self._rr.RecordingStream(title)
        if target == "window":
            self._recording.spawn()
        elif target == "web":
            address = self._recording.serve_grpc()
            self._rr.serve_web_viewer(open_browser=False, connect_to=address)
        else:
            self._recording.save(target)
        self._last = -1

    def show(self, picture: Picture, is_still: bool) -> None:
        """Log a picture and its layers, once."""
        if picture.number == self._last:
            return
        self._last = picture.number
        self._recording.set_time("frame", sequence=picture.number)
        image = self._rr.Image(np.ascontiguousarray(picture.pixels[..., :3]))
        self._recording.log("picture", image.compress(jpeg_quality=85))
        height, width = picture.pixels.shape[:2]
        specs = picture.scene.specs
        arrays = {name: np.asarray(data) for name, data in picture.scene.arrays.items()}
        colors = [arrays[spec.tensor_name] for spec in specs if spec.type is InputType.DEPTH_MAP_COLOR]
        for spec in specs:
            data = arrays[spec.tensor_name]
            if spec.type is InputType.DEPTH_MAP:
                entity = self._depth_map(spec, data, *colors[:1])
            else:
                entity = self._entity(spec, data, np.array([width, height], np.float64))
            if entity is not None:
                root = "world" if spec.type in THREE_D else "picture/layers"
                self._recording.log(f"{root}/{spec.tensor_name or 'unnamed'}", entity)

    def close(self) -> None:
        """Write what is left, and end the recording."""
        self._recording.flush()
        self._recording.disconnect()

    def _entity(self, spec: InputSpec, data: np.ndarray, size: np.ndarray) -> Any:
        rr, is_deep = self._rr, spec.type in THREE_D
        if spec.type not in GEOMETRY or (spec.views and not is_deep):
            return None  # the picture shows them
        color, vertices = _bytes(spec.color), coordinates_of(data)
        if spec.type is InputType.TEXT:
            texts = [spec.text[min(place, len(spec.text) - 1)] for place in range(len(vertices))]
            return rr.Points2D(vertices[:, :2] * size, labels=texts, colors=color)
        shapes = shapes_of(spec.type, vertices, size[0] / size[1])
        corners = shapes.shape[1]
        if is_deep:
            if corners == 3:
                return rr.Mesh3D(vertex_positions=vertices, vertex_colors=[color] * len(vertices))
            width = spec.point_size if corners == 1 else spec.line_width / 2
            options: dict[str, Any] = {"radii": rr.Radius.ui_points(width)}
            points, lines = rr.Points3D, rr.LineStrips3D
        else:
            shapes, points, lines = shapes * size, rr.Points2D, rr.LineStrips2D
            options = {"radii": spec.point_size if corners == 1 else spec.line_width / 2}
        if corners == 1:
            return points(shapes[:, 0], colors=color, **options)
        return lines(shapes[:, [0, 1, 2, 0]] if corners == 3 else shapes, colors=color, **options)

    def _depth_map(self, spec: InputSpec, data: np.ndarray, color_map: np.ndarray | None = None) -> Any:
        """Return a depth map around the origin, with its first row on top."""
        rr = self._rr
        depth = data.reshape(data.shape[:2])
        rows, columns = data.shape[:2]
        vertices = np.empty((rows, columns, 3), np.float32)
        vertices[..., 0] = np.arange(columns) / columns - 0.5
        vertices[..., 1] = 0.5 - np.arange(rows)[:, None] / rows
        vertices[..., 2] = depth / np.float32(255) if depth.dtype == np.uint8 else depth
        places = vertices.reshape(-1, 3)
        colors = np.tile(np.array(_bytes(spec.color), np.uint8), (rows * columns, 1))
        if color_map is not None:
            colors = color_map.reshape(-1, 4)
        if spec.depth_map_render_mode is DepthMapRenderMode.POINTS:
            return rr.Points3D(places, colors=colors)
        number = np.arange(rows * columns).reshape(rows, columns)
        a, b, c, d = number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]
        if spec.depth_map_render_mode is DepthMapRenderMode.TRIANGLES:
            faces = np.concatenate([np.stack(each, -1).reshape(-1, 3) for each in ((a, c, b), (b, c, d))])
            return rr.Mesh3D(vertex_positions=places, triangle_indices=faces, vertex_colors=colors)
        pairs = ((number[:, :-1], number[:, 1:]), (number[:-1], number[1:]))
        ends = np.concatenate([np.stack(each, -1).reshape(-1, 2) for each in pairs])
        return rr.LineStrips3D(places[ends], colors=colors[ends[:, 0]])


def _bytes(color: Sequence[float]) -> list[int]:
    return [round(255 * part) for part in color]
