"""The viewer without its operator: specifications of layers, the renderer, and where pictures go.

:class:`headrace.operators.HolovizOp` is made of these. :class:`Renderer` is useful by itself: it draws arrays to a
picture, without a pipeline. Everything is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.viewer.camera import Camera, Pose3D
    from headrace.viewer.formats import (
        ChromaLocation,
        ColorSpace,
        DepthMapRenderMode,
        ImageFormat,
        InputType,
        YuvModelConversion,
        YuvRange,
    )
    from headrace.viewer.input_spec import InputSpec, View
    from headrace.viewer.keys import Key, KeyAndButtonAction, KeyModifiers, MouseButton
    from headrace.viewer.layers import LayerError
    from headrace.viewer.pictures import write_png
    from headrace.viewer.renderer import Renderer

__all__ = [
    "Camera",
    "ChromaLocation",
    "ColorSpace",
    "DepthMapRenderMode",
    "ImageFormat",
    "InputSpec",
    "InputType",
    "Key",
    "KeyAndButtonAction",
    "KeyModifiers",
    "LayerError",
    "MouseButton",
    "Pose3D",
    "Renderer",
    "View",
    "YuvModelConversion",
    "YuvRange",
    "write_png",
]

_MODULES = {
    "Camera": "camera",
    "ChromaLocation": "formats",
    "ColorSpace": "formats",
    "DepthMapRenderMode": "formats",
    "ImageFormat": "formats",
    "InputSpec": "input_spec",
    "InputType": "formats",
    "Key": "keys",
    "KeyAndButtonAction": "keys",
    "KeyModifiers": "keys",
    "LayerError": "layers",
    "MouseButton": "keys",
    "Pose3D": "camera",
    "Renderer": "renderer",
    "View": "input_spec",
    "YuvModelConversion": "formats",
    "YuvRange": "formats",
    "write_png": "pictures",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(globals(), _MODULES)
