"""RerunOutlet: pictures and layers in Rerun's viewer, for those who have it (the extra ``rerun``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.viewer.display import Picture
from headrace.viewer.formats import InputType
from headrace.viewer.layers import Layer
from headrace.viewer.renderer import layers_of


class RerunOutlet:
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
        self._target = target
        if target == "window":
            self._recording.spawn()
        elif target == "web":
            address = self._recording.serve_grpc()
            self._rr.serve_web_viewer(open_browser=False, connect_to=address)
        else:
            self._recording.save(target)
        self._last = -1

    def wants_picture(self) -> bool:
        """Return True."""
        return True

    def show(self, picture: Picture, is_still: bool) -> None:
        """Log a picture and its layers, once."""
        if picture.number == self._last:
            return
        self._last = picture.number
        self._recording.set_time("frame", sequence=picture.number)
        image = self._rr.Image(np.ascontiguousarray(picture.pixels[..., :3]))
        self._recording.log("picture", image.compress(jpeg_quality=85))
        height, width = picture.pixels.shape[:2]
        for layer in layers_of(picture.scene.specs, picture.scene.arrays):
            entity = self._entity(layer, np.array([width, height], np.float64))
            if entity is not None:
                root = "world" if _is_3d(layer) else "picture/layers"
                self._recording.log(f"{root}/{layer.spec.tensor_name or 'unnamed'}", entity)

    def close(self) -> None:
        """Write what is left, and end the recording."""
        self._recording.flush()
        self._recording.disconnect()

    def _entity(self, layer: Layer, size: np.ndarray) -> Any:
        rr, spec = self._rr, layer.spec
        color = [round(255 * part) for part in spec.color]
        if spec.views or spec.type in (InputType.COLOR, InputType.COLOR_LUT, InputType.DEPTH_MAP):
            return None  # the picture shows them
        data = np.asarray(layer.data)
        data = data.reshape(-1, data.shape[-1])
        flat = data[:, :2] * size
        match spec.type:
            case InputType.POINTS | InputType.CROSSES | InputType.OVALS:
                return rr.Points2D(flat, colors=color, radii=spec.point_size)
            case InputType.TEXT:
                texts = [spec.text[min(place, len(spec.text) - 1)] for place in range(len(data))]
                return rr.Points2D(flat, labels=texts, colors=color)
            case InputType.RECTANGLES:
                low, high = np.minimum(flat[0::2], flat[1::2]), np.maximum(flat[0::2], flat[1::2])
                return rr.Boxes2D(mins=low, sizes=high - low, colors=color)
            case InputType.LINES:
                return rr.LineStrips2D(flat.reshape(-1, 2, 2), colors=color, radii=spec.line_width / 2)
            case InputType.LINE_STRIP:
                return rr.LineStrips2D([flat], colors=color, radii=spec.line_width / 2)
            case InputType.TRIANGLES:
                closed = np.concatenate([flat.reshape(-1, 3, 2), flat.reshape(-1, 3, 2)[:, :1]], axis=1)
                return rr.LineStrips2D(closed, colors=color)
            case InputType.POINTS_3D:
                return rr.Points3D(data, colors=color)
            case InputType.LINES_3D:
                return rr.LineStrips3D(data.reshape(-1, 2, 3), colors=color)
            case InputType.LINE_STRIP_3D:
                return rr.LineStrips3D([data], colors=color)
            case InputType.TRIANGLES_3D:
                return rr.Mesh3D(vertex_positions=data, vertex_colors=[color] * len(data))
        return None


def _is_3d(layer: Layer) -> bool:
    return layer.spec.type.value.endswith("_3d")
