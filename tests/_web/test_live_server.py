"""A server that is slow to begin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace._web import LiveServer, live_server

pytest.importorskip("aiohttp")


def begin(kind: type[LiveServer]) -> Any:
    return kind("the page", "{{settings}} {{nonce}}", {}, remedy="name another port")


@pytest.fixture(autouse=True)
def no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(live_server, "_START_TIMEOUT", 0.0)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_a_server_that_does_not_listen_in_time_is_an_error_and_ends() -> None:
    class Slow(LiveServer):
        async def _serve(self) -> None:
            await self._end.wait()

    with pytest.raises(RuntimeError, match=r"the page has not begun to listen on 127\.0\.0\.1:0 in 0 s"):
        begin(Slow)


def test_a_server_that_is_closed_before_its_thread_has_begun_ends() -> None:
    class Late(LiveServer):
        def _run(self) -> None:
            is_closing.wait()
            super()._run()

        def _call(self, function: Callable[[], object]) -> None:
            super()._call(function)
            is_closing.set()

    is_closing = threading.Event()
    with pytest.raises(RuntimeError, match="has not begun to listen"):
        begin(Late)
