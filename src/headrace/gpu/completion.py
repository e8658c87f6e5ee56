"""Completion callbacks: functions called when a stream has reached a point, without polling or blocking.

A real device offers two ways: a host function on the stream, and a thread that waits for an event.
``benchmarks/completion.py`` measures both on a GPU; ``benchmarks/results/completion.md`` has the results.

The waiting thread was chosen. Compared with a host function on the stream, it

* leaves no gap: a host function delays the work behind it by more than 100 µs. A host function on a second
  stream that waits for the first causes no delay, but submitting it costs the caller twice as much;
* never takes the GIL on a thread of the driver. A host function does, and a library that holds the GIL while it
  synchronizes then deadlocks.

The latency is about the same: slightly shorter with one stream, slightly longer with eight.

Each thread serves one stream, because only the points of a single stream are reached in a known order. The thread
sleeps in the driver, on a ``blocking_sync`` event that is recorded on the thread's own stream behind the point. A
thread that spins would notice about 120 µs sooner, but it would keep a core busy for each stream. The events that
order streams are plain events, since few of them are waited for. The cost of a ``blocking_sync`` event without a
waiting thread was not measured separately.

On a simulated device, the simulation makes the call.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.gpu.simulated import is_simulated
from headrace.gpu.stream_handle import SupportsStream, handle_of
from headrace.gpu.uncaught import report_uncaught

if TYPE_CHECKING:
    from headrace.gpu import sim

Callback = Callable[[Exception | None], object]

# How long an idle thread stays, in seconds: streams come and go, and threads must not accumulate.
_IDLE_TIMEOUT = 30.0


def when_done(stream: SupportsStream, callback: Callback, *, event: sim.Event | None = None) -> None:
    """Call a function on one of headrace's threads soon after a stream has reached a point.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of a real or a simulated device.
    callback : callable
        Called once, with None, or with the error if the device failed. It should be short and must not wait for the
        device. It may submit work, and the stream's device is current. Its errors are reported through
        ``threading.excepthook``.
    event : Event, optional
        An event recorded on the stream at the point to wait for; by default, the end of all work submitted so far.
    """
    owner: Any = getattr(stream, "stream", stream)  # the stream of a StreamHandle
    if is_simulated(owner):
        _when_done_simulated(owner.record() if event is None else event, callback)
        return
    handle = handle_of(owner)
    if event is None:
        from headrace.gpu.cuda import LEGACY_DEFAULT_STREAM, Stream

        if not isinstance(owner, Stream):  # the streams of CuPy and PyTorch record events of their own kinds
            owner = Stream.from_handle(handle) if handle else LEGACY_DEFAULT_STREAM
        event = owner.record()
    # Keyed by device as well: the default streams of all devices have the same handle.
    _waiter_threads.add((event.device.device_id, handle), event, callback)


class _WaiterThreads:
    """Threads that wait for events, one for each stream that was waited for recently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int], queue.SimpleQueue[tuple[Any, Callback]]] = {}

    def add(self, key: tuple[int, int], event: Any, callback: Callback) -> None:
        with self._lock:
            requests = self._queues.get(key)
            if requests is None:
                requests = queue.SimpleQueue()
                threading.Thread(
                    target=self._serve, args=(key, requests), name="headrace-waiter", daemon=True
                ).start()  # if this fails, no queue must remain that no thread serves
                self._queues[key] = requests
            requests.put((event, callback))

    def _serve(self, key: tuple[int, int], requests: queue.SimpleQueue[tuple[Any, Callback]]) -> None:
        waiter: _EventWaiter | None = None
        while True:
            try:
                event, callback = requests.get(timeout=_IDLE_TIMEOUT)
            except queue.Empty:
                with self._lock:  # nothing is added while this thread decides to end
                    if not requests.empty():
                        continue
                    del self._queues[key]
                    return
            error: Exception | None = None
            try:
                event.device.set_current()  # each time: a callback may have made another context current
                if waiter is None:
                    waiter = _EventWaiter(event.device)
                waiter.wait(event)
            except Exception as failure:
                error = failure
            try:
                callback(error)
            except BaseException as failure:  # including sys.exit: other callbacks depend on this thread
                report_uncaught(failure)
            del event, callback, error  # the thread may now sleep for long and must keep nothing alive


class _EventWaiter:
    """Puts a thread to sleep in the driver until a device has reached an event."""

    def __init__(self, device: Any) -> None:
        from headrace.gpu.cuda import EventOptions

        self._stream = device.create_stream()
        self._event = device.create_event(EventOptions(blocking_sync=True))

    def wait(self, event: Any) -> None:
        if not event.is_done:
            self._stream.wait(event)
            self._stream.record(self._event)
            self._event.sync()


_waiter_threads = _WaiterThreads()


def _when_done_simulated(event: sim.Event, callback: Callback) -> None:
    device = event._context.device
    timeline = device.machine.timeline
    # An event of a capture cannot be waited for. On a real device the waiting thread gets the error.
    refused = event._refuse_capture("waited for")

    def notify() -> None:
        try:
            callback(refused or device.machine.failure)
        except (
            Exception
        ) as error:  # KeyboardInterrupt is not the callback's: it belongs to the waiting thread
            report_uncaught(error)

    def call() -> None:
        if timeline.remove_stop_callback(token):
            device.call(notify)

    with timeline.lock:
        # A closed machine reaches no more points: the callback is then called with the error of the closed machine.
        token = timeline.add_stop_callback(lambda error: device.call(lambda: callback(error)))
        fence = event._fence
        if fence is None or fence.is_signaled:
            timeline.run_user_code(call)
        else:
            fence.on_signal(lambda: timeline.run_user_code(call))
