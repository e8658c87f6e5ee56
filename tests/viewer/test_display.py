"""The display: newest wins, what is not shown is counted, and nothing is left running."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from headrace.viewer import Renderer
from headrace.viewer.display import Display, Picture, Scene
from headrace.viewer.layers import guess


class Recorder:
    """An outlet that keeps what it shows, and shows only while it may."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, bool]] = []
        self.may_show = threading.Event()
        self.has_shown = threading.Event()
        self.has_shown_still = threading.Event()
        self.is_closed = False

    def wants_picture(self) -> bool:
        return self.may_show.is_set()

    def show(self, picture: Picture, is_still: bool) -> None:
        self.shown.append((int(picture.pixels[0, 0, 0]), is_still))
        self.has_shown.set()
        if is_still:
            self.has_shown_still.set()

    def close(self) -> None:
        self.is_closed = True


def scene(value: int) -> Scene:
    data = np.full((4, 4), value, np.uint8)
    return Scene(guess({"": data}, False), {"": data})


def display_of(outlet: Any) -> Display:
    return Display(Renderer(4, 4), [outlet], 0, "it")


def test_the_newest_of_what_waits_is_shown_and_the_rest_is_counted() -> None:
    recorder = Recorder()
    display = display_of(recorder)
    for value in range(1, 6):
        display.hand_over(scene(value))
    assert (display.received, display.shown, display.dropped) == (5, 0, 4)
    recorder.may_show.set()
    display.wake()
    recorder.has_shown.wait()
    display.close()
    assert recorder.shown[0] == (5, False)
    assert (display.received, display.shown, display.dropped) == (5, 1, 4)
    assert recorder.is_closed


def test_what_stays_is_shown_once_more_as_a_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.viewer.display._STILL_AFTER", 0.0)
    recorder = Recorder()
    recorder.may_show.set()
    display = display_of(recorder)
    display.hand_over(scene(7))
    recorder.has_shown_still.wait()
    display.close()
    assert recorder.shown == [(7, False), (7, True)]


def test_a_picture_is_shown_again_when_an_outlet_would_show_it_otherwise() -> None:
    recorder = Recorder()
    recorder.may_show.set()
    display = display_of(recorder)
    display.show_again()  # there is none yet
    display.hand_over(scene(7))
    recorder.has_shown_still.wait()
    for _ in range(2):
        recorder.has_shown_still.clear()
        display.show_again()
        recorder.has_shown_still.wait()
    display.close()
    assert recorder.shown == [(7, False), (7, True), (7, True), (7, True)]


def test_the_last_frame_is_shown_at_the_end_though_nobody_waited_for_it() -> None:
    recorder = Recorder()
    display = display_of(recorder)
    display.hand_over(scene(9))
    display.close()
    assert recorder.shown == [(9, True)]


def test_a_frame_that_must_be_copied_is_wanted_only_when_it_would_be_shown() -> None:
    recorder = Recorder()
    display = display_of(recorder)
    assert display.wants_frame()  # the first, for whoever looks first
    display.hand_over(scene(1))
    assert not display.wants_frame()
    display.skip()
    assert (display.received, display.dropped) == (2, 1)
    display.close()


def test_an_error_while_drawing_is_kept_and_everything_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    recorder.may_show.set()
    display = display_of(recorder)
    broken = scene(1)
    broken.arrays = {}
    display.hand_over(broken)
    display._thread.join()
    assert isinstance(display.error, KeyError)
    assert recorder.is_closed
    assert "stopped drawing" in caplog.text
    display.close()


def test_a_display_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    display_of(Recorder()).close()
    assert set(threading.enumerate()) <= before
