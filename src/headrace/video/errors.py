"""The errors of video files and cameras."""

from __future__ import annotations


class VideoFileError(RuntimeError):
    """A video file is missing, truncated, or not of the expected kind."""


class CameraError(RuntimeError):
    """There is no such camera, it does not offer what was asked for, or it has gone."""
