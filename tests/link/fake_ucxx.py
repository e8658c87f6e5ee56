"""A stand-in for UCXX within one process, so that the seam is tested where the library is not installed.

As the real one with rendezvous: nothing is copied before the receiver has said where to, requests complete when a
worker makes progress, and the descriptor of a worker is readable for what comes after it was armed. A worker that
goes would wait for the senders of what was announced to it: `waits` counts that.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

_workers: WeakValueDictionary[bytes, Worker] = WeakValueDictionary()
waits: list[int] = []


class UCXError(Exception):
    pass


class Request:
    def __init__(self) -> None:
        self.completed = False
        self.error: str | None = None

    def end(self, error: str | None = None) -> None:
        self.completed, self.error = True, error

    def check_error(self) -> None:
        if self.error is not None:
            raise UCXError(self.error)


class Worker:
    def __init__(self, context: Any, **options: Any) -> None:
        assert options == {"enable_delayed_submission": False, "enable_python_future": False}
        self.epoll_file_descriptor = os.eventfd(0, os.EFD_NONBLOCK)
        self.name = os.urandom(8)
        self.address = SimpleNamespace(tobytes=lambda: self.name)
        self.sent: deque[tuple[int, Any, Request, Worker]] = deque()
        self.work: deque[Any] = deque()
        _workers[self.name] = self

    def __del__(self) -> None:
        waits.extend(tag for tag, *_ in self.sent)
        os.close(self.epoll_file_descriptor)

    def init_blocking_progress_mode(self) -> None:
        pass

    def add(self, step: Any) -> None:
        self.work.append(step)
        os.eventfd_write(self.epoll_file_descriptor, 1)

    def arm(self) -> bool:
        return not self.work

    def progress_once(self) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self.epoll_file_descriptor)
        if not self.work:
            return False
        self.work.popleft()()
        return True

    def create_endpoint_from_worker_address(self, address: bytes, handles_errors: bool) -> Endpoint:
        assert handles_errors
        if address not in _workers:
            raise UCXError("Destination is unreachable")
        return Endpoint(self, _workers[address])

    def tag_probe(self, tag: int, tag_mask: int = -1, *, remove: bool = False) -> Any:
        found = self.sent[0] if self.sent and not (self.sent[0][0] ^ tag) & tag_mask else None
        if found is not None and remove:
            self.sent.popleft()
        return SimpleNamespace(matched=found is not None, length=len(found[1]) if found else 0, found=found)

    def tag_recv_with_handle(self, target: Any, probed: Any) -> Request:
        request, (_, content, sent, sender) = Request(), probed.found

        def copy() -> None:
            target[:] = content
            request.end()
            sender.add(sent.end)

        self.add(copy)
        return request

    def cancel_inflight_requests(self) -> int:
        return 0


class Endpoint:
    alive = True

    def __init__(self, worker: Worker, peer: Worker) -> None:
        self.worker, self.peer = worker, peer
        self.requests: list[Request] = []

    def tag_send(self, content: Any, tag: int) -> Request:
        self.requests.append(Request())
        note = (tag, content, self.requests[-1], self.worker)
        self.peer.add(lambda: self.peer.sent.append(note))
        return self.requests[-1]

    def break_down(self) -> None:
        """Fail as an endpoint does whose peer is gone."""
        self.alive = False
        for request in self.requests:
            self.worker.add(lambda request=request: request.end("Connection reset by remote peer"))

    def close_blocking(self) -> None:
        assert self.alive
        for request in self.requests:
            if not request.completed:
                request.end("Request canceled")


libucxx = SimpleNamespace(
    UCXContext=lambda config, feature_flags: object(),
    UCXWorker=Worker,
    UCXXTag=int,
    UCXXTagMask=int,
    UCXAddress=SimpleNamespace(create_from_buffer=bytes),
    Feature=SimpleNamespace(TAG=1, WAKEUP=2),
)
arr = SimpleNamespace(Array=np.asarray)
