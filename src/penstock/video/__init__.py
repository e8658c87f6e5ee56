"""Video: recordings, video files, cameras and simulated scenes, without operators.

Each name is imported when it is first used, and PyAV when a video file is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.video.bayer_sensor import BayerSensor, Truth
    from penstock.video.clips import Clip, ClipFrame, open_clip, play
    from penstock.video.entities import EntityReader, EntityWriter
    from penstock.video.entity_format import Entity
    from penstock.video.errors import CameraError, VideoFileError
    from penstock.video.files import VideoFrame, VideoReader, VideoWriter, write_video
    from penstock.video.read_ahead import ReadAhead
    from penstock.video.scene import Scene, SceneObject

__all__ = [
    "BayerSensor",
    "CameraError",
    "Clip",
    "ClipFrame",
    "Entity",
    "EntityReader",
    "EntityWriter",
    "ReadAhead",
    "Scene",
    "SceneObject",
    "Truth",
    "VideoFileError",
    "VideoFrame",
    "VideoReader",
    "VideoWriter",
    "open_clip",
    "play",
    "write_video",
]

_MODULES = {
    "BayerSensor": "bayer_sensor",
    "CameraError": "errors",
    "Clip": "clips",
    "ClipFrame": "clips",
    "Entity": "entity_format",
    "EntityReader": "entities",
    "EntityWriter": "entities",
    "ReadAhead": "read_ahead",
    "Scene": "scene",
    "SceneObject": "scene",
    "Truth": "bayer_sensor",
    "VideoFileError": "errors",
    "VideoFrame": "files",
    "VideoReader": "files",
    "VideoWriter": "files",
    "open_clip": "clips",
    "play": "clips",
    "write_video": "files",
}

if not TYPE_CHECKING:  # or a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value
