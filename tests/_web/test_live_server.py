"""The server of a page: its beginning, its address, and strangers who hold connections open."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace._web import live_server
from headrace._web.live_server import Client, LiveServer
from tests._web.clients import ask, connect, get, token, until, until_the_end
from tests.harness import wait_until


def begin(kind: type[LiveServer] = LiveServer, **settings: Any) -> Any:
    return kind("the page", "{{settings}} {{nonce}}", {}, remedy="name another port", **settings)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def server() -> Iterator[LiveServer]:
    server = begin(clients=2)
    yield server
    server.close()


# Its beginning.


def test_a_server_that_does_not_listen_in_time_is_an_error_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(LiveServer):
        async def _serve(self, listening: Any) -> None:
            await self._end.wait()

    monkeypatch.setattr(live_server, "_START_TIMEOUT", 0.0)
    with pytest.raises(RuntimeError, match=r"the page has not begun to listen on 127\.0\.0\.1:0 in 0 s"):
        begin(Slow)


def test_a_server_that_is_closed_before_its_thread_has_begun_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(LiveServer):
        def _run(self, listening: Any) -> None:
            is_closing.wait()
            super()._run(listening)

        def _call(self, function: Callable[[], object]) -> None:
            super()._call(function)
            is_closing.set()

    monkeypatch.setattr(live_server, "_START_TIMEOUT", 0.0)
    is_closing = threading.Event()
    with pytest.raises(RuntimeError, match="has not begun to listen"):
        begin(Late)


# Its address.


@pytest.mark.parametrize("given", ["&+#%", "a b/c?d=e", "%2B", "Schlüssel", "x" * 300])
def test_the_address_opens_the_page_whatever_the_token_is(given: str) -> None:
    server = begin(token=given)

    async def action(session: Any, base: str) -> Any:
        async with session.get(server.url) as answer:
            # As the page does: with what follows the "?" of its own address.
            async with connect(session, base, server) as page:
                await page.close()
            return answer.status

    try:
        assert ask(server, action) == 200
        assert get(server, "/?token=other")[0] == 403
    finally:
        server.close()


def test_a_token_that_no_address_can_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="the page: a token must be text that can be encoded as UTF-8"):
        begin(token="\udcff")


# Strangers.


@pytest.mark.parametrize(
    "request_", [b"GET /" + b"a" * 10_000 + b" HTTP/1.1", b"GET / HTTP/1.1\r\nContent-Length: " + b"9" * 20]
)
def test_what_is_no_request_is_refused_without_a_word_in_the_log(
    server: LiveServer, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request_ + b"\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 400"
    server.close()
    assert not caplog.records


def test_strangers_who_hold_every_connection_open_lock_nobody_out(server: LiveServer) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(2 * live_server._MOST_STRANGERS):
            one = held.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert get(server, f"/?{token(server)}")[0] == 200
        most = 2 + live_server._MOST_STRANGERS
        wait_until(
            lambda: len(server._connections.opened()) <= most, "those beyond the limit are disconnected"
        )


def test_an_error_of_the_server_itself_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(LiveServer):
        async def _page(self, request: Any) -> Any:
            raise ZeroDivisionError

    server = begin(Broken)
    try:
        assert get(server, f"/?{token(server)}")[0] == 500
    finally:
        server.close()
    assert "ZeroDivisionError" in caplog.text


def test_a_request_whose_body_never_came_is_ended_with_the_server(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio would log a task that is destroyed while it waits."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 403"
    server.close()
    del server
    gc.collect()
    assert not caplog.records


def test_a_client_that_has_stopped_reading_is_not_waited_for(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "_END_TIMEOUT", 3600.0)
    monkeypatch.setattr(live_server, "_SILENCE", 0.0)

    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as page:
            await until(lambda: server._clients)
            transport = page._response.connection.transport
            transport.pause_reading()
            server.send("figures", True)
            server.close()
            transport.abort()
            return server._clients

    assert ask(server, action) == set()


class Line:
    """The transport of a client, which takes what it likes."""

    unread = 0

    def get_write_buffer_size(self) -> int:
        return self.unread


def test_a_client_reads_while_it_takes_data_or_answers_or_has_nothing_to_read() -> None:
    line = Line()
    client = Client(None, line)
    client.note_reading(10.0)
    assert client.reading_since == 10.0, "there was nothing to read"
    client.send("figures", True)
    line.unread = 100
    client.note_reading(11.0)
    client.note_reading(12.0)
    assert client.reading_since == 10.0, "it has taken nothing"
    line.unread = 60
    client.note_reading(13.0)
    assert client.reading_since == 13.0, "it has taken data"
    client.note_reading(14.0)
    client.note_message(15.0)
    client.note_reading(16.0)
    assert client.reading_since == 15.0, "it has answered"


def test_a_client_that_reads_has_time_to_read_everything(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "_END_TIMEOUT", 3600.0)
    monkeypatch.setattr(live_server, "_SILENCE", 3600.0)

    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server, max_msg_size=0) as page:
            await until(lambda: server._clients)
            server.send(bytes(8 << 20), True)
            server._call(lambda: server._end.set())
            return [len(item) for item in await until_the_end(page)]

    assert ask(server, action) == [8 << 20]
