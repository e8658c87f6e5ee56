"""Outlets: what shows pictures or writes them to files; and which ones a viewer has.

``HEADRACE_VIEW``, or else the parameter `outlets`, names one or several, with commas between them. The command line
of a program is its own, and is not looked at: ``headrace run --view`` sets ``HEADRACE_VIEW``.

=================  =========================================================================
``auto``           the page where there is a display or a notebook, otherwise nothing; the default
``page`` or ``1``  the page in the browser
``none`` or ``0``  nothing
``file.png``       the newest picture
``file.mp4``       a video of the pictures that were drawn
``rerun``          Rerun's window
``rerun-web``      Rerun in a browser
``file.rrd``       a recording for Rerun
=================  =========================================================================

``HEADRACE_VIEW_HOST``, ``HEADRACE_VIEW_PORT`` and ``HEADRACE_VIEW_TOKEN`` set where the page is served and the
token of its address.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.lazy import import_or_explain
from headrace.video import VideoWriter
from headrace.viewer.display import Outlet, Picture
from headrace.viewer.input_spec import DepthMapRenderMode, InputSpec, InputType
from headrace.viewer.layers import GEOMETRY, THREE_D
from headrace.viewer.pictures import write_png
from headrace.viewer.renderer import coordinates_of, shapes_of

_PAGE = ("page", "1", "on", "yes", "true")
_NOTHING = ("none", "0", "off", "no", "false")
_FILES = (".png", ".mp4", ".rrd")


def has_display(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Return whether somebody is likely to sit in front of this machine, or of a notebook that runs on it."""
    environment = os.environ if environment is None else environment
    if environment.get("JPY_PARENT_PID"):  # set by the kernel of a notebook
        return True
    if platform in ("darwin", "win32"):
        return True
    return bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def chosen_outlets(
    outlets: str, environment: Mapping[str, str], is_headless: bool, where: str = "a viewer"
) -> tuple[list[str], bool]:
    """Return the outlets (``"page"``, ``"rerun"``, ``"rerun-web"`` or a file), and whether they were named.

    Parameters
    ----------
    outlets
        The outlets that the program names.
    environment
        The environment.
    is_headless
        Whether the program wants no window; what is named is shown all the same.
    where
        The viewer, for errors.
    """
    given, source = environment.get("HEADRACE_VIEW", "").strip(), "HEADRACE_VIEW"
    if not given:
        given, source = outlets.strip(), f"{where}: outlets"
    names: list[str] = []
    for part in filter(None, (part.strip() for part in (given or "auto").split(","))):
        low = part.lower()
        if low in _PAGE:
            names.append("page")
        elif low in ("rerun", "rerun-web") or low.endswith(_FILES):
            names.append(part if low.endswith(_FILES) else low)
        elif low == "auto":
            if has_display(environment) and not is_headless:
                names.append("page")
        elif low not in _NOTHING:
            raise ValueError(
                f"{source}={given!r}: {part!r} is no outlet of a viewer; it must be page, auto, none, rerun, "
                "rerun-web, or a file that ends in .png, .mp4 or .rrd"
            )
    return list(dict.fromkeys(names)), bool(given)


class PngOutlet(Outlet):
    """Keeps the newest picture in a PNG file, written when none has come for a while and at the end."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __str__(self) -> str:
        return repr(str(self._path))

    def show(self, picture: Picture, is_still: bool) -> None:
        """Write a picture that will be looked at."""
        if is_still:
            write_png(self._path, picture.pixels)


class VideoOutlet(Outlet):
    """Writes every picture that is drawn to an MP4 file, each at the time of its frame by the run's clock."""

    def __init__(self, path: str, frame_rate: float) -> None:
        self._writer = VideoWriter(path, frame_rate, preset="veryfast")
        self._last = -1

    def __str__(self) -> str:
        return repr(str(self._writer.path))

    def show(self, picture: Picture, is_still: bool) -> None:
        """Write a picture, once."""
        if picture.number != self._last:
            self._last = picture.number
            self._writer.write(picture.pixels, picture.scene.time)

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


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
