"""Being told that a stream has passed a point, without polling and without blocking a worker.

On a real device there are two ways: a host function on the stream, and a thread that waits for an event.
``benchmarks/completion.py`` measures both on a GPU; its figures are in ``benchmarks/results/completion.md``.

The waiting thread was chosen. Against a host function on the stream it

* leaves no gap: a host function holds up what follows it in its stream by more than 100 µs. On a second stream
  that waits for the first it does not, but then asking costs the caller twice what it costs here, and
* never asks for Python's lock on a thread of the driver's. A host function does, and a library that holds
  that lock while it synchronises then waits for itself.

It learns it about as soon: a little sooner with one stream, a little later with eight.

A thread serves one stream, since the points of one stream are passed in order and those of several are not.
It sleeps in the driver, on an event made for that (``blocking_sync``) and recorded on a stream of its own that
waits for the point. A thread that spins learns it some 120 µs sooner, but keeps a core busy, one for each stream.
The events that streams are ordered by stay plain ones, since few of them are waited for. What a ``blocking_sync``
event costs where nobody waits was not measured by itself.

On a simulated device the simulation itself calls back.
"""

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.gpu.simulated import is_simulated
from penstock.gpu.stream_handle import handle_of
from penstock.gpu.uncaught import report

if TYPE_CHECKING:
    from penstock.gpu import sim

Callback = Callable[[Exception | None], object]

# How long a thread with nothing to wait for stays, in seconds: streams come and go, threads must not pile up.
_PATIENCE = 30.0


def when_done(stream: Any, callback: Callback, *, event: Any = None) -> None:
    """Have a function called soon after a stream has passed a point, on a thread of penstock's.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        Of a real or a simulated device.
    callback : callable
        Called once, with None, or with the error if the device failed. It should be short and must not wait
        for the device; it may submit work, and the stream's device is current. What it raises is reported
        through ``threading.excepthook``.
    event : Event, optional
        The point: an event that was recorded on the stream. By default, all that was submitted so far.
    """
    stream = getattr(stream, "stream", stream)  # a StreamHandle stands for its stream
    if is_simulated(stream):
        _when_done_simulated(stream.record() if event is None else event, callback)
        return
    handle = handle_of(stream)
    if event is None:
        from penstock.gpu.cuda import LEGACY_DEFAULT_STREAM, Stream

        if not isinstance(stream, Stream):  # CuPy's and PyTorch's record in ways of their own
            stream = Stream.from_handle(handle) if handle else LEGACY_DEFAULT_STREAM
        event = stream.record()
    _waiters.add(
        (event.device.device_id, handle), event, callback
    )  # all devices' default streams have one handle


class _Waiters:
    """Threads that wait for events, one for each stream that has had any lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int], queue.SimpleQueue[tuple[Any, Callback]]] = {}

    def add(self, lane: tuple[int, int], event: Any, callback: Callback) -> None:
        with self._lock:
            waiting = self._queues.get(lane)
            if waiting is None:
                waiting = queue.SimpleQueue()
                threading.Thread(
                    target=self._serve, args=(lane, waiting), name="penstock-waiter", daemon=True
                ).start()  # where that fails, nothing must stay that looks as if somebody served it
                self._queues[lane] = waiting
            waiting.put((event, callback))

    def _serve(self, lane: tuple[int, int], waiting: "queue.SimpleQueue[tuple[Any, Callback]]") -> None:
        bed: _Bed | None = None
        while True:
            try:
                event, callback = waiting.get(timeout=_PATIENCE)
            except queue.Empty:
                with self._lock:  # nothing is added while this thread makes up its mind to go
                    if not waiting.empty():
                        continue
                    del self._queues[lane]
                    return
            error: Exception | None = None
            try:
                event.device.set_current()  # each time: a callback may have made something else current
                if bed is None:
                    bed = _Bed(event.device)
                bed.sleep_until(event)
            except Exception as failure:
                error = failure
            try:
                callback(error)
            except BaseException as failure:  # sys.exit too: others wait for this thread
                report(failure)
            del event, callback, error  # the thread may now sleep for long; what it held must not live on


class _Bed:
    """Where a thread sleeps until a device has passed an event."""

    def __init__(self, device: Any) -> None:
        from penstock.gpu.cuda import EventOptions

        self._stream = device.create_stream()
        self._event = device.create_event(EventOptions(blocking_sync=True))

    def sleep_until(self, event: Any) -> None:
        if not event.is_done:
            self._stream.wait(event)
            self._stream.record(self._event)
            self._event.sync()


_waiters = _Waiters()


def _when_done_simulated(event: "sim.Event", callback: Callback) -> None:
    device = event._context.device
    timeline = device.machine.timeline

    def tell() -> None:
        try:
            callback(device.machine.failure)
        except Exception as error:  # Ctrl-C is not the callback's: it goes on to whoever waits
            report(error)

    def call() -> None:
        if timeline.expected(token):
            device.call(tell)

    with timeline.lock:
        # A machine that is closed passes no more points: then the callback is called with that for the error.
        token = timeline.expect(lambda why: device.call(lambda: callback(why)))
        mark = event._mark
        if mark is None or mark.passed:
            timeline.run_foreign(call)
        else:
            mark.then(lambda: timeline.run_foreign(call))
