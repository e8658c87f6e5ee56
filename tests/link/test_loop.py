"""The thread that serves links: what others may do to it at any moment."""

from __future__ import annotations

import os
import time
from itertools import pairwise

import pytest

from headrace.link import loop
from tests.harness.threads import wait_until


class _Ticking:
    """A link at which nothing happens, with the times that it is told and whether the process was stopped."""

    def __init__(self) -> None:
        self.file = os.eventfd(0)
        self.ticks: list[tuple[float, bool]] = []
        self.meanwhile = lambda: None

    def fileno(self) -> int:
        return self.file

    def serve(self, readable: bool, writable: bool) -> None:
        raise AssertionError("nothing happens here")

    def tick(self, now: float, was_stopped: bool = False) -> float:
        self.ticks.append((now, was_stopped))
        self.meanwhile()
        return now + 0.5

    def is_told_of_stops(self) -> bool:
        return all(later - before < 600 or stopped for (before, _), (later, stopped) in pairwise(self.ticks))


@pytest.mark.parametrize("moment", ["a pass", "an addition"])
def test_no_link_takes_the_time_in_which_its_process_was_stopped_for_silence(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = [0.0]
    monkeypatch.setattr(loop, "monotonic", lambda: time.monotonic() + stopped[0])

    def stop() -> None:
        stopped[0] += 3600.0

    links, added = [_Ticking(), _Ticking()], _Ticking()
    serving = loop.LinkLoop()
    for link in links:
        serving.add(link)
    wait_until(lambda: all(link.ticks for link in links), "a pass")
    if moment == "a pass":
        links[0].meanwhile = stop
        wait_until(lambda: stopped[0], "the stop")
        links[0].meanwhile = lambda: None
    else:
        stop()
        serving.add(added)
    counts = [len(link.ticks) for link in links]
    wait_until(
        lambda: all(len(link.ticks) > count + 1 for link, count in zip(links, counts, strict=True)), "ticks"
    )
    assert all(link.is_told_of_stops() for link in links)
    for link in (*links, added):
        serving.remove(link)
        os.close(link.file)
