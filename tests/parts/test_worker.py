"""What the process of a part tells the driver, whatever the driver says."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.ports import IOSpec
from headrace.link.ends import Terms
from headrace.parts import worker as worker_module
from headrace.parts.control import Assignment, Beat, Stop
from headrace.parts.cut_flow import CutFlow
from headrace.parts.launch import Launch
from headrace.parts.worker import Worker, terms_of


class _Over(Exception):
    pass


class _TalkativeDriver:
    """A channel whose other end always has something to say, each time a tenth of a second later."""

    def __init__(self) -> None:
        self.now = 0.0
        self.beats: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += min(seconds, 0.1)
        return True

    def receive(self) -> list[tuple[Any, list[int]]]:
        if self.now > 10:
            raise _Over
        return [(Stop(), [])]

    def send(self, message: Any) -> bool:
        assert isinstance(message, Beat)
        self.beats.append(self.now)
        return True


def test_a_process_says_that_it_lives_while_the_driver_talks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slider that sets a value ten times a second must not make its part seem frozen."""
    driver: Any = _TalkativeDriver()
    monkeypatch.setattr(worker_module, "time", driver)
    made = Worker(driver, Assignment("edge", Launch("plant.py", "", (), False), (), 1, "run"))
    with pytest.raises(_Over):
        made.listen()
    assert len(driver.beats) >= 12
    assert max(after - before for before, after in zip(driver.beats, driver.beats[1:], strict=False)) < 0.95


def test_the_memory_of_links_is_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = CutFlow("a.out -> b.in", "a", "b", ("a.out",), "b.in", 4, IOSpec.QueuePolicy.FAULT, True)
    monkeypatch.delenv("HEADRACE_LINK_MEMORY", raising=False)
    assert terms_of(flow, 2) == Terms(flow.name, 4, epoch=2)
    monkeypatch.setenv("HEADRACE_LINK_MEMORY", "4GB")
    assert terms_of(flow, 2) == Terms(flow.name, 4, epoch=2, max_bytes=4 << 30)
    monkeypatch.setenv("HEADRACE_LINK_MEMORY", "much")
    with pytest.raises(ValueError, match=r"^HEADRACE_LINK_MEMORY must be a size such as '16MB'"):
        terms_of(flow, 2)
