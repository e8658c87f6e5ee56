"""Functions that a stream of a GPU calls: completion callbacks and host functions.

**Completion callbacks.** A GPU offers two ways: a host function on the stream, and a thread that waits for an
event. ``benchmarks/completion.py`` measures both on a GPU; ``benchmarks/results/completion.md`` has the results.

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

**Host functions.** cuda.core has no method for them, so the driver is called through cuda.bindings. The driver
takes the address of a C function; ctypes creates one from a Python function, and is used for nothing else.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from headrace import waits
from headrace.gpu.backend import Backend, Callback
from headrace.gpu.callbacks import report_ignored, report_uncaught
from headrace.gpu.stream_handle import SupportsStream, handle_of

if TYPE_CHECKING:
    from headrace.gpu import sim

# How long an idle thread stays, in seconds: streams come and go, and threads must not accumulate.
_IDLE_TIMEOUT = 30.0
_STOP_TIMEOUT = 1.0


class CudaCallbacks(Backend):
    """The part of the backend that calls functions of the program."""

    def when_done(self, stream: SupportsStream, callback: Callback, event: sim.Event | None) -> None:
        """Call a function when a stream has reached an event; by default, the end of its work so far."""
        owner: Any = getattr(stream, "stream", stream)
        handle = handle_of(owner)
        if event is None:
            from headrace.gpu.cuda import LEGACY_DEFAULT_STREAM, Stream

            if not isinstance(
                owner, Stream
            ):  # the streams of CuPy and PyTorch record events of their own kinds
                owner = Stream.from_handle(handle) if handle else LEGACY_DEFAULT_STREAM
            event = owner.record()
        # Keyed by device as well: the default streams of all devices have the same handle.
        _waiter_threads.add((event.device.device_id, handle), event, callback)

    def launch_host(self, stream: SupportsStream, function: Callable[[], object]) -> None:
        """Call a function on the host between two pieces of a stream's work."""
        from cuda.bindings import driver

        token = next(_tokens)
        _pending[token] = function
        (status,) = driver.cuLaunchHostFunc(driver.CUstream(handle_of(stream)), _entry(), token)
        if status != driver.CUresult.CUDA_SUCCESS:
            del _pending[token]
            raise RuntimeError(f"the driver refused a host function on {stream!r}: {status.name}")


class _WaiterThreads:
    """Threads that wait for events, one for each stream that was waited for recently."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, int], queue.SimpleQueue[tuple[Any, Callback] | None]] = {}
        self._threads: dict[tuple[int, int], threading.Thread] = {}

    def add(self, key: tuple[int, int], event: Any, callback: Callback) -> None:
        with self._lock:
            requests = self._queues.get(key)
            if requests is None:
                requests = queue.SimpleQueue()
                thread = threading.Thread(
                    target=self._serve, args=(key, requests), name="headrace-waiter", daemon=True
                )
                thread.start()  # if this fails, no queue must remain that no thread serves
                self._queues[key] = requests
                self._threads[key] = thread
            requests.put((event, callback))

    def stop(self) -> None:
        """End the threads, at the end of the process, unless they wait for a device that does not end its work.

        Before 3.14, Python ends a daemon thread that comes back from a library by unwinding its stack, and C++ ends
        the process then ("terminate called without an active exception").
        """
        with self._lock:
            threads = list(self._threads.values())
            for requests in self._queues.values():
                requests.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                waits.join(thread, _STOP_TIMEOUT)

    def _serve(self, key: tuple[int, int], requests: queue.SimpleQueue[tuple[Any, Callback] | None]) -> None:
        waiter: _EventWaiter | None = None
        while True:
            try:
                request = requests.get(timeout=_IDLE_TIMEOUT)
            except queue.Empty:
                with self._lock:  # nothing is added while this thread decides to end
                    if not requests.empty():
                        continue
                    del self._queues[key], self._threads[key]
                    return
            if request is None:
                return
            event, callback = request
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
            del (
                request,
                event,
                callback,
                error,
            )  # the thread may now sleep for long and must keep nothing alive


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
atexit.register(_waiter_threads.stop)

_pending: dict[int, Callable[[], object]] = {}
_tokens = itertools.count(1)  # not 0: the driver passes it as a pointer, and ctypes converts NULL to None


@cache
def _entry() -> Any:
    """Return the C function that the driver calls with a token; created once, and kept alive for the driver."""
    import ctypes

    from cuda.bindings import driver

    c_entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_pending)
    _kept.append(c_entry)
    return driver.CUhostFn(ctypes.cast(c_entry, ctypes.c_void_p).value)


_kept: list[Any] = []


def _call_pending(token: int) -> None:
    function = _pending.pop(token)
    try:
        function()
    except BaseException as error:  # a thread of the driver has no caller to raise it to
        report_ignored(error, function)
