from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.gpu import sim


@pytest.fixture
def in_time() -> Callable[[Callable[[], object]], None]:
    """Run something that must not block for good; a test that hangs tells nobody why."""

    def run(function: Callable[[], object]) -> None:
        outcome: list[BaseException] = []

        def work() -> None:
            sim.Device(0).set_current()
            try:
                function()
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), "it blocked for good"
        if outcome:
            raise outcome[0]

    return run
