"""Callbacks: what waits while one of them is called."""

from __future__ import annotations

import threading
from typing import Any

from headrace.viewer.callbacks import Callbacks
from tests.harness import PATIENCE


def test_of_the_places_of_the_cursor_that_wait_the_last_is_kept() -> None:
    called: list[Any] = []
    is_called, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def key(*given: Any) -> None:
        is_called.set()
        assert may_go_on.wait(PATIENCE)

    callbacks = Callbacks(
        {
            "key_callback": key,
            "cursor_pos_callback": lambda x, y: called.append((x, y)),
            "scroll_callback": lambda x, y: called.append("scroll"),
            "unicode_char_callback": lambda code: is_over.set(),
        },
        on_close=lambda call: call(),
        name="it",
    )
    try:
        callbacks.add({"key_callback": ("key", "press", None)})
        assert is_called.wait(PATIENCE)
        for x in (1.0, 2.0, 3.0):
            callbacks.add({"cursor_pos_callback": (x, 0.0)})
        callbacks.add({"scroll_callback": (0.0, 1.0)})
        for x in (4.0, 5.0):
            callbacks.add({"cursor_pos_callback": (x, 0.0)})
        callbacks.add({"unicode_char_callback": (65,)})
        may_go_on.set()
        assert is_over.wait(PATIENCE)
    finally:
        callbacks.close()
    assert called == [(3.0, 0.0), "scroll", (5.0, 0.0)]
    assert callbacks.error is None
