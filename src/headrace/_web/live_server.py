"""LiveServer: a page in the browser, and the server that sends it what is new.

The server defends the pipeline and its pictures against

- another user of the machine, or of the network: it listens on the loopback interface, and every request needs the
  token that is part of the address which is printed. With the other token, that of readers, nothing can be changed;
- a foreign page in the same browser: the Origin of a WebSocket must be the address of the page, and the Host header
  must name this machine, so that a name which somebody points here (DNS rebinding) is refused;
- a flood: the number of connections and of clients, the size and the rate of their messages are limited, a
  connection that does not become a client's is closed (`connections`), and a client that does not take what it is
  sent is sent nothing more;
- a page that shows ours in a frame, to have its buttons clicked: only pages of this machine may, such as a
  notebook, and they need the token, too;
- code from elsewhere: the page is one file that loads nothing, and its Content-Security-Policy allows nothing else.

The server sends items: pictures (bytes) or figures (text). A client says when it has shown an item and has at most
two under way. So a slow client gets fewer items, none is queued, and the others do not notice.

At the end of a run the server sends every client the last item and the end, and the client closes the connection
once it has shown them. A server that closed first would reset the connection while the client still confirms its
items, and a browser then discards what it has not read. A client that has stopped reading is disconnected: one that
has had something to read for a second, and has neither taken any of it nor said anything. So a page that was left
behind, as in a laptop that sleeps, does not delay the end of a run.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import threading
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from headrace import waits
from headrace._web.connections import Connections
from headrace._web.messages import Fields, MalformedMessage, read_message
from headrace.lazy import import_or_explain

Item: TypeAlias = str | bytes
"""A picture, or figures, which a client confirms."""

_MOST_UNDER_WAY = 2  # items that a client has not confirmed
_MOST_MESSAGE = 2048  # bytes
_MOST_MESSAGES = 500  # a second, from one client
_START_TIMEOUT = 60.0  # seconds
_MOST_STRANGERS = 24  # connections that are not, or not yet, a client's
_END_TIMEOUT = 5.0  # seconds that a client has to show the last item
_SILENCE = 1.0  # seconds after which a client that takes nothing has stopped reading
_GLANCE = 0.05  # seconds between two checks of that, at the end
_NOTEBOOKS = "http://localhost:* http://127.0.0.1:*"  # whose cells may show the page
_log = logging.getLogger("headrace.web")


class LiveServer:
    """Serves a page and sends it items; a subclass overrides the methods that say what.

    Parameters
    ----------
    name
        The name of the page, for errors, threads and the log: ``"the viewer's page"``.
    page
        The text of the page, with ``{{settings}}`` and ``{{nonce}}`` in it.
    settings
        The settings of the page, which replace ``{{settings}}`` as JSON.
    host, port
        Where to listen; port 0 takes any that is free.
    token
        The token that a request must have; made anew unless given.
    read_token
        A token with which a client sees everything and may change nothing; none unless given.
    clients
        The most clients at a time.
    interval
        The seconds from one `on_tick` to the next.
    remedy
        The remedy if the port is taken, for the error.
    """

    def __init__(
        self,
        name: str,
        page: str,
        settings: dict[str, Any],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str = "",
        read_token: str = "",
        clients: int = 8,
        interval: float = 0.5,
        remedy: str,
    ) -> None:
        self._web = import_or_explain("aiohttp.web", "view", f"to serve {name}")
        self._name, self._page_text, self._settings = name, page, settings
        self._host, self.port = host, port
        self.token, self._read_token = token or secrets.token_urlsafe(18), read_token
        if self.token == read_token:
            raise ValueError(f"{name}: the token of readers must differ from the one that may change things")
        try:
            (self.token + read_token).encode()
        except UnicodeEncodeError:  # bytes of an environment variable that are no text
            raise ValueError(f"{name}: a token must be text that can be encoded as UTF-8") from None
        self._most_clients, self._interval = clients, interval
        self._clients: set[Client] = set()
        self._connections: Connections
        self._latest: Item | None = None
        self._loop = asyncio.new_event_loop()
        # Here, not on the server's thread: a server may be closed before that has begun.
        self._end, self._is_empty = asyncio.Event(), asyncio.Event()
        listening: Future[int] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(listening,), name=f"headrace-page {name}", daemon=True
        )
        self._thread.start()
        if not waits.wait_for_futures([listening], _START_TIMEOUT):
            self.close()
            raise RuntimeError(f"{name} has not begun to listen on {host}:{port} in {_START_TIMEOUT:g} s")
        try:
            self.port = listening.result()
        except Exception as error:
            waits.join(self._thread)
            raise RuntimeError(f"{name} cannot listen on {host}:{port} ({error}); {remedy}") from error

    # A subclass overrides these, which are called on the server's thread.

    open_paths: Collection[str] = ()
    """The paths that need no token."""

    def add_routes(self, router: Any) -> None:
        """Add the addresses that are answered."""
        router.add_get("/", self._page)
        router.add_get("/ws", self._socket)
        router.add_get("/metrics", self._metrics)

    def on_connect(self, client: Client) -> None:
        """Send a new client what it begins with."""
        if self._latest is not None:
            client.send(self._latest, True)

    def on_message(self, client: Client, fields: Fields) -> None:
        """Handle a message of a client; raise MalformedMessage for one that it may not send."""
        raise MalformedMessage("there is nothing to say")

    def on_free(self) -> None:
        """Handle that a client can take an item."""

    def on_tick(self) -> None:
        """Do what is done in every interval."""

    def metrics(self) -> bytes | None:
        """Return the figures that are served to Prometheus, or None."""
        return None

    def last_item(self, client: Client) -> Item | None:
        """Return what a client is sent at the end."""
        return self._latest

    # From any thread.

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"{self.address}/?token={quote(self.token, safe='')}"

    @property
    def address(self) -> str:
        """The address of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    @property
    def clients(self) -> tuple[Client, ...]:
        """The pages that are connected."""
        return tuple(self._clients)

    def wants_item(self) -> bool:
        """Return whether a client waits for an item."""
        return any(client.is_free for client in self.clients)

    def send(self, item: Item, is_needed: bool = False) -> None:
        """Send an item to the clients that can take it; one that is needed, to all."""

        def send() -> None:
            self._latest = item
            for client in self.clients:
                if is_needed or client.is_free:
                    client.send(item, is_needed)

        self._call(send)

    def close(self) -> None:
        """Send the clients the last item and the end; end the server and its thread."""
        self._call(self._end.set)
        waits.join(self._thread)

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended
            self._loop.call_soon_threadsafe(function)

    # The server's thread.

    def _run(self, listening: Future[int]) -> None:
        try:
            # It also ends the tasks that are left, such as that of a request whose body never came.
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve(listening))
        except BaseException as error:
            if listening.done():
                _log.exception("the server of %s ended", self._name)
            else:
                listening.set_exception(error)

    async def _serve(self, listening: Future[int]) -> None:
        web = self._web
        app = web.Application(
            client_max_size=_MOST_MESSAGE, middlewares=[web.middleware(partial(self._guard))]
        )
        self.add_routes(app.router)
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=1.0, logger=_request_log()
        )
        await runner.setup()
        connections = self._connections = Connections(runner.server, self._most_clients + _MOST_STRANGERS)
        try:
            listening.set_result(await connections.listen(self._host, self.port))
            while not self._end.is_set():
                try:
                    await asyncio.wait_for(self._end.wait(), self._interval)
                except TimeoutError:
                    for client in self.clients:
                        client.note_reading(monotonic())
                    self.on_tick()
                    connections.tick()
            # First of all: a page that connects again must find the next run, not this one.
            connections.stop()
            await self._finish()
        finally:
            connections.stop()
            left = [one.transport for one in connections.opened()]
            await runner.cleanup()
            for transport in left:
                transport.abort()
            await asyncio.sleep(0)  # which closes the sockets

    async def _finish(self) -> None:
        """Tell the clients the end, and wait until they have closed their connections."""
        for client in self.clients:
            client.note_reading(monotonic())
            client.finish(self.last_item(client))
        deadline = monotonic() + _END_TIMEOUT
        while self._clients:
            now = monotonic()
            for client in self.clients:
                client.note_reading(now)
                if now >= deadline or now - client.reading_since >= _SILENCE:
                    client.abort()
            self._is_empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), _GLANCE)

    # Requests.

    async def _guard(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Refuse a request that is not allowed."""
        web, host = self._web, request.headers.get("Host", "")
        if not self._is_own_host(host):
            raise web.HTTPMisdirectedRequest(text="This server does not answer to that name.\n")
        origin = request.headers.get("Origin")
        is_foreign = _address_of(origin or "") != host
        if is_foreign and (request.path == "/ws" or origin is not None):
            raise web.HTTPForbidden(text="A page from elsewhere must not connect here.\n")
        may_read = _has_token(request, self._read_token) or request.path in self.open_paths
        if not (may_read or self.may_change(request)):
            raise web.HTTPForbidden(
                text="The token is missing or wrong: open the address that the program printed.\n"
            )
        return await handler(request)

    def may_change(self, request: Any) -> bool:
        """Return whether a request has the token of those who may change things."""
        return _has_token(request, self.token)

    def _is_own_host(self, name: str) -> bool:
        try:
            host = urlsplit(f"//{name}").hostname or ""
            if host in ("localhost", self._host.lower()):
                return True
            # Addresses cannot be rebound as names can.
            return ip_address(host).is_loopback or not ip_address(self._host).is_loopback
        except ValueError:
            return False

    async def _page(self, request: Any) -> Any:
        nonce = secrets.token_urlsafe(12)
        # "<" would end the script that the settings stand in.
        settings = json.dumps({**self._settings, "mayChange": self.may_change(request)}).replace(
            "<", "\\u003c"
        )
        # The nonce first: settings may have any text in them.
        text = self._page_text.replace("{{nonce}}", nonce).replace("{{settings}}", settings)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
            "img-src blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors {_NOTEBOOKS}"
        )
        headers = {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        return self._web.Response(text=text, content_type="text/html", headers=headers)

    async def _metrics(self, request: Any) -> Any:
        figures = self.metrics()
        if figures is None:
            raise self._web.HTTPNotFound(text="There are no figures here.\n")
        return self._web.Response(body=figures, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def _socket(self, request: Any) -> Any:
        if len(self._clients) >= self._most_clients:
            raise self._web.HTTPServiceUnavailable(
                text=f"There are {self._most_clients} clients already, which is the limit.\n"
            )
        socket = self._web.WebSocketResponse(max_msg_size=_MOST_MESSAGE, heartbeat=20.0, compress=False)
        transport = request.transport
        if transport is None or not socket.can_prepare(request):
            raise self._web.HTTPBadRequest(text="This address is for the page's WebSocket.\n")
        client = Client(socket, transport, self.may_change(request))
        self._clients.add(client)
        self._connections.clients.add(request.protocol)
        try:
            await socket.prepare(request)
            client.start()
            self.on_connect(client)
            if self._end.is_set():  # it connected while the others were told
                client.finish(self.last_item(client))
            self.on_free()
            await self._listen(socket, client)
        finally:
            self._clients.discard(client)
            self._connections.clients.discard(request.protocol)
            await client.stop()
            if not self._clients:
                self._is_empty.set()
        return socket

    async def _listen(self, socket: Any, client: Client) -> None:
        """Handle the messages of a client, until it closes the connection or sends one that it may not send."""
        import aiohttp

        allowance, since = float(_MOST_MESSAGES), monotonic()
        async for message in socket:
            now = monotonic()
            allowance, since = min(_MOST_MESSAGES, allowance + (now - since) * _MOST_MESSAGES) - 1, now
            try:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    raise MalformedMessage("messages are text", 1003)
                if allowance < 0:
                    raise MalformedMessage("too many messages", 1008)
                fields = read_message(message.data)
                client.note_message(now)
                if fields.get("type") == "shown":
                    client.confirm()
                    self.on_free()
                elif not client.may_change:
                    raise MalformedMessage("the token of this page may only read", 1008)
                else:
                    self.on_message(client, fields)
            except MalformedMessage as error:
                await socket.close(code=error.code, message=str(error).encode()[:120])
                return


def _request_log() -> logging.Logger:
    """Return the logger of requests: without those that are no HTTP, so that a stranger cannot fill the log."""
    from aiohttp.http_exceptions import HttpProcessingError

    def is_ours(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))

    log = logging.Logger("headrace.web.requests")
    log.parent = _log
    log.addFilter(is_ours)
    return log


def _has_token(request: Any, token: str) -> bool:
    """Return whether a request has a token: in its address, or as Prometheus sends it."""
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    given = bearer.strip() if kind.lower() == "bearer" else request.query.get("token", "")
    return bool(token) and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _address_of(url: str) -> str | None:
    """Return the host and port of a URL; None if it is malformed."""
    with suppress(ValueError):
        return urlsplit(url).netloc
    return None


class Client:
    """One page that is connected.

    Attributes
    ----------
    under_way
        The number of items that it has not shown yet.
    may_change
        Whether it may ask for anything, or only be shown what there is.
    seen
        The server's notes about it: up to where it was told something.
    reading_since
        When it was last known to read: it said something, took data, or had nothing to read.
    """

    def __init__(self, socket: Any, transport: Any, may_change: bool = True) -> None:
        self._socket, self._transport, self.may_change = socket, transport, may_change
        self.under_way = 0
        self.seen: dict[str, int] = {}
        # Short: `under_way` limits items that replace each other, and there are few that stay.
        self._queue: asyncio.Queue[tuple[Item, bool]] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None
        self._sent: Item | None = None
        self._is_finished = False
        self.reading_since, self._unread = monotonic(), 0

    @property
    def is_free(self) -> bool:
        """Whether it can take an item."""
        return self.under_way < _MOST_UNDER_WAY

    def confirm(self) -> None:
        """Note that it has shown an item."""
        self.under_way = max(0, self.under_way - 1)

    def note_message(self, now: float) -> None:
        """Note that it has said something."""
        self.reading_since = now

    def note_reading(self, now: float) -> None:
        """Note whether it has nothing to read, or has taken some of it since the last call."""
        unread = self._transport.get_write_buffer_size()
        if unread < self._unread or not (self.under_way or self._is_finished):
            self.reading_since = now
        self._unread = unread

    def start(self) -> None:
        """Begin to send."""
        self._sender = asyncio.get_running_loop().create_task(self._work())

    def say(self, **fields: Any) -> None:
        """Send a message, unless several wait already."""
        if self._queue.qsize() < 4 and not self._is_finished:
            self._queue.put_nowait((json.dumps(fields), False))

    def send(self, item: Item, is_needed: bool) -> None:
        """Send an item, unless too many wait already: a client that does not read must not use up the memory."""
        if self._queue.qsize() < (8 if is_needed else 4) and not self._is_finished:
            self.under_way += 1
            self._queue.put_nowait((item, True))

    def finish(self, last: Item | None) -> None:
        """Send the last item and the end in place of everything that waits; the client then disconnects."""
        if self._is_finished or self._sender is None:  # its handler finishes one that is not started yet
            return
        while not self._queue.empty():
            self._queue.get_nowait()
        if last is not None and last is not self._sent:
            self._queue.put_nowait((last, True))
        self.say(type="ended")
        self._is_finished = True

    def abort(self) -> None:
        """Disconnect a client that does not answer; what it has not read is lost."""
        self._transport.abort()

    async def stop(self) -> None:
        """End the sending."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            item, is_item = await self._queue.get()
            if is_item:
                self._sent = item
            send = self._socket.send_bytes if isinstance(item, bytes) else self._socket.send_str
            try:
                await send(item)
            except (ConnectionError, RuntimeError):  # it is closing; its reader ends the client
                return
