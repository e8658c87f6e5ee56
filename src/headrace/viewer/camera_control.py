"""CameraControl: a camera that the mouse moves.

The left button turns it around what it looks at, with Ctrl (or the middle button) it moves sideways, with Shift (or
the right button, or the wheel) nearer and farther.
"""

from __future__ import annotations

import threading
from math import pi

from headrace.viewer.camera import Camera
from headrace.viewer.events import ButtonEvent, CursorEvent, Event, ScrollEvent
from headrace.viewer.keys import KeyAndButtonAction, MouseButton


class CameraControl:
    """The camera of a viewer; used by the pipeline and by the page's thread.

    Parameters
    ----------
    camera
        The camera at first.
    width, height
        The size of the picture, in pixels.
    """

    def __init__(self, camera: Camera, width: int, height: int) -> None:
        self._lock = threading.Lock()
        self._camera = camera
        self._width, self._height = width, height
        self._button: MouseButton | None = None
        self._at: tuple[float, float] | None = None

    @property
    def camera(self) -> Camera:
        """The camera as it is now."""
        return self._camera

    def set(self, camera: Camera) -> None:
        """Replace the camera."""
        with self._lock:
            self._camera = camera

    def handle(self, event: Event) -> None:
        """Move the camera as an event says."""
        with self._lock:
            match event:
                case ScrollEvent(_, y):
                    self._camera = self._camera.dolly(0.9 ** max(-20.0, min(20.0, y)))
                case ButtonEvent(button, KeyAndButtonAction.PRESS, _):
                    self._button = button
                case ButtonEvent():
                    self._button = None
                case CursorEvent():
                    self._drag(event)

    def _drag(self, event: CursorEvent) -> None:
        before, self._at = self._at, (event.x, event.y)
        if before is None or self._button is None:
            return
        right, down = (event.x - before[0]) / self._width, (event.y - before[1]) / self._height
        modifiers = event.modifiers
        if self._button is MouseButton.MIDDLE or (self._button is MouseButton.LEFT and modifiers.control):
            self._camera = self._camera.pan(right * self._width / self._height, down)
        elif self._button is MouseButton.RIGHT or modifiers.shift:
            self._camera = self._camera.dolly(2.0**down)
        else:
            self._camera = self._camera.orbit(right * 2 * pi, down * pi)
