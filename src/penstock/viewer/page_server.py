"""PageServer: the page in the browser, and the server that sends pictures to it.

What it defends against, and how:

- another user of the machine, or of the network: it listens on the loopback interface, and every request needs the
  token that is part of the address which it prints;
- a foreign page in the same browser: the Origin of a WebSocket must be the address of the page, and the Host header
  must name this machine, so that a name which somebody points here (DNS rebinding) is refused;
- a flood: the number of clients, the size and the rate of their messages are limited, and a client that does not
  take pictures is sent none;
- code from elsewhere: the page is one file that loads nothing, and its Content-Security-Policy allows nothing else.

A client says when it has shown a picture and has at most two under way. So a slow client gets fewer pictures, none
is queued, and the others do not notice.

At the end of a run the server sends every client the last picture and the end, and the client closes the connection
once it has shown them. A server that closed first would reset the connection while the client still confirms its
pictures, and a browser then discards what it has not read. A client that does not close in time is disconnected.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from ipaddress import ip_address
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from penstock.viewer.display import Picture
from penstock.viewer.events import Event, MalformedEvent, ShownEvent, read_event
from penstock.viewer.missing import import_or_explain
from penstock.viewer.pictures import encode_jpeg, encode_png

__all__ = ["PageServer"]

_MOST_UNDER_WAY = 2  # pictures that a client has not confirmed
_MOST_MESSAGE = 2048  # bytes
_MOST_EVENTS = 500  # a second, from one client
_STATUS_INTERVAL = 0.5  # seconds
_START_TIMEOUT = 20.0  # seconds
_END_TIMEOUT = 5.0  # seconds that a client has to show the last picture
_log = logging.getLogger("penstock.viewer")


class PageServer:
    """Serves the viewer's page; an outlet of a display.

    Parameters
    ----------
    title
        The title of the page.
    size
        Width and height of the picture.
    host, port
        Where to listen; port 0 takes any that is free.
    token
        What a request has to have; made anew unless given.
    clients
        The most clients at a time.
    is_fullscreen
        Whether the picture fills the page, with the controls over it.
    on_event
        Called with each event of a page, on the server's thread.
    on_watch
        Called when a client can take a picture, on the server's thread.
    statistics
        Returns the counts that the page shows.
    """

    def __init__(
        self,
        title: str,
        size: tuple[int, int],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        clients: int = 8,
        is_fullscreen: bool = False,
        on_event: Callable[[Event], None] = lambda event: None,
        on_watch: Callable[[], None] = lambda: None,
        statistics: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._web = import_or_explain("aiohttp.web", "view", "to serve the viewer's page")
        self._title, self._size, self._is_fullscreen = title, size, is_fullscreen
        self._host, self._port = host, port
        self._token = token or secrets.token_urlsafe(18)
        self._most_clients = clients
        self._on_event, self._on_watch, self._statistics = on_event, on_watch, statistics
        self._clients: set[_Client] = set()
        self._latest: bytes | None = None
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._end: asyncio.Event
        self._is_empty: asyncio.Event
        self._thread = threading.Thread(target=self._run, name=f"penstock-page {title}", daemon=True)
        self._thread.start()
        self._is_ready.wait(_START_TIMEOUT)
        failure = self._start_failure()
        if failure is not None:
            raise RuntimeError(
                f"the viewer's page cannot listen on {host}:{port} ({failure}); set another "
                "PENSTOCK_VIEW_HOST or PENSTOCK_VIEW_PORT (0 takes any port that is free)"
            ) from failure

    def _start_failure(self) -> BaseException | None:
        """Return why the server could not start, or None."""
        if self._failure is not None:
            self._thread.join()
        return self._failure

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/?token={self._token}"

    # The outlet; called on the display's thread.

    def wants_picture(self) -> bool:
        """Return whether a client waits for a picture."""
        return any(client.under_way < _MOST_UNDER_WAY for client in tuple(self._clients))

    def show(self, picture: Picture, is_still: bool) -> None:
        """Send a picture to the clients that can take it; one that will stay, exactly and to all."""
        encoded = encode_png(picture.pixels) if is_still else encode_jpeg(picture.pixels)
        self._call(lambda: self._send(encoded, is_still))

    def close(self) -> None:
        """Show the clients the last picture and that the run has ended; end the server and its thread."""
        self._call(lambda: self._end.set())
        self._thread.join()

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(function)

    # The server's thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if self._is_ready.is_set():
                _log.exception("the server of the viewer's page ended")
            self._failure = error
        finally:
            self._is_ready.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve(self) -> None:
        web = self._web
        self._end, self._is_empty = asyncio.Event(), asyncio.Event()
        app = web.Application(client_max_size=_MOST_MESSAGE)
        app.router.add_get("/", self._page)
        app.router.add_get("/ws", self._socket)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port)
            await site.start()
            self._port = runner.addresses[0][1]
            self._is_ready.set()
            while not self._end.is_set():
                try:
                    await asyncio.wait_for(self._end.wait(), _STATUS_INTERVAL)
                except TimeoutError:
                    for client in tuple(self._clients):
                        client.say(self._status())
            # First of all: a page that connects again must find the next run, not this one.
            await site.stop()
            await self._finish()
        finally:
            await runner.cleanup()

    async def _finish(self) -> None:
        """Tell the clients the end, and wait until they have closed their connections."""
        for client in tuple(self._clients):
            client.finish(self._latest)
        deadline = self._loop.time() + _END_TIMEOUT
        while self._clients:
            self._is_empty.clear()
            try:
                await asyncio.wait_for(self._is_empty.wait(), deadline - self._loop.time())
            except TimeoutError:
                break
        for client in tuple(self._clients):
            client.abort()

    def _status(self) -> str:
        return json.dumps({"type": "status", "clients": len(self._clients), **self._statistics()})

    def _send(self, encoded: bytes, is_still: bool) -> None:
        self._latest = encoded
        for client in tuple(self._clients):
            if is_still or client.under_way < _MOST_UNDER_WAY:
                client.send(encoded, is_still)

    # Requests.

    def _refusal(self, request: Any, is_socket: bool) -> Any:
        """Return the answer to a request that is not allowed, or None."""
        web = self._web
        if not self._is_own_host(request.headers.get("Host", "")):
            return web.Response(status=421, text="This server does not answer to that name.\n")
        origin = request.headers.get("Origin")
        is_foreign = urlsplit(origin or "").netloc != request.headers.get("Host")
        if is_foreign and (is_socket or origin is not None):
            return web.Response(status=403, text="A page from elsewhere must not connect here.\n")
        given = request.query.get("token", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._token.encode()):
            return web.Response(
                status=403, text="The token is missing or wrong: open the address that the program printed.\n"
            )
        return None

    def _is_own_host(self, name: str) -> bool:
        host = urlsplit(f"//{name}").hostname or ""
        if host in ("localhost", self._host.lower()):
            return True
        try:
            # Addresses cannot be rebound as names can.
            return ip_address(host).is_loopback or not ip_address(self._host).is_loopback
        except ValueError:
            return False

    async def _page(self, request: Any) -> Any:
        refusal = self._refusal(request, is_socket=False)
        if refusal is not None:
            return refusal
        nonce = secrets.token_urlsafe(12)
        width, height = self._size
        settings = {
            "title": self._title,
            "width": width,
            "height": height,
            "fullscreen": self._is_fullscreen,
        }
        text = resources.files("penstock.viewer").joinpath("page.html").read_text("utf-8")
        # "<" would end the script that the settings stand in.
        text = text.replace("{{settings}}", json.dumps(settings).replace("<", "\\u003c"))
        text = text.replace("{{nonce}}", nonce)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        return self._web.Response(text=text, content_type="text/html", headers=headers)

    async def _socket(self, request: Any) -> Any:
        refusal = self._refusal(request, is_socket=True)
        if refusal is not None:
            return refusal
        if len(self._clients) >= self._most_clients:
            return self._web.Response(
                status=503, text=f"The viewer has {self._most_clients} clients already, which is its limit.\n"
            )
        socket = self._web.WebSocketResponse(max_msg_size=_MOST_MESSAGE, heartbeat=20.0, compress=False)
        if not socket.can_prepare(request):
            return self._web.Response(status=400, text="This address is for the page's WebSocket.\n")
        client = _Client(socket, request.transport)
        self._clients.add(client)
        try:
            await socket.prepare(request)
            client.start()
            client.say(self._status())
            if self._latest is not None:
                client.send(self._latest, True)
            if self._end.is_set():  # it connected while the others were told
                client.finish(self._latest)
            self._on_watch()
            await self._listen(socket, client)
        finally:
            self._clients.discard(client)
            await client.stop()
            if not self._clients:
                self._is_empty.set()
        return socket

    async def _listen(self, socket: Any, client: _Client) -> None:
        import aiohttp

        allowance, since = float(_MOST_EVENTS), monotonic()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                await socket.close(code=1003, message=b"messages are text")
                return
            now = monotonic()
            allowance, since = min(_MOST_EVENTS, allowance + (now - since) * _MOST_EVENTS), now
            if allowance < 1:
                await socket.close(code=1008, message=b"too many messages")
                return
            allowance -= 1
            try:
                event = read_event(message.data)
            except MalformedEvent as error:
                await socket.close(code=1007, message=str(error).encode()[:120])
                return
            if isinstance(event, ShownEvent):
                client.under_way = max(0, client.under_way - 1)
                self._on_watch()
            elif event is not None:
                self._on_event(event)


class _Client:
    """One page that is connected; `under_way` counts the pictures that it has not shown yet."""

    def __init__(self, socket: Any, transport: Any) -> None:
        self._socket, self._transport = socket, transport
        self.under_way = 0
        # Short: `under_way` limits pictures that move, and there are few that stay.
        self._queue: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None
        self._sent: bytes | None = None
        self._is_finished = False

    def start(self) -> None:
        """Begin to send."""
        self._sender = asyncio.get_running_loop().create_task(self._work())

    def say(self, text: str) -> None:
        """Send a text, unless several wait already."""
        if self._queue.qsize() < 4 and not self._is_finished:
            self._queue.put_nowait(text)

    def send(self, picture: bytes, is_needed: bool) -> None:
        """Send a picture, unless too many wait already: a client that does not read must not use up the memory."""
        if self._queue.qsize() < (8 if is_needed else 4) and not self._is_finished:
            self.under_way += 1
            self._queue.put_nowait(picture)

    def finish(self, last: bytes | None) -> None:
        """Send the last picture and the end in place of everything that waits; the client then disconnects."""
        if (
            self._is_finished or self._sender is None
        ):  # one that is not started yet is finished by its handler
            return
        self._is_finished = True
        while not self._queue.empty():
            self._queue.get_nowait()
        if last is not None and last is not self._sent:
            self._queue.put_nowait(last)
        self._queue.put_nowait(json.dumps({"type": "ended"}))

    def abort(self) -> None:
        """Disconnect a client that does not answer; what it has not read is lost."""
        if self._transport is not None:
            self._transport.abort()

    async def stop(self) -> None:
        """End the sending."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if isinstance(item, bytes):
                    self._sent = item
                    await self._socket.send_bytes(item)
                else:
                    await self._socket.send_str(item)
            except (ConnectionError, RuntimeError):  # it is closing; its reader ends the client
                return
