"""The catalogue of operators. Each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "CameraSimOp": "camera_sim",
    "V4L2VideoCaptureOp": "v4l2_video_capture",
    "VideoStreamRecorderOp": "video_stream_recorder",
    "VideoStreamReplayerOp": "video_stream_replayer",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import an operator when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value
