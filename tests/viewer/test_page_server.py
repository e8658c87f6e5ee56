"""The page's server: who may connect, what they may say, and that it ends."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from headrace._web import live_server
from headrace.viewer.display import Picture, Scene
from headrace.viewer.input_spec import InputSpec
from headrace.viewer.page_server import PageServer
from tests._web.clients import ask, connect, get, token, until, until_the_end

aiohttp = pytest.importorskip("aiohttp")


def page(*args: Any, **options: Any) -> PageServer:
    """Return a server whose pictures have the number of layers that are shown in every pixel."""
    return PageServer(*args, draw=lambda scene, specs: np.full((4, 8, 4), len(specs), np.uint8), **options)


@pytest.fixture
def events() -> list[Any]:
    return []


@pytest.fixture
def server(events: list[Any]) -> Iterator[PageServer]:
    before = set(threading.enumerate())
    server = page(
        "Title </script><b>", (8, 4), clients=2, on_event=events.append, statistics=lambda: {"dropped": 3}
    )
    yield server
    server.close()
    assert set(threading.enumerate()) <= before, "a thread is left"


def picture(value: int = 200) -> Picture:
    return Picture(1, np.full((4, 8, 4), value, np.uint8), Scene([], {}))


async def next_picture(socket: Any) -> bytes:
    """Return the next picture; the state is told in between."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY:
            return message.data
    raise AssertionError(f"closed with {socket.close_code}")


def test_the_page_needs_the_token_and_loads_nothing_from_elsewhere(server: PageServer) -> None:
    status, text, headers = get(server, f"/?{token(server)}")
    assert status == 200
    assert "Title \\u003c/script>\\u003cb>" in text, "a title cannot end the script"
    policy = headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    nonce = directives.pop("script-src")
    assert re.fullmatch(r"'nonce-[\w-]{16}'", nonce)
    assert directives.pop("style-src") == nonce
    assert directives.pop("connect-src") == "'self'"
    assert directives.pop("img-src") == "blob: data:", "pictures come through the WebSocket"
    frames = directives.pop("frame-ancestors").split()
    assert frames == ["http://localhost:*", "http://127.0.0.1:*"], "notebooks of this machine"
    assert set(directives) == {"default-src", "base-uri", "form-action"}
    assert set(directives.values()) == {"'none'"}
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "://" not in text.replace("}://${location.host}", ""), "an address of something else"


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=wrong", "/?token=%C3%BC", "/ws?token=wrong", "/ws"]
)
def test_a_wrong_token_is_refused(server: PageServer, path: str) -> None:
    host = urlsplit(server.url).netloc
    status, text, _ = get(server, path, Origin=f"http://{host}")
    assert status == 403
    assert "token is missing or wrong" in text


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://localhost:1", "http://["]
)
def test_a_page_from_elsewhere_is_refused_though_it_knows_the_token(server: PageServer, origin: str) -> None:
    for path in ("/", "/ws"):
        status, text, _ = get(server, f"{path}?{token(server)}", Origin=origin)
        assert (status, "page from elsewhere" in text) == (403, True)


def test_a_socket_without_an_origin_is_refused(server: PageServer) -> None:
    assert get(server, f"/ws?{token(server)}")[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "192.168.1.7", "[", "[::1"])
def test_a_name_that_somebody_points_here_is_refused(server: PageServer, host: str) -> None:
    assert get(server, f"/?{token(server)}", Host=host)[0] in (400, 421)


def test_a_plain_request_for_the_socket_and_other_paths_are_refused(server: PageServer) -> None:
    base = f"http://{urlsplit(server.url).netloc}"
    assert get(server, f"/ws?{token(server)}", Origin=base)[0] == 400
    assert get(server, f"/page.html?{token(server)}")[0] == 404


def test_a_client_gets_the_state_pictures_and_the_end(server: PageServer) -> None:
    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as socket:
            status = json.loads((await socket.receive()).data)
            await until(server.wants_picture)
            server.show(picture(), False)
            server.show(picture(), True)
            kinds = [(await next_picture(socket))[:4] for _ in range(2)]
            closing = asyncio.get_running_loop().run_in_executor(None, server.close)
            rest = await until_the_end(socket)
            await socket.close()
            await closing
            return status, kinds, rest

    status, kinds, rest = ask(server, action)
    counts = {"clients": 1, "dropped": 3, "switches": 0}
    assert status == {"type": "status", "layers": [], "hidden": [], **counts}
    assert kinds == [b"\xff\xd8\xff\xe0", b"\x89PNG"]
    assert not [data for data in rest if isinstance(data, bytes)], "the last picture is sent once"


