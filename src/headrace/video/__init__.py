"""Video: recordings, video files, cameras and simulated scenes, without operators.

Each name is imported when it is first used, and PyAV when a video file is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.video.bayer_sensor import BayerSensor, Truth
    from headrace.video.clips import Clip, ClipFrame, open_clip, play
    from headrace.video.entities import EntityReader, EntityWriter
    from headrace.video.entity_format import Entity
    from headrace.video.errors import CameraError, VideoFileError
    from headrace.video.files import VideoFrame, VideoReader, VideoWriter, write_video
    from headrace.video.jpeg import JpegDecoder
    from headrace.video.read_ahead import ReadAhead
    from headrace.video.scene import Scene, SceneObject
    from headrace.video.v4l2_camera import CameraFormat, CapturedFrame, SizeRange, V4L2Camera
    from headrace.video.v4l2_device import VideoDevice, video_devices

__all__ = [
    "BayerSensor",
    "CameraError",
    "CameraFormat",
    "CapturedFrame",
    "Clip",
    "ClipFrame",
    "Entity",
    "EntityReader",
    "EntityWriter",
    "JpegDecoder",
    "ReadAhead",
    "Scene",
    "SceneObject",
    "SizeRange",
    "Truth",
    "V4L2Camera",
    "VideoDevice",
    "VideoFileError",
    "VideoFrame",
    "VideoReader",
    "VideoWriter",
    "open_clip",
    "play",
    "video_devices",
    "write_video",
]

_MODULES = {
    "BayerSensor": "bayer_sensor",
    "CameraError": "errors",
    "CameraFormat": "v4l2_camera",
    "CapturedFrame": "v4l2_camera",
    "Clip": "clips",
    "ClipFrame": "clips",
    "Entity": "entity_format",
    "EntityReader": "entities",
    "EntityWriter": "entities",
    "JpegDecoder": "jpeg",
    "ReadAhead": "read_ahead",
    "Scene": "scene",
    "SceneObject": "scene",
    "SizeRange": "v4l2_camera",
    "Truth": "bayer_sensor",
    "V4L2Camera": "v4l2_camera",
    "VideoDevice": "v4l2_device",
    "VideoFileError": "errors",
    "VideoFrame": "files",
    "VideoReader": "files",
    "VideoWriter": "files",
    "open_clip": "clips",
    "play": "clips",
    "video_devices": "v4l2_device",
    "write_video": "files",
}

if not TYPE_CHECKING:  # or a type checker would accept every name
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
