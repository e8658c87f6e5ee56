"""Clients of a page's server: plain requests and WebSockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace._web.live_server import LiveServer

aiohttp = pytest.importorskip("aiohttp", reason="needs aiohttp to connect")

_PATIENT = aiohttp.ClientTimeout(total=None) if aiohttp else None


def ask(server: LiveServer, action: Callable[[Any, str], Awaitable[Any]]) -> Any:
    """Run an action with a client's session and the server's address."""

    async def run() -> Any:
        async with aiohttp.ClientSession(timeout=_PATIENT) as session:
            return await action(session, f"http://{urlsplit(server.url).netloc}")

    return asyncio.run(run())


def get(server: LiveServer, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    async def action(session: Any, base: str) -> Any:
        async with session.get(base + path, headers=headers) as answer:
            return answer.status, await answer.text(), dict(answer.headers)

    return ask(server, action)


def token(server: LiveServer) -> str:
    return urlsplit(server.url).query


def connect(session: Any, base: str, server: LiveServer, **kwargs: Any) -> Any:
    return session.ws_connect(f"{base}/ws?{token(server)}", origin=base, **kwargs)


async def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so that another thread changes."""
    while not is_so():
        await asyncio.sleep(0.001)


async def until_the_end(socket: Any) -> list[str | bytes]:
    """Return what a client is sent before the end of the run."""
    received: list[str | bytes] = []
    async for message in socket:
        if message.data == '{"type": "ended"}':
            return received
        received.append(message.data)
    raise AssertionError(f"closed with {socket.close_code} before the end was told")
