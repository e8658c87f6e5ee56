"""The thread that serves links: what others may do to it at any moment."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from headrace.link import loop


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
    before = len(os.listdir("/proc/self/fd"))
    watch.wake()
    watch.close()
    watch.wake()
    assert len(os.listdir("/proc/self/fd")) == before - 1  # an epoll and its wake-up for the file of the test
    os.close(opened[0])
