"""Being told that a stream has passed a point, without polling and without blocking a worker.

On a real device there are two ways, measured on an H200 by ``benchmarks/completion.py`` (its figures are in
``benchmarks/results``): a host function on the stream, and a thread that waits for an event.

The waiting thread was chosen. Against a host function on the stream it

* costs the caller 2 µs instead of 18: handing an event to a thread, against a call into the driver;
* leaves no gap: a host function holds up what follows it in its stream by some 70 µs, a host function on a
  second stream that waits for the first does not, but costs the caller 28 µs;
* answers sooner (the end of a 300 µs kernel is known after 350 to 410 µs, against 430 to 500), and
* never asks for Python's lock on a thread of the driver's. A host function does, and a library that holds
  that lock while it synchronises then waits for itself.

A thread serves one stream at a time, since the points of one stream are passed in order and those of several
are not. It sleeps in the driver: events made here have ``blocking_sync``, because a spinning thread learns it
60 µs sooner but keeps a core busy, one for each stream. A caller that wants that gives its own event without
``blocking_sync``.

On a simulated device the simulation itself calls back.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.gpu import sim

Callback = Callable[[Exception | None], object]


def when_done(point: Any, callback: Callback, *, stream: Any = None) -> None:
    """Have a function called, soon after the device gets to a point, on a thread of penstock's.

    Parameters
    ----------
    point : Event or Stream
        An event that has been recorded, or a stream: then the point is what was submitted to it so far.
    callback : callable
        Called once, with None, or with the error if the device failed. It should be short and must not wait
        for the device; it may submit work. What it raises is reported through ``threading.excepthook``.
    stream : Stream, optional
        Where an event was recorded, if known. The points of one stream are waited for by one thread.
    """
    point = getattr(point, "stream", point)  # a StreamHandle stands for its stream
    if isinstance(point, sim.Stream):
        point = point.record()
    if isinstance(point, sim.Event):
        _when_done_simulated(point, callback)
        return
    if hasattr(point, "__cuda_stream__"):
        from penstock.gpu.cuda import EventOptions

        stream = point
        point = point.record(options=EventOptions(blocking_sync=True))
    lane = id(point) if stream is None else int(stream.__cuda_stream__()[1])
    _waiters.add(lane, point, callback)


def _when_done_simulated(event: sim.Event, callback: Callback) -> None:
    timeline = event._context.device.machine.timeline
    with timeline.lock:
        mark = event._mark
        if mark is None or mark.passed:
            timeline.run_foreign(lambda: _call(callback, None))
        else:
            mark.then(lambda: timeline.run_foreign(lambda: _call(callback, None)))


class _Waiters:
    """Threads that wait for events, one for each stream that has any outstanding."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[int, deque[tuple[Any, Callback]]] = {}
        self._free: deque[_Assignment] = deque()

    def add(self, lane: int, event: Any, callback: Callback) -> None:
        with self._lock:
            waiting = self._lanes.get(lane)
            if waiting is not None:  # a thread is on that lane already and will get to it
                waiting.append((event, callback))
                return
            self._lanes[lane] = deque([(event, callback)])
            assignment = self._free.pop() if self._free else None
            if assignment is not None:
                assignment.lane = lane
        if assignment is None:
            assignment = _Assignment(lane)
            threading.Thread(
                target=self._serve, args=(assignment,), name="penstock-waiter", daemon=True
            ).start()
        assignment.go.release()

    def _serve(self, assignment: "_Assignment") -> None:
        while True:
            assignment.go.acquire()
            while True:
                with self._lock:
                    waiting = self._lanes[assignment.lane]
                    if not waiting:
                        del self._lanes[assignment.lane]
                        self._free.append(assignment)
                        break
                    event, callback = waiting.popleft()
                error: Exception | None = None
                try:
                    event.sync()
                except Exception as failure:
                    error = failure
                _call(callback, error)
                del event, callback  # the thread may now sleep for long; what it held must not live on


class _Assignment:
    """The lane that a waiting thread serves next, and the lock it sleeps on until there is one."""

    __slots__ = ("go", "lane")

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.go = threading.Semaphore(0)


_waiters = _Waiters()


def _call(callback: Callback, error: Exception | None) -> None:
    try:
        callback(error)
    except Exception:
        kind, value, traceback = sys.exc_info()
        assert kind is not None
        threading.excepthook(threading.ExceptHookArgs((kind, value, traceback, threading.current_thread())))
