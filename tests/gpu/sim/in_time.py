"""Running something that must not block for good; a test that hangs tells nobody why."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.gpu import sim
from tests.harness import PATIENCE

InTime = Callable[[Callable[[], object]], None]


def run_in_time(function: Callable[[], object]) -> None:
    """Run a function on a thread of its own, and raise what it raises; fail if it blocks for good."""
    outcome: list[BaseException] = []

    def work() -> None:
        sim.Device(0).set_current()
        try:
            function()
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it blocked for good"
    if outcome:
        raise outcome[0]
