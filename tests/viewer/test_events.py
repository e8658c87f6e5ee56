"""Events: what a page may say, and that nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace._web.messages import MalformedMessage, read_message
from headrace.viewer import Key, KeyAndButtonAction, KeyModifiers, MouseButton
from headrace.viewer.events import (
    ButtonEvent,
    CharacterEvent,
    CloseEvent,
    CursorEvent,
    KeyEvent,
    ResizeEvent,
    ScrollEvent,
    event_of,
)
from headrace.viewer.keys import _CODES, key_of


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        (
            {"type": "key", "code": "KeyZ", "action": "repeat", "modifiers": 5},
            KeyEvent(Key.Z, KeyAndButtonAction.REPEAT, KeyModifiers(shift=True, alt=True)),
        ),
        ({"type": "key", "code": "Fancy", "action": "press", "modifiers": 0}, None),
        ({"type": "char", "code_point": 0x1F600}, CharacterEvent(0x1F600)),
        (
            {"type": "button", "button": 2, "action": "release", "modifiers": 26},
            ButtonEvent(
                MouseButton.RIGHT,
                KeyAndButtonAction.RELEASE,
                KeyModifiers(control=True, caps_lock=True, num_lock=True),
            ),
        ),
        ({"type": "scroll", "x": 0, "y": -1.5}, ScrollEvent(0.0, -1.5)),
        ({"type": "cursor", "x": 3.5, "y": 4, "modifiers": 0}, CursorEvent(3.5, 4.0, KeyModifiers())),
        (
            {"type": "resize", "width": 3, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8},
            ResizeEvent(3, 4, 6, 8),
        ),
        ({"type": "close"}, CloseEvent()),
    ],
)
def test_an_event_is_read(fields: dict[str, Any], event: Any) -> None:
    assert event_of(read_message(json.dumps(fields))) == event


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
        '{"type": "cursor", "x": 1, "y": 2}',
        '{"type": "resize", "width": -1, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        event_of(read_message(text))


def test_every_code_of_a_browser_has_a_key() -> None:
    assert all(key_of(code) in Key for code in _CODES)
    assert key_of("KeyZ") is Key.Z
    assert ord("Z") == Key.Z
    assert key_of("Digit7") is Key.SEVEN
    assert key_of("Numpad5") is Key.KP_5
    assert (Key.ESCAPE, Key.F25, Key.MENU) == (256, 314, 348)
