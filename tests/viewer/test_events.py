"""Events: what a page may say, and that nothing else is believed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace._web.messages import MalformedMessage, read_message
from headrace.viewer.events import event_of


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        (
            {"type": "key", "code": "KeyZ", "action": "repeat", "modifiers": 5},
            {"type": "key", "code": "KeyZ", "action": "repeat", "modifiers": ("shift", "alt")},
        ),
        ({"type": "char", "code_point": 0x1F600}, {"type": "char", "text": "\U0001f600"}),
        (
            {"type": "button", "button": 2, "action": "release", "modifiers": 26},
            {
                "type": "button",
                "button": "right",
                "action": "release",
                "modifiers": ("control", "caps_lock", "num_lock"),
            },
        ),
        ({"type": "scroll", "x": 0, "y": -1.5}, {"type": "scroll", "x": 0.0, "y": -1.5}),
        ({"type": "cursor", "x": 3.5, "y": 4, "modifiers": 0}, {"type": "cursor", "x": 3.5, "y": 4.0}),
        (
            {"type": "resize", "width": 3, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8},
            {"type": "resize", "width": 3, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8},
        ),
        ({"type": "close", "more": 1}, {"type": "close"}),
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
        '{"type": "cursor", "x": 1}',
        '{"type": "resize", "width": -1, "height": 4, "framebuffer_width": 6, "framebuffer_height": 8}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(MalformedMessage):
        event_of(read_message(text))
