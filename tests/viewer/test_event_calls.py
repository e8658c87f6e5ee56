"""Events: what waits while the function of a program is called."""

from __future__ import annotations

import threading
from typing import Any

from headrace.viewer.events import Event, Events
from tests.harness import PATIENCE


def test_of_the_places_of_the_cursor_that_wait_the_last_is_kept() -> None:
    called: list[Any] = []
    is_called, may_go_on, is_over = threading.Event(), threading.Event(), threading.Event()

    def keep(event: Event) -> None:
        if event["type"] == "key":
            is_called.set()
            assert may_go_on.wait(PATIENCE)
        elif event["type"] == "char":
            is_over.set()
        else:
            called.append((event["type"], event["x"]))

    events = Events(keep, on_close=lambda call: call(), name="it")
    try:
        events.add({"type": "key"})
        assert is_called.wait(PATIENCE)
        for x in (1.0, 2.0, 3.0):
            events.add({"type": "cursor", "x": x})
        events.add({"type": "scroll", "x": 0.0})
        for x in (4.0, 5.0):
            events.add({"type": "cursor", "x": x})
        events.add({"type": "char"})
        may_go_on.set()
        assert is_over.wait(PATIENCE)
    finally:
        events.close()
    assert called == [("cursor", 3.0), ("scroll", 0.0), ("cursor", 5.0)]
    assert events.error is None
