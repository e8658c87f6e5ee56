"""The thread that serves links: what others may do to it at any moment."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.link import loop
from tests.harness.files import open_files
from tests.harness.threads import PATIENCE, wait_until


def test_a_thread_that_ends_a_wait_never_writes_to_another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait may be over and closed meanwhile, and its number be that of a file that was opened just now."""
    watch = loop._Watch({})
    opened: list[int] = []
    is_closing: list[bool] = []

    def write(number: int, value: int) -> None:
        if not is_closing:
            is_closing.append(True)
            watch.close()
            opened.append(os.eventfd(0))
            assert opened[0] != number
        os.eventfd_write(number, value)

    monkeypatch.setattr(loop, "os", SimpleNamespace(**{**vars(os), "eventfd_write": write}))
    numbers = watch._epoll.fileno(), watch._descriptor
    own = set(zip(map(str, numbers), ("anon_inode:[eventpoll]", "anon_inode:[eventfd]"), strict=True))
    assert own <= open_files()
    watch.wake()
    watch.close()
    watch.wake()
    assert not own & open_files()
    os.close(opened[0])


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


class _Epoll:
    """An epoll at which nothing happens."""

    def __init__(self) -> None:
        self.waits: list[float | None] = []

    def poll(self, seconds: float | None, most: int) -> list[tuple[int, int]]:
        self.waits.append(seconds)
        return []


def test_a_wait_is_never_too_long_where_the_system_waits_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "_exact_wait", None)
    watch: Any = loop._Watch({})
    watch._epoll.close()
    watch._epoll = epoll = _Epoll()
    assert watch.shortest == 0.002
    for seconds in (0.002, 5.0, None):  # on the main thread, which looks for signals once a second
        watch.wait(seconds)
    assert epoll.waits == [pytest.approx(0.001), 1.0, 1.0]


def test_a_wait_may_be_for_a_year(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.waits, "limit", lambda seconds: seconds)  # as on any thread but the main one
    for exact in (loop._exact_wait, None):
        monkeypatch.setattr(loop, "_exact_wait", exact)
        watch = loop._Watch({})
        watch.wake()
        assert watch.wait(365 * 24 * 3600.0) == []
        watch.close()


@pytest.mark.parametrize(
    ("answer", "is_used"), [(errno.EBADF, True), (errno.ENOSYS, False), (errno.EPERM, False)]
)
def test_an_exact_wait_is_used_where_the_system_has_it(
    monkeypatch: pytest.MonkeyPatch, answer: int, is_used: bool
) -> None:
    def wait(*_: Any) -> int:
        ctypes.set_errno(answer)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: SimpleNamespace(epoll_pwait2=wait))
    assert (loop._find_exact_wait() is wait) == is_used
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: SimpleNamespace())
    ctypes.set_errno(errno.EBADF)  # of something else
    assert loop._find_exact_wait() is None


def test_an_exact_wait_gets_the_time_to_a_nanosecond(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = loop._Watch({})
    times: list[tuple[int, ...]] = []

    def wait(epoll: int, events: Any, most: int, time: bytes, mask: None) -> int:
        times.append(struct.unpack("qq", time))
        ctypes.set_errno(errno.EINTR)  # a signal came
        return -1

    monkeypatch.setattr(loop, "_exact_wait", wait)
    for seconds in (0.25, 0.000_300_5):
        assert watch.wait(seconds) == []
    assert times == [(0, 250_000_000), (0, 300_500)]
    watch.close()


@pytest.mark.skipif(loop._exact_wait is None, reason="needs Linux 5.11 and glibc 2.35")
def test_an_exact_wait_finds_all_that_has_happened() -> None:
    """In the memory of the system's own structures, which depends on the processor."""
    files = [os.eventfd(1) for _ in range(3)]
    links: Any = dict.fromkeys(files)
    watch = loop._Watch(links)
    for file in files:
        watch.add(file)
    assert watch.shortest == 0.0
    found = watch._wait_exactly(PATIENCE, 4)
    assert sorted(found) == [(file, int(select.EPOLLIN)) for file in sorted(files)]
    watch.close()
    for file in files:
        os.close(file)
