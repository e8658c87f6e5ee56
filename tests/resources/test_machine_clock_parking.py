"""A worker that waits in a machine's time learns of its permit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace._runtime.scheduling.ready_queue import Parker
from headrace.resources.clocks import MachineClock


def test_a_permit_that_comes_as_the_time_is_over_is_not_lost() -> None:
    parker = Parker(SimpleNamespace())  # type: ignore[arg-type]

    def wait(is_ready: Any, seconds: Any, outside: bool, patience: Any) -> bool:
        result: bool = is_ready()  # the time is over
        parker.unpark()
        is_ready()  # another look, as the wait ends
        return result

    machine: Any = SimpleNamespace(wait=wait)
    assert MachineClock(None, machine).park(parker, 0.1)
