"""RerunOutlet: pictures and layers in Rerun's viewer, for those who have it (the extra ``rerun``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.viewer.display import Outlet, Picture
from headrace.viewer.formats import InputType
from headrace.viewer.input_spec import InputSpec
from headrace.viewer.layers import GEOMETRY, THREE_D
from headrace.viewer.renderer import shapes_of


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
        for spec in picture.scene.specs:
            data = np.asarray(picture.scene.arrays[spec.tensor_name])
            entity = self._entity(spec, data, np.array([width, height], np.float64))
            if entity is not None:
                root = "world" if spec.type in THREE_D else "picture/layers"
                self._recording.log(f"{root}/{spec.tensor_name or 'unnamed'}", entity)

    def close(self) -> None:
        """Write what is left, and end the recording."""
        self._recording.flush()
        self._recording.disconnect()

    def _entity(self, spec: InputSpec, data: np.ndarray, size: np.ndarray) -> Any:
        rr = self._rr
        if spec.views or spec.type not in GEOMETRY:
            return None  # the picture shows them
        color = [round(255 * part) for part in spec.color]
        vertices = data.reshape(-1, data.shape[-1])
        if spec.type is InputType.TEXT:
            texts = [spec.text[min(place, len(spec.text) - 1)] for place in range(len(vertices))]
            return rr.Points2D(vertices[:, :2] * size, labels=texts, colors=color)
        shapes = shapes_of(spec.type, vertices, size[0] / size[1])
        if spec.type in THREE_D:
            if shapes.shape[1] == 3:
                return rr.Mesh3D(vertex_positions=vertices, vertex_colors=[color] * len(vertices))
            points, lines, options = rr.Points3D, rr.LineStrips3D, {}
        else:
            shapes, points, lines = shapes * size, rr.Points2D, rr.LineStrips2D
            options = {"radii": spec.point_size if shapes.shape[1] == 1 else spec.line_width / 2}
        if shapes.shape[1] == 1:
            return points(shapes[:, 0], colors=color, **options)
        if shapes.shape[1] == 3:
            shapes = shapes[:, [0, 1, 2, 0]]
        return lines(shapes, colors=color, **options)
