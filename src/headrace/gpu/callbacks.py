"""Functions that a stream calls, when it reached a point or between two pieces of its work; and their errors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

from headrace.gpu.backend import Callback, Event, backend_of
from headrace.gpu.stream_handle import SupportsStream, handle_of


def when_done(stream: SupportsStream, callback: Callback, *, event: Event | None = None) -> None:
    """Call a function on one of headrace's threads soon after a stream has reached a point.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of any device.
    callback : callable
        Called once, with None, or with the error if the device failed. It should be short and must not wait for the
        device. It may submit work, and the stream's device is current. Its errors are reported through
        ``threading.excepthook``.
    event : Event, optional
        An event recorded on the stream at the point to wait for; by default, the end of all work submitted so far.
    """
    backend_of(stream).when_done(stream, callback, event)


def launch_host(stream: SupportsStream, function: Callable[[], object]) -> None:
    """Call a function on the host after the work that was submitted to a stream so far.

    Work that is submitted later waits until the function has returned. The function runs on a thread of the
    driver and must not call CUDA. Its errors are reported through ``sys.unraisablehook``.

    Use it to order work on the host between two pieces of work on the device. For a notification that a stream has
    reached a point, use :func:`when_done`, which costs less and leaves no gap in the stream.

    It cannot be recorded: on a stream that captures it raises a RuntimeError, and the capture goes on. What
    cuda.bindings hands to the driver is freed after the first call, and a graph would call it again.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of any device.
    function : callable
        Called without arguments.
    """
    handle_of(stream)  # an error that names the type, if it is no stream
    backend = backend_of(stream)
    if backend.is_capturing(stream):
        raise RuntimeError(f"{stream!r} is capturing, and a function of the host cannot be recorded")
    backend.launch_host(stream, function)


def report_uncaught(error: BaseException) -> None:
    """Report an error through ``threading.excepthook``, as if it had ended the current thread."""
    args = (type(error), error, error.__traceback__, threading.current_thread())
    threading.excepthook(threading.ExceptHookArgs(args))


def report_ignored(error: BaseException, function: Callable[[], object]) -> None:
    """Report an error of a host function through ``sys.unraisablehook``."""
    # The attributes that the hook reads; Python code cannot create sys.UnraisableHookArgs.
    args = SimpleNamespace(
        exc_type=type(error),
        exc_value=error,
        exc_traceback=error.__traceback__,
        err_msg="Exception ignored in a host function",
        object=function,
    )
    sys.unraisablehook(args)
