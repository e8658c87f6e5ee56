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
from headrace.observe.events.clock_offsets import Answer, ClockOffset, OffsetMeasurement
from headrace.parts import worker
from headrace.parts.messages import AskTime, Seen, TellTime
from tests.parts.running import channel_and_socket, channel_of


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


@pytest.mark.parametrize("ahead", [0, 10**17, -(10**15)])
def test_a_process_of_another_host_knows_when_the_clock_of_the_run_began(ahead: int) -> None:
    """It asks the driver, whose clock is ahead, before it runs the program."""
    asked: list[AskTime] = []

    def answer(kind: type) -> TellTime:
        assert kind is TellTime
        return TellTime(asked[-1].asked, time.monotonic_ns() + ahead)

    channel: Any = SimpleNamespace(send=asked.append, receive_one=answer)
    began = TimeBase("the clock of the driver", time.monotonic_ns() + ahead - 5 * 10**9, 10**18)
    before = time.monotonic_ns()
    assignment: Any = SimpleNamespace(part="edge", began=began)
    here, measured = worker._began_here(channel, assignment)
    took = time.monotonic_ns() - before
    assert (here.clock, here.since_1970) == (clock_name(), 10**18)
    assert abs(here.zero - (before - 5 * 10**9)) <= took + 10**6
    assert len(asked) == 8
    assert measured is not None
    assert not measured.offset.is_shared
    assert abs(measured.offset.offset + ahead) <= measured.offset.error
    shared = began._replace(clock=clock_name())
    assert worker._began_here(channel, SimpleNamespace(part="edge", began=shared)) == (shared, None)  # type: ignore[arg-type]
    assert len(asked) == 8


@pytest.mark.parametrize(("is_watched", "asks"), [(True, 1), (False, 0)])
def test_a_process_of_another_host_says_how_the_times_of_what_it_shows_are_converted(
    is_watched: bool, asks: int
) -> None:
    """It goes on asking at each beat, because clocks drift apart."""
    sent: list[Any] = []
    offered: list[Any] = []
    channel: Any = SimpleNamespace(send=sent.append, offer=offered.append)
    assignment: Any = SimpleNamespace(part="edge", interests=SimpleNamespace() if is_watched else None)
    measured = OffsetMeasurement()
    port: Any = None
    process = worker.Worker(channel, assignment, port, measured)
    measured.add(Answer(0, 10**9, 10**15))
    process._show(b"")
    assert sent == [Seen(b"", ClockOffset(10**9 - 10**15 // 2, 10**15 // 2, is_shared=False))]
    process._beat()
    assert len(offered) == 1 + asks
    now = time.monotonic_ns()
    process._handle(TellTime(now, now + 5))
    process._show(b"")
    assert abs(sent[-1].clock.offset + 5) <= sent[-1].clock.error < 10**15 // 2
    worker.Worker(channel, assignment, port)._show(b"")
    assert sent[-1].clock.is_shared


def test_what_comes_before_an_answer_is_received_after_it() -> None:
    channel, theirs = channel_and_socket()
    other = channel_of(theirs)
    for message in AskTime(1), TellTime(1, 2), AskTime(3):
        other.send(message)
    assert channel.receive_one(TellTime) == TellTime(1, 2)
    received = []
    while len(received) < 2:
        received += channel.receive() or []
    assert received == [AskTime(1), AskTime(3)]
    channel.close()
    other.close()