def test_a_page_switches_layers_off_and_on_for_all_pages() -> None:
    switched: list[Any] = []
    server = page("it", (8, 4), on_switch=lambda: switched.append(server._hidden))
    frame = np.zeros((4, 8), np.uint8)
    scene = Scene([InputSpec("box", "crosses"), InputSpec("", "color")], {"box": frame, "": frame})

    async def status(socket: Any, hidden: list[str], switches: int) -> Any:
        """Return the layers of the first message after so many switches of this page."""
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                told = json.loads(message.data)
                if told["layers"] and told["hidden"] == hidden and told["switches"] == switches:
                    return told["layers"]

    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as first, connect(session, base, server) as second:
            server.show(Picture(1, np.full((4, 8, 4), 200, np.uint8), scene), True)
            pictures = [decoded(await next_picture(first))]
            for number, (shown, hidden) in enumerate(((0, ["box"]), (0, ["box"]), (1, [])), 1):
                await first.send_json({"type": "layer", "name": "box", "shown": shown})
                layers = [await status(first, hidden, number), await status(second, hidden, 0)]
                server.show(Picture(2, np.full((4, 8, 4), 200, np.uint8), scene), True)
                pictures.append(decoded(await next_picture(first)))
            await first.send_json({"type": "layer", "name": "of nobody", "shown": 0})
            await first.send_json({"type": "layer", "name": "box", "shown": 2})
            async for _ in first:
                pass
            return layers, pictures, first.close_code

    try:
        layers, pictures, code = ask(server, action)
    finally:
        server.close()
    assert layers == 2 * [[{"name": "box", "type": "crosses"}, {"name": "", "type": "color"}]]
    assert pictures == [200, 1, 1, 200]
    assert switched == [{"box"}, {"box"}, set()]
    assert code == 1007


def decoded(data: bytes) -> int:
    """Return the value of all pixels."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(data))
    (value,) = np.unique(np.asarray(image.convert("RGB")))
    return int(value)


def test_a_client_that_does_not_confirm_gets_no_more(server: PageServer) -> None:
    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as socket:
            await socket.receive()
            for _ in range(5):
                server.show(picture(), False)
            has_shown = threading.Event()
            server._call(has_shown.set)  # after the pictures
            await until(has_shown.is_set)
            (client,) = server._clients
            under_way, waited = client.under_way, server.wants_picture()
            await socket.send_str('{"type": "shown"}')
            await until(server.wants_picture)
            return under_way, waited

    assert ask(server, action) == (2, False)


def test_a_flood_of_clients_stops_at_the_limit_and_others_go_on(server: PageServer) -> None:
    async def action(session: Any, base: str) -> Any:
        sockets = [await connect(session, base, server) for _ in range(2)]
        refused = 0
        for _ in range(20):
            try:
                await connect(session, base, server)
            except aiohttp.WSServerHandshakeError as error:
                refused += error.status == 503
        first = await sockets[0].receive()
        await sockets[0].close()
        await until(lambda: len(server._clients) < 2)
        await (await connect(session, base, server)).close()  # there is room again
        await sockets[1].close()
        return refused, first.type

    assert ask(server, action) == (20, aiohttp.WSMsgType.TEXT)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("nonsense", 1007),
        ('{"type": "key"}', 1007),
        ("x" * 5000, 1009),
        (b"bytes", 1003),
        (b"x" * 1_000_000, 1009),
    ],
)
def test_a_huge_or_malformed_message_ends_the_connection(
    server: PageServer, events: list[Any], message: str | bytes, code: int
) -> None:
    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as socket:
            with contextlib.suppress(ConnectionError):
                await (socket.send_str if isinstance(message, str) else socket.send_bytes)(message)
            async for _ in socket:
                pass
            return socket.close_code

    assert ask(server, action) in (code, 1006)  # 1006: closed while it still sent
    assert not events


def test_a_flood_of_messages_ends_the_connection(
    server: PageServer, events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_server, "monotonic", lambda: 0.0)  # however long the client takes
    text = '{"type": "key", "code": "KeyA", "action": "press", "modifiers": 0}'

    async def action(session: Any, base: str) -> Any:
        async with connect(session, base, server) as socket:
            try:
                for _ in range(5000):
                    await socket.send_str(text)
            except ConnectionError:
                pass
            async for _ in socket:
                pass
            return socket.close_code

    assert ask(server, action) in (1008, 1006)
    assert len(events) == live_server._MOST_MESSAGES
    assert all(event["type"] == "key" for event in events)


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(server: PageServer) -> None:
    port = urlsplit(server.url).port
    assert port is not None
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1:{port}.*HEADRACE_VIEW_PORT"):
        page("other", (8, 4), port=port)
    assert set(threading.enumerate()) <= before
