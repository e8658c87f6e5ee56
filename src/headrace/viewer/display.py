"""Display: the newest of what a pipeline hands over, drawn on a thread of its own.

`hand_over` stores a reference and returns; it never waits, draws or copies. The thread takes what is newest when it
is free and when an outlet wants a picture. What was not taken by then is dropped and counted. The thread shares the
GIL with the pipeline, and spends its time in calls of NumPy and OpenCV that release it; ``benchmarks/viewer.py``
measures what that costs. Decided against: a process of its own, which would share no GIL, but would need a copy of
every frame to shared memory, and a second life cycle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from headrace import waits
from headrace.viewer.input_spec import InputSpec
from headrace.viewer.renderer import Renderer

# A frame that nobody is looking at is taken this often, in seconds, so that there is one for the first who looks.
_UNWATCHED_INTERVAL = 0.5
# Without a new frame for as long, in seconds, what is shown is shown again as exactly as it can be.
_STILL_AFTER = 0.25


class OutletError(RuntimeError):
    """An outlet cannot show or write pictures."""


@dataclass(slots=True)
class Scene:
    """A scene to draw: checked specifications, and arrays on the host.

    Attributes
    ----------
    pixels
        The picture, where it has been drawn already.
    time
        When the frame was received, in seconds of the run's clock.
    """

    specs: Sequence[InputSpec]
    arrays: Mapping[str, Any]
    pixels: np.ndarray | None = None
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a scene; `number` counts the frames that the viewer was given so far."""

    number: int
    pixels: np.ndarray
    scene: Scene


class Outlet:
    """The base of what shows pictures."""

    def wants_picture(self) -> bool:
        """Return whether a picture would be shown now."""
        return True

    def show(self, picture: Picture, is_still: bool) -> None:
        """Show a picture; with `is_still` no newer one has come for a while."""

    def close(self) -> None:
        """Show nothing more, and let go of everything."""


class Display:
    """Draws the newest scene for its outlets.

    Parameters
    ----------
    renderer
        Draws scenes.
    outlets
        The outlets that show the pictures. The display closes them.
    frame_rate
        The most pictures a second; 0 means no limit.
    name
        The name of the viewer, for threads and the log.
    """

    def __init__(self, renderer: Renderer, outlets: Sequence[Outlet], frame_rate: float, name: str) -> None:
        self._renderer = renderer
        self._outlets = list(outlets)
        self._period = 1 / frame_rate if frame_rate else 0.0
        self._name = name
        self._changed = threading.Condition()
        self._newest: Scene | None = None
        self._is_closing = self._is_outdated = False
        self._taken_at = -1e9
        self._pixels: np.ndarray | None = None  # the memory of pictures
        self.received = 0
        """The number of frames handed over."""
        self.shown = 0
        """The number of frames drawn."""
        self.dropped = 0
        """The number of frames that were not drawn because a newer one came, or nobody looked."""
        self.error: Exception | None = None
        """The first error of drawing or showing."""
        self._thread = threading.Thread(target=self._work, name=f"headrace-viewer {name}", daemon=True)
        self._thread.start()

    def wants_frame(self) -> bool:
        """Return whether a frame that has to be copied first is worth the copy now."""
        if self._newest is not None:
            return False
        now = monotonic()
        if now - self._taken_at < self._period * 0.5:
            return False
        if any(outlet.wants_picture() for outlet in self._outlets):
            return True
        return now - self._taken_at > _UNWATCHED_INTERVAL

    def skip(self) -> None:
        """Count a frame that was not handed over because it was not wanted."""
        with self._changed:
            self.received += 1
            self.dropped += 1

    def hand_over(self, scene: Scene) -> None:
        """Replace the newest scene; returns at once."""
        with self._changed:
            self.dropped += self._newest is not None
            self._newest = scene
            self.received += 1
            self._changed.notify()

    def wake(self) -> None:
        """Look again whether a picture is wanted; called when somebody begins to look."""
        with self._changed:
            self._changed.notify()

    def show_again(self) -> None:
        """Show the last picture again, if there is one; called when an outlet would show it otherwise."""
        with self._changed:
            self._is_outdated = True
            self._changed.notify()

    def close(self) -> None:
        """Draw what is newest, close the outlets and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            waits.join(self._thread)

    # The thread.

    def _work(self) -> None:
        last: Picture | None = None
        is_still = False
        try:
            while True:
                scene, is_closing = self._wait(last is not None and not is_still)
                if scene is not None:
                    last, is_still = self._draw(scene), is_closing
                    self._show(last, is_closing)
                elif last is not None and not (is_still and is_closing):
                    is_still = True
                    self._show(last, True)
                if is_closing:
                    return
        except Exception as error:
            self.error = error
            logging.getLogger("headrace.viewer").exception("viewer %r stopped drawing", self._name)
        finally:
            for outlet in self._outlets:
                try:
                    outlet.close()
                except Exception as error:
                    self.error = self.error or self._failed(outlet, error)
                    logging.getLogger("headrace.viewer").exception(
                        "viewer %r could not close an outlet", self._name
                    )
            with self._changed:
                self._newest = None

    def _failed(self, outlet: Outlet, error: Exception) -> OutletError:
        return OutletError(f"operator {self._name!r}: the outlet {outlet} failed: {error}")

    def _wait(self, may_be_still: bool) -> tuple[Scene | None, bool]:
        """Wait until there is a scene to draw, until nothing has come for a while, or for the end."""
        began = monotonic()
        with self._changed:
            while True:
                now = monotonic()
                if self._is_closing:
                    scene, self._newest = self._newest, None
                    return scene, True
                if self._is_outdated:
                    self._is_outdated = False
                    return None, False
                timeout = None
                if self._newest is not None:
                    wanted = any(outlet.wants_picture() for outlet in self._outlets)
                    due = self._taken_at + self._period
                    if wanted and now >= due - 1e-4:
                        # A steady rhythm, not one that each delay shifts: the next is due a period after this was.
                        self._taken_at = max(due, now - self._period)
                        scene, self._newest = self._newest, None
                        return scene, False
                    timeout = due - now if wanted else 0.1
                if may_be_still:
                    left = began + _STILL_AFTER - now
                    if left <= 0 and self._newest is None:
                        return None, False
                    timeout = left if timeout is None else min(timeout, left)
                waits.wait(self._changed, None if timeout is None else max(timeout, 1e-3))

    def _draw(self, scene: Scene) -> Picture:
        pixels = scene.pixels
        if pixels is None:
            self._pixels = pixels = self._renderer.draw(scene.specs, scene.arrays, self._pixels)
        self.shown += 1
        return Picture(self.received, pixels, scene)

    def _show(self, picture: Picture, is_still: bool) -> None:
        for outlet in self._outlets:
            if is_still or outlet.wants_picture():
                try:
                    outlet.show(picture, is_still)
                except Exception as error:
                    raise self._failed(outlet, error) from error
