"""UcxCarrier: a TCP connection beside which the memory of large frames travels by UCX, over RDMA if there is any.

Both ends agree on it in their handshake (`is_wanted`), which stays on TCP, as do headers, bodies and small frames.
So order, credits, beats and the loss of a peer are those of `TcpCarrier`. More than `MAX_INLINE` bulk bytes do not
follow their header: they come as messages of UCX, one for each buffer, from the memory of the sender to that of the
receiver. A message is complete, and those behind it are returned, when all of its bytes have arrived.

The carriers tell each other two things over TCP, by messages of the kind CARRIER, which no end of a link sees:

- first, the address and the tag for the bulk bytes that the peer sends, which is a random number of 64 bits;
- later, with an empty body, that the bulk bytes of one more message have arrived. UCX says that bytes were sent,
  not that they were received. An end that closes waits for this, so a connection that ends before is a loss.

Each carrier has a worker of UCX for itself: the lock of its end is then the only one needed. Nothing waits. The
descriptor is an epoll of the socket and of the worker. It is never writable: `receive` also sends what is left.

Decided against: the stream interface of UCX, which always copies; everything by UCX, which with some transports
notices late that a peer is lost.

How UCXX 0.52 is closed, by trial:

- An endpoint that has failed must not be closed: UCXX crashes.
- If an endpoint is closed while it sends, as to a frozen peer, UCXX keeps its worker, with eight descriptors or
  nine, whatever is cancelled and in whichever order. So the next carrier gets that worker: its messages have
  another tag.
- A worker that goes while a message is announced to it receives that message first, and waits for its sender, which
  may be frozen: for ever. So everything that was announced is received before, as far as that goes without waiting.
  If that takes longer, the worker stays, and is looked at again when another connection is closed. The next carrier
  does not get it: a connection between the same two workers is canceled by the end of the one before.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from headrace.core.errors import LinkError, ProtocolError
from headrace.lazy import import_or_explain
from headrace.link.carrier import Buffer, CarrierClosed, Received
from headrace.link.lingering import note_unsent
from headrace.link.tcp import TcpCarrier
from headrace.link.wire import MAX_INLINE, Kind, pack_header

VARIABLE = "HEADRACE_LINK_UCX"
_DEVICES = "/sys/class/infiniband"
_FRAMES = ("link", "topic")  # the purposes of connections that carry frames
_TAG = struct.Struct("<Q")
_STEPS = 64  # of UCX in one call, so that one link does not keep the others waiting
_CARRIER_KIND = int(Kind.CARRIER)
_log = logging.getLogger("headrace.link")
_left: deque[_Left] = deque()


class _Library(NamedTuple):
    ucx: Any  # the types of UCXX
    array: Any  # what describes memory to them
    context: Any
    any_tag: Any  # the mask that lets every tag pass
    spare: deque[Any]  # workers that UCXX would keep


def is_wanted(kind: str) -> bool:
    """Return whether this end can carry the frames of a connection by UCX, and should.

    `HEADRACE_LINK_UCX` says so, "0" for no and anything else for yes; without it, an RDMA device does.

    Parameters
    ----------
    kind
        That of the purpose of the connection.
    """
    return kind in _FRAMES and _library(os.environ.get(VARIABLE, ""), os.getpid()) is not None


@cache
def _library(setting: str, process: int) -> _Library | None:
    """Return UCXX for a process, None if it is not to be used; say why if that may be a surprise."""
    if setting == "0" or not (setting or _has_device()):
        return None
    os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")  # UCXX sets some itself
    try:
        ucx = import_or_explain("ucxx._lib.libucxx", "ucx", "to carry frames by UCX")
        array = import_or_explain("ucxx._lib.arr", "ucx", "to carry frames by UCX")
    except ImportError as error:
        level = logging.WARNING if setting else logging.INFO
        _log.log(level, "frames between hosts travel by TCP: %s", error)
        return None
    try:
        context = ucx.UCXContext({}, feature_flags=(ucx.Feature.TAG, ucx.Feature.WAKEUP))
    except Exception as error:  # whatever UCX raises for a setting of its own
        _log.warning("frames between hosts travel by TCP, since UCX cannot be used: %s", error)
        return None
    return _Library(ucx, array.Array, context, ucx.UCXXTagMask(0), deque())


def _has_device() -> bool:
    try:
        return bool(os.listdir(_DEVICES))
    except OSError:
        return False


def _new_worker(library: _Library) -> Any:
    worker = library.ucx.UCXWorker(
        library.context, enable_delayed_submission=False, enable_python_future=False
    )
    worker.init_blocking_progress_mode()
    return worker


def _spare_worker(library: _Library) -> Any:
    with suppress(IndexError):
        return library.spare.popleft()
    return None


class _Left:
    """What UCX has not let go of after a connection was closed: requests, their memory, and the worker."""

    __slots__ = ("library", "memory", "requests", "worker")

    def __init__(self, worker: Any, library: _Library, requests: list[Any], memory: list[Any]) -> None:
        self.worker = worker  # None where another connection uses it
        self.library = library
        self.requests = requests
        self.memory = memory

    def finish(self) -> bool:
        """Receive what was announced, as far as that goes without waiting; return whether nothing is left."""
        if self.worker is None:
            return self._is_complete()
        try:
            for _ in range(_STEPS):
                if not (self.worker.progress_once() or self._receive()) and self._is_complete():
                    return True
        except Exception as error:  # whatever UCX raises: nobody uses the connection any more
            _log.debug("a connection of UCX was not closed in order: %s", error)
            return self._is_complete()
        return False

    def _receive(self) -> bool:
        found = self.worker.tag_probe(self.library.ucx.UCXXTag(0), self.library.any_tag, remove=True)
        if found.matched:
            self.memory.append(np.empty(found.length, np.uint8))
            self.requests.append(self.worker.tag_recv_with_handle(self.library.array(self.memory[-1]), found))
        return bool(found.matched)

    def _is_complete(self) -> bool:
        return all(request.completed for request in self.requests)


class _Arriving:
    """A message whose bulk bytes are under way: what is missing, and what UCX was asked to receive."""

    __slots__ = ("message", "missing", "requests")

    def __init__(self, message: Received) -> None:
        self.message = message
        by_ucx = message.header.bulk > MAX_INLINE
        self.missing: memoryview = (
            message.bulk.data if by_ucx and message.bulk is not None else memoryview(b"")
        )
        self.requests: list[Any] = []

    @property
    def is_complete(self) -> bool:
        return not self.missing and all(request.completed for request in self.requests)


class UcxCarrier(TcpCarrier):
    """A connection whose ends have agreed to carry large frames by UCX; otherwise as a `TcpCarrier`."""

    def __init__(self, connected: socket.socket, silence: float = 3.0) -> None:
        library = _library(os.environ.get(VARIABLE, ""), os.getpid())
        assert library is not None
        super().__init__(connected, silence)
        self._reader.most_in_stream = MAX_INLINE
        self._library = library
        try:
            self._worker = _spare_worker(library) or _new_worker(library)
        except Exception as error:  # whatever UCX raises, as without descriptors
            raise LinkError(f"UCX cannot make a connection: {error}; {VARIABLE}=0 does without it") from error
        self._epoll = select.epoll()
        self._epoll.register(self._worker.epoll_file_descriptor, select.EPOLLIN)
        self._epoll.register(self._socket, select.EPOLLIN)
        self._is_watched = False  # the socket, for room to send
        self._is_busy = False  # UCX has more to do
        self._endpoint: Any = None
        self._peer: tuple[bytes, Any] | None = None  # its address and tag
        self._outgoing: deque[memoryview] = deque()  # bulk bytes, before the peer has said its address,
        self._sending: deque[tuple[Any, memoryview]] = deque()  # and those that UCX sends
        self._unconfirmed = 0  # messages whose bulk bytes the peer has not confirmed
        self._arriving: deque[_Arriving] = deque()
        self._failure: str | None = None
        self._refusal: ProtocolError | None = None
        tag = secrets.randbits(64)
        self._tag = library.ucx.UCXXTag(tag)
        self._say(_TAG.pack(tag) + self._worker.address.tobytes())

    def fileno(self) -> int:
        """Return the descriptor of the epoll."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait to be sent, or bulk bytes were not confirmed."""
        return not self._is_broken and bool(self._waiting or self._unconfirmed)

    def send(
        self,
        header: bytes,
        body: bytes = b"",
        bulk: Sequence[Buffer] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """Send a message, or keep what is not taken now; the buffers are kept until the peer has them."""
        parts = [memoryview(part).cast("B") for part in bulk if len(part)]
        by_ucx = sum(map(len, parts)) > MAX_INLINE and not self._is_broken
        super().send(header, body, () if by_ucx else parts, descriptors)
        if by_ucx:
            self._unconfirmed += 1
            self._outgoing.extend(parts)
            self._is_noted = True
            note_unsent(self, self._silence)
            self._progress()
        self._watch()

    def flush(self) -> None:
        """Send what waits, and let UCX go on."""
        super().flush()
        self._progress()
        self._watch()

    def receive(self) -> list[Received]:
        """Return the messages that have arrived, each after those before it."""
        if self._epoll.closed:
            return super().receive()
        if self._refusal is not None:
            raise self._refusal
        end: CarrierClosed | None = None
        try:
            for message in super().receive():
                if message.header.kind == _CARRIER_KIND:
                    self._hear(message.body)
                else:
                    self._arriving.append(_Arriving(message))
        except CarrierClosed as error:
            end = error
        self._progress()
        messages = self._take()
        self.flush()
        if end is not None and not messages:
            if self._failure is not None:
                raise CarrierClosed(
                    f"{end}, after UCX had failed ({self._failure}); if the peer still runs, {VARIABLE}=0 on "
                    "either host lets frames travel by TCP"
                )
            if self._arriving:
                raise CarrierClosed("the connection was closed in the middle of a message")
            raise end
        return messages

    def close(self, patience: float | None = None) -> None:
        """Close the connection, and let UCX forget what was not sent or received."""
        if not self._epoll.closed:
            self._epoll.close()
            self._stop()
        super().close(patience)

    def _stop(self) -> None:
        """End what is under way, without waiting for it; also what earlier connections have left."""
        requests = [request for request, _ in self._sending]
        is_sending = not all(request.completed for request in requests)
        requests += [request for arriving in self._arriving for request in arriving.requests]
        left = _Left(self._worker, self._library, requests, [self._sending, self._arriving])
        try:
            if self._endpoint is not None and self._endpoint.alive:
                self._endpoint.close_blocking()
            self._worker.cancel_inflight_requests()
        except Exception as error:  # whatever UCX raises: the connection is closed anyway
            _log.debug("a connection of UCX was not closed in order: %s", error)
        self._outgoing, self._sending, self._arriving = deque(), deque(), deque()
        self._endpoint = self._worker = None
        left.finish()
        if is_sending:
            worker, left.worker = left.worker, None
            self._library.spare.append(worker)
        _left.append(left)
        for _ in range(len(_left)):
            with suppress(IndexError):  # another thread was faster
                earlier = _left.popleft()
                if not earlier.finish():
                    _left.append(earlier)

    def _say(self, body: bytes = b"") -> None:
        super().send(pack_header(_CARRIER_KIND, 0, 0, len(body)), body)

    def _hear(self, body: bytes) -> None:
        """Note what the carrier of the peer says."""
        if not body and self._unconfirmed and not self._outgoing:
            self._unconfirmed -= 1
        elif len(body) > _TAG.size and self._peer is None:
            self._peer = body[_TAG.size :], self._library.ucx.UCXXTag(*_TAG.unpack_from(body))
        elif self._failure is None:
            raise ProtocolError(f"the carrier of the peer says {len(body)} bytes that do not belong here")

    def _fail(self, error: Exception) -> None:
        """Send no more, and tell the peer by the end of what is sent; what it said before can still be read."""
        self._failure = str(error)
        self._is_broken = True
        self._waiting.clear()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _progress(self) -> None:
        """Let UCX go on with what it sends and receives, without waiting."""
        if self._epoll.closed or self._failure is not None:
            return
        try:
            if self._outgoing and self._peer is not None:
                self._start(*self._peer)
            self._is_busy = True
            for _ in range(_STEPS):
                # What came before the worker is armed does not make its descriptor readable.
                if not (self._worker.progress_once() or self._match()) and self._worker.arm():
                    self._is_busy = False
                    break
            while self._sending and self._sending[0][0].completed:
                self._sending[0][0].check_error()
                self._sending.popleft()
        except ProtocolError as error:
            self._refusal = error
        except Exception as error:  # whatever UCX raises
            self._fail(error)

    def _start(self, peer: bytes, tag: Any) -> None:
        """Let UCX send what waits for it; an end that only receives never connects."""
        if self._endpoint is None:
            address = self._library.ucx.UCXAddress.create_from_buffer(bytearray(peer))
            self._endpoint = self._worker.create_endpoint_from_worker_address(address, True)
        while self._outgoing:
            part = self._outgoing.popleft()
            self._sending.append((self._endpoint.tag_send(self._array(part), tag), part))

    def _match(self) -> bool:
        """Let UCX receive what was announced, straight into the memory of its message; return if there was any."""
        has_matched = False
        for arriving in self._arriving:
            while arriving.missing:
                found = self._worker.tag_probe(self._tag, remove=True)
                if not found.matched:
                    return has_matched
                size = found.length
                if not 0 < size <= len(arriving.missing):
                    raise ProtocolError(f"{size} bulk bytes came, and {len(arriving.missing)} were announced")
                target, arriving.missing = arriving.missing[:size], arriving.missing[size:]
                arriving.requests.append(self._worker.tag_recv_with_handle(self._array(target), found))
                has_matched = True
        return has_matched

    def _array(self, memory: memoryview) -> Any:
        return self._library.array(np.frombuffer(memory, np.uint8))

    def _take(self) -> list[Received]:
        """Return the messages that are complete, up to the first that is not; confirm their bulk bytes."""
        messages: list[Received] = []
        while self._arriving:
            arriving = self._arriving[0]
            if not arriving.is_complete:
                break
            try:
                for request in arriving.requests:
                    request.check_error()
            except Exception as error:  # whatever UCX raises
                self._fail(error)
                break
            if arriving.requests:
                self._say()
            messages.append(arriving.message)
            self._arriving.popleft()
        return messages

    def _watch(self) -> None:
        """Let the descriptor be readable when the socket takes more, which is at once if nothing waits for it."""
        wants = bool(self._waiting or self._is_busy or self._refusal is not None)
        wants = wants or bool(self._arriving and self._arriving[0].is_complete)
        if wants is not self._is_watched and not self._epoll.closed:
            self._is_watched = wants
            self._epoll.modify(self._socket, select.EPOLLIN | (select.EPOLLOUT if wants else 0))
