"""Callbacks of Holoviz: what each event of the page is to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.testing import run_operator
from headrace_holoscan.callbacks import (
    _CODES,
    CALLBACKS,
    Key,
    KeyAndButtonAction,
    KeyModifiers,
    MouseButton,
    calls_of,
    key_of,
)
from headrace_holoscan.holoviz import HolovizOp

RESIZE = {"type": "resize", "width": 3, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8}
KEY = {"type": "key", "code": "KeyZ", "action": "repeat", "modifiers": ("shift", "alt")}
BUTTON = {"type": "button", "button": "right", "action": "release", "modifiers": ("control", "caps_lock")}


def shown(**parameters: Any) -> Any:
    """Return a viewer that has shown a picture."""
    inputs = {"receivers": [[{"": np.zeros((10, 20, 3), np.uint8)}]]}
    return run_operator(HolovizOp, inputs=inputs, headless=True, outlets="none", **parameters).operator


@pytest.mark.parametrize(
    ("event", "calls"),
    [
        (
            KEY,
            {"key_callback": (Key.Z, KeyAndButtonAction.REPEAT, KeyModifiers(shift=True, alt=True))},
        ),
        (KEY | {"code": "Fancy"}, {}),
        ({"type": "char", "text": "\U0001f600"}, {"unicode_char_callback": (0x1F600,)}),
        (
            BUTTON,
            {
                "mouse_button_callback": (
                    MouseButton.RIGHT,
                    KeyAndButtonAction.RELEASE,
                    KeyModifiers(control=True, caps_lock=True),
                )
            },
        ),
        ({"type": "scroll", "x": 0.0, "y": -1.5}, {"scroll_callback": (0.0, -1.5)}),
        ({"type": "cursor", "x": 3.5, "y": 4.0}, {"cursor_pos_callback": (3.5, 4.0)}),
        (RESIZE, {"framebuffer_size_callback": (6, 8), "window_size_callback": (3, 4)}),
        ({"type": "close"}, {"window_close_callback": ()}),
    ],
)
def test_an_event_calls_the_functions_that_it_is_for(event: dict[str, Any], calls: dict[str, Any]) -> None:
    found: dict[str, Any] = {}

    def keep(name: str) -> Any:
        return lambda *arguments: found.update({name: arguments})

    shown(**{name: keep(name) for name in CALLBACKS}).on_event(event)
    assert found == calls == calls_of(event)
    shown().on_event(event)  # without functions it calls none


def test_every_code_of_a_browser_has_a_key() -> None:
    assert all(key_of(code) in Key for code in _CODES)
    assert key_of("KeyZ") is Key.Z
    assert ord("Z") == Key.Z
    assert key_of("Digit7") is Key.SEVEN
    assert key_of("Numpad5") is Key.KP_5
    assert (Key.ESCAPE, Key.F25, Key.MENU) == (256, 314, 348)
