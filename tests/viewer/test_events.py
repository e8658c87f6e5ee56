"""Events: what a page may say, and that nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace._web.messages import MalformedMessage, read_message
from headrace.viewer import Key, KeyAndButtonAction, KeyModifiers, MouseButton
from headrace.viewer.callbacks import _CODES, CALLBACKS, calls_of, key_of


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        (
            {"type": "key", "code": "KeyZ", "action": "repeat", "modifiers": 5},
            {"key_callback": (Key.Z, KeyAndButtonAction.REPEAT, KeyModifiers(shift=True, alt=True))},
        ),
        ({"type": "key", "code": "Fancy", "action": "press", "modifiers": 0}, {}),
        ({"type": "char", "code_point": 0x1F600}, {"unicode_char_callback": (0x1F600,)}),
        (
            {"type": "button", "button": 2, "action": "release", "modifiers": 26},
            {
                "mouse_button_callback": (
                    MouseButton.RIGHT,
                    KeyAndButtonAction.RELEASE,
                    KeyModifiers(control=True, caps_lock=True, num_lock=True),
                )
            },
        ),
        ({"type": "scroll", "x": 0, "y": -1.5}, {"scroll_callback": (0.0, -1.5)}),
        ({"type": "cursor", "x": 3.5, "y": 4, "modifiers": 0}, {"cursor_pos_callback": (3.5, 4.0)}),
        (
            {"type": "resize", "width": 3, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8},
            {"framebuffer_size_callback": (6, 8), "window_size_callback": (3, 4)},
        ),
        ({"type": "close"}, {"window_close_callback": ()}),
    ],
)
def test_an_event_is_read(fields: dict[str, Any], calls: Any) -> None:
    found = calls_of(read_message(json.dumps(fields)))
    assert found == calls
    assert set(found) <= set(CALLBACKS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        "3",
        "[" * 900,
        "{}",
        '{"type": "run"}',
        '{"type": ["close"]}',
        '{"type": "key"}',
        '{"type": "key", "code": 3, "action": "press", "modifiers": 0}',
        '{"type": "key", "code": "KeyA", "action": "push", "modifiers": 0}',
        '{"type": "key", "code": "KeyA", "action": ["press"], "modifiers": 0}',
        '{"type": "key", "code": "KeyA", "action": "press", "modifiers": 99}',
        '{"type": "key", "code": "KeyA", "action": "press", "modifiers": true}',
        '{"type": "char", "code_point": 1114112}',
        '{"type": "char", "code_point": 1.5}',
        '{"type": "button", "button": 3, "action": "press", "modifiers": 0}',
        '{"type": "button", "button": 0, "action": "repeat", "modifiers": 0}',
        '{"type": "scroll", "x": NaN, "y": 0}',
        '{"type": "scroll", "x": 1e999, "y": 0}',
        '{"type": "scroll", "x": "1", "y": 0}',
        '{"type": "cursor", "x": 1}',
        '{"type": "resize", "width": -1, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        calls_of(read_message(text))


def test_every_code_of_a_browser_has_a_key() -> None:
    assert all(key_of(code) in Key for code in _CODES)
    assert key_of("KeyZ") is Key.Z
    assert ord("Z") == Key.Z
    assert key_of("Digit7") is Key.SEVEN
    assert key_of("Numpad5") is Key.KP_5
    assert (Key.ESCAPE, Key.F25, Key.MENU) == (256, 314, 348)
