"""How the driver learns what time it is on another host."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.core.control import TimeBase, clock_name
from headrace.observe.events.clock_offsets import ClockOffset
from headrace.parts import worker
from headrace.parts.driver import Driver as RealDriver
from headrace.parts.messages import AskTime, TellTime
from headrace.parts.process import Process as RealProcess
from tests.parts.running import channel_and_socket, channel_of


class Driver(RealDriver):
    """A driver without processes."""

    def __init__(self) -> None:
        self.clocks: list[ClockOffset] = []
        self._joined: Any = SimpleNamespace(set_clock=lambda part, clock: self.clocks.append(clock))
        self._measured = {}
        self._clock = clock_name()


class Process(RealProcess):
    """A process that keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__("edge", 1, {})
        self.asked: list[AskTime] = []
        channel: Any = SimpleNamespace(post=self.asked.append)
        self.channel = channel


def test_a_process_of_this_host_has_the_same_clock() -> None:
    driver = Driver()
    driver._compare_clocks(Process(), TellTime(0, 10**18, clock_name()))
    assert driver.clocks == [ClockOffset(0, 0, is_shared=True)]


def test_a_process_in_a_container_with_a_clock_of_its_own_has_another_clock() -> None:
    """Its time namespace makes its clock differ, here by 2 s, and the kernel is the same."""
    program = "from headrace.core.control import clock_name; print(clock_name(), end='')"
    apart = ["unshare", "--time", "--monotonic", "2"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("needs the permission to make a time namespace")

    def name_in(*before: str) -> str:
        return subprocess.run(
            [*before, sys.executable, "-c", program], stdout=-1, text=True, check=True
        ).stdout

    assert name_in() == clock_name() != name_in(*apart)


def test_a_process_of_another_host_is_asked_until_its_offset_is_known() -> None:
    driver = Driver()
    process = Process()
    asked = process.asked
    driver._compare_clocks(process, TellTime(0, 10**18, "another"))
    ahead = 10**17  # nanoseconds by which the other clock is ahead
    while len(asked) > len(driver.clocks) - 1:
        question = asked[-1]
        driver._compare_clocks(process, TellTime(question.asked, question.asked + ahead, "another"))
    assert len(driver.clocks) == 8
    last = driver.clocks[-1]
    assert not last.is_shared
    # The answers were given when they were asked for.
    assert 0 <= last.offset + ahead <= last.error


@pytest.mark.parametrize("ahead", [0, 10**17, -(10**15)])
def test_a_process_of_another_host_knows_when_the_clock_of_the_run_began(ahead: int) -> None:
    """It asks the driver, whose clock is ahead, before it runs the program."""
    asked: list[AskTime] = []

    def answer(kind: type) -> TellTime:
        assert kind is TellTime
        return TellTime(asked[-1].asked, time.monotonic_ns() + ahead, "the clock of the driver")

    channel: Any = SimpleNamespace(send=asked.append, receive_one=answer)
    began = TimeBase("the clock of the driver", time.monotonic_ns() + ahead - 5 * 10**9, 10**18)
    before = time.monotonic_ns()
    assignment: Any = SimpleNamespace(part="edge", began=began)
    here = worker._began_here(channel, assignment)
    took = time.monotonic_ns() - before
    assert (here.clock, here.since_1970) == (clock_name(), 10**18)
    assert abs(here.zero - (before - 5 * 10**9)) <= took + 10**6
    assert len(asked) == 8
    shared = began._replace(clock=clock_name())
    assert worker._began_here(channel, SimpleNamespace(part="edge", began=shared)) is shared  # type: ignore[arg-type]
    assert len(asked) == 8


def test_what_comes_before_an_answer_is_received_after_it() -> None:
    channel, theirs = channel_and_socket()
    other = channel_of(theirs)
    for message in AskTime(1), TellTime(1, 2, ""), AskTime(3):
        other.send(message)
    assert channel.receive_one(TellTime) == TellTime(1, 2, "")
    received = []
    while len(received) < 2:
        received += channel.receive() or []
    assert received == [AskTime(1), AskTime(3)]
    channel.close()
    other.close()
