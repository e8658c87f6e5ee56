"""Parker: one permit ends one wait, in whichever order they come."""

from __future__ import annotations

import pytest

from headrace._runtime.scheduling.ready_queue import Parker, ReadyQueue


@pytest.mark.parametrize("handles_signals", [False, True])
def test_a_permit_that_came_first_ends_one_wait_and_no_other(handles_signals: bool) -> None:
    parker = Parker(ReadyQueue(), handles_signals)
    parker.unpark()
    assert parker.park(None)
    assert not parker.park(0.0)


def test_a_permit_that_a_clock_takes_is_taken() -> None:
    """Otherwise it would end the next wait as well, and the next one that is given would be one too many."""
    parker = Parker(ReadyQueue())
    assert not parker.take()
    parker.unpark()
    assert parker.take()
    assert not parker.take()
    assert not parker.park(0.0)
    parker.unpark()  # as it may be, once
