"""Connections: few, for a limited time, and never with the last files of the process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headrace._web import connections as module
from headrace._web.connections import DEADLINE, RESERVE, Connections


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    transport: Any = None

    def __init__(self, made: list[Any]) -> None:
        self._made = made

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._made.append(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Server:
    """Connections in a time that the test sets; it stands for the server of aiohttp, too."""

    def __init__(self, most: int) -> None:
        self.time = 0.0
        self.made: list[Any] = []
        """The protocols of all connections, in their order."""
        self.connections = self.made
        self.limits = Connections(self, most, lambda: self.time)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    def __call__(self) -> Echo:
        return Echo(self.made)

    @property
    def count(self) -> int:
        return len(self.limits.opened())

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
        self.limits.stop()
        for one in self.limits.opened():
            one.transport.abort()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(most: int = 8) -> AsyncIterator[Server]:
    server = Server(most)
    server.port = await server.limits.listen("127.0.0.1", 0)
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
            assert server.count == 3
            for connection in opened[:2]:
                assert await is_disconnected(connection)
            for connection in opened[2:]:
                assert await is_alive(connection)

    run(action)


def test_a_client_is_not_disconnected_for_strangers() -> None:
    async def action() -> None:
        async with serving(most=2) as server:
            client = await server.accepted()
            server.limits.clients.add(server.made[0])
            strangers = [await server.accepted() for _ in range(3)]
            assert await is_alive(client)
            assert await is_disconnected(strangers[1])
            assert await is_alive(strangers[2])

    run(action)


def test_a_connection_that_is_no_client_at_its_deadline_is_closed() -> None:
    async def action() -> None:
        async with serving() as server:
            silent, client = await server.accepted(), await server.accepted()
            server.limits.clients.add(server.made[1])
            server.time = DEADLINE / 2
            later = await server.accepted()
            server.time = DEADLINE - 0.001
            server.limits.tick()
            assert await is_alive(silent)
            server.time = DEADLINE
            server.limits.tick()
            assert await is_disconnected(silent)
            assert await is_alive(client)
            assert await is_alive(later)
            assert server.count == 2

    run(action)


def test_a_client_that_has_ended_has_a_deadline_again() -> None:
    async def action() -> None:
        async with serving() as server:
            client = await server.accepted()
            server.limits.clients.add(server.made[0])
            server.time = 1000.0
            server.limits.tick()
            server.limits.clients.discard(server.made[0])
            server.limits.tick()
            assert await is_alive(client), "it has time to read what is under way"
            server.time += DEADLINE
            server.limits.tick()
            assert await is_disconnected(client)

    run(action)


def test_a_connection_counts_until_its_peer_has_read_the_answer_or_its_time_is_up() -> None:
    async def action() -> None:
        async with serving() as server:
            _, writer = await server.accepted()
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            transport = server.made[0].transport
            transport.write(bytes(64 << 20))  # more than the buffers of a connection hold
            transport.close()
            assert transport.is_closing()
            assert server.count == 1
            server.time = DEADLINE
            server.limits.tick()
            while server.count:
                await asyncio.sleep(0)

    run(action)


def test_strangers_are_disconnected_when_the_pipeline_needs_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [RESERVE]
    monkeypatch.setattr(module, "files", lambda: (left[0], 10_000))

    async def action() -> None:
        async with serving() as server:
            stranger, client = await server.accepted(), await server.accepted()
            server.limits.clients.add(server.made[1])
            server.limits.tick()
            assert await is_alive(stranger)
            left[0] = RESERVE - 1
            server.limits.tick()
            assert await is_disconnected(stranger)
            assert await is_alive(client)
            left[0] = 9
            later = await server.connect()
            while server.count == 1:
                await asyncio.sleep(0)
            server.limits.tick()
            assert await is_disconnected(later)

    run(action)


def test_the_reserve_is_a_quarter_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "files", lambda: (9, 32))

    async def action() -> None:
        async with serving() as server:
            assert await is_alive(await server.accepted())

    run(action)


def test_the_files_that_are_left_are_counted() -> None:
    before, limit = module.files()
    assert before < limit
    with socket.socket(), socket.socket():
        assert module.files() == (before - 2, limit)
    assert module.files() == (before, limit)


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
