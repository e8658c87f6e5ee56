"""Connections: few, for a limited time, and never with the last files of the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headrace._web import connections as module
from headrace._web.connections import DEADLINE, RESERVE, Connections


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._made.append(transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Server:
    """Connections in a time that the test sets."""

    def __init__(self, most: int) -> None:
        self.time = 0.0
        self.made: list[Any] = []
        """The transports of all connections, in their order."""
        self.connections = Connections("the page", lambda: Echo(self.made), most, lambda: self.time)
        self.port = self.connections.listen("127.0.0.1", 0)
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def accepted(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection that has been accepted: the server has answered."""
        reader, writer = await self.connect()
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        return reader, writer

    async def close(self) -> None:
        await self.connections.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(most: int = 8) -> AsyncIterator[Server]:
    server = Server(most)
    try:
        yield server
    finally:
        await server.close()


async def is_disconnected(connection: tuple[asyncio.StreamReader, Any]) -> bool:
    """Wait until a connection ends."""
    with contextlib.suppress(ConnectionError):
        assert await connection[0].read() == b""
    return True


async def is_alive(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bool:
    reader, writer = connection
    writer.write(b"again")
    return await reader.readexactly(5) == b"again"


def run(action: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(action())  # type: ignore[arg-type]


def test_the_oldest_stranger_makes_room_for_a_new_connection() -> None:
    async def action() -> None:
        async with serving(most=3) as server:
            opened = [await server.accepted() for _ in range(5)]
            assert server.connections.count == 3
            for connection in opened[:2]:
                assert await is_disconnected(connection)
            for connection in opened[2:]:
                assert await is_alive(connection)

    run(action)


def test_a_client_is_not_disconnected_for_strangers() -> None:
    async def action() -> None:
        async with serving(most=2) as server:
            client = await server.accepted()
            server.connections.keep(server.made[0])
            strangers = [await server.accepted() for _ in range(3)]
            assert await is_alive(client)
            assert await is_disconnected(strangers[1])
            assert await is_alive(strangers[2])

    run(action)


def test_when_all_are_clients_a_connection_waits_until_one_has_left() -> None:
    async def action() -> None:
        async with serving(most=1) as server:
            client = await server.accepted()
            server.connections.keep(server.made[0])
            later = await server.connect()
            later[1].write(b"hello")
            while server.connections._may_accept.is_set():
                await asyncio.sleep(0)
            server.connections.tick()
            client[1].close()
            while server.connections.count:
                await asyncio.sleep(0)
            server.connections.tick()
            assert await later[0].readexactly(5) == b"hello"

    run(action)


def test_a_connection_that_is_no_client_at_its_deadline_is_closed() -> None:
    async def action() -> None:
        async with serving() as server:
            silent, client = await server.accepted(), await server.accepted()
            server.connections.keep(server.made[1])
            server.time = DEADLINE / 2
            later = await server.accepted()
            server.time = DEADLINE - 0.001
            server.connections.tick()
            assert await is_alive(silent)
            server.time = DEADLINE
            server.connections.tick()
            assert await is_disconnected(silent)
            assert await is_alive(client)
            assert await is_alive(later)
            assert server.connections.count == 2

    run(action)


def test_a_client_that_has_ended_has_a_deadline_again() -> None:
    async def action() -> None:
        async with serving() as server:
            client = await server.accepted()
            server.connections.keep(server.made[0])
            server.time = 1000.0
            server.connections.release(server.made[0])
            server.connections.tick()
            assert await is_alive(client), "it has time to read what is under way"
            server.time += DEADLINE
            server.connections.tick()
            assert await is_disconnected(client)

    run(action)


def test_a_connection_counts_until_its_peer_has_read_the_answer_or_its_time_is_up() -> None:
    async def action() -> None:
        async with serving() as server:
            _, writer = await server.accepted()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            transport = server.made[0]
            transport.write(bytes(64 << 20))  # more than the buffers of a connection hold
            transport.close()
            assert transport.is_closing()
            assert server.connections.count == 1
            server.time = DEADLINE
            server.connections.tick()
            while server.connections.count:
                await asyncio.sleep(0)

    run(action)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of files that are left, as the only element of a list."""
    left = [1000]
    monkeypatch.setattr(module, "files_left", lambda: left[0])
    monkeypatch.setattr(module, "_limit", lambda: 10_000)
    return left


def test_no_connection_is_accepted_with_the_files_of_the_reserve(
    files: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def action() -> None:
        async with serving() as server:
            files[0] = RESERVE
            waiting = await server.connect()
            waiting[1].write(b"hello")
            while server.connections._may_accept.is_set():
                await asyncio.sleep(0)
            server.connections.tick()
            assert server.connections.count == 0
            files[0] = RESERVE + 1
            server.connections.tick()
            assert await waiting[0].readexactly(5) == b"hello"

    with caplog.at_level(logging.WARNING, "headrace.web"):
        run(action)
    (record,) = caplog.records
    assert record.getMessage() == (
        "the page accepts no connection: the process may open 10000 files, and the last 64 are kept for the "
        "pipeline; allow more with `ulimit -n`"
    )


def test_strangers_are_disconnected_when_the_pipeline_needs_their_files(files: list[int]) -> None:
    async def action() -> None:
        async with serving() as server:
            stranger, client = await server.accepted(), await server.accepted()
            server.connections.keep(server.made[1])
            files[0] = RESERVE
            server.connections.tick()
            assert await is_alive(stranger)
            files[0] = RESERVE - 1
            server.connections.tick()
            assert await is_disconnected(stranger)
            assert await is_alive(client)

    run(action)


def test_the_reserve_is_a_quarter_of_few_files(files: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    async def action() -> None:
        async with serving() as server:
            files[0] = 9
            await server.accepted()

    monkeypatch.setattr(module, "_limit", lambda: 32)
    run(action)


def test_the_files_that_are_left_are_counted() -> None:
    before = module.files_left()
    assert before is not None
    with socket.socket(), socket.socket():
        assert module.files_left() == before - 2
    assert module.files_left() == before


def test_every_address_of_a_name_has_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, port, **kinds: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.1", "127.0.0.2", "192.0.2.1")  # the last is no address of this machine
        ],
    )
    listening = module._bind("name", 0)
    addresses = [one.getsockname() for one in listening]
    for one in listening:
        one.close()
    assert [address for address, _ in addresses] == ["127.0.0.1", "127.0.0.2"]
    assert len({port for _, port in addresses}) == 1
