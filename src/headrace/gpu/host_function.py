"""Host functions: Python functions that a stream calls between two pieces of its work.

cuda.core has no method for this, so a real device is called through cuda.bindings. The driver takes the address
of a C function; ctypes creates one from a Python function, and is used for nothing else.

Use a host function to order work on the host between two pieces of work on the device. For a notification that
a stream has reached a point, use :func:`headrace.gpu.when_done`, which costs less and leaves no gap in the
stream.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from headrace.gpu.capture import is_capturing
from headrace.gpu.simulated import is_simulated
from headrace.gpu.stream_handle import SupportsStream, handle_of


def launch_host(stream: SupportsStream, function: Callable[[], object]) -> None:
    """Call a function on the host after the work that was submitted to a stream so far.

    Work that is submitted later waits until the function has returned. The function runs on a thread of the
    driver and must not call CUDA. Its errors are reported through ``sys.unraisablehook``.

    It cannot be recorded: on a stream that captures it raises a RuntimeError, and the capture goes on. What
    cuda.bindings hands to the driver is freed after the first call, and a graph would call it again.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of a real or a simulated device.
    function : callable
        Called without arguments.
    """
    stream = getattr(stream, "stream", stream)  # the stream of a StreamHandle
    handle = handle_of(stream)
    if is_capturing(stream):
        raise RuntimeError(f"{stream!r} is capturing, and a function of the host cannot be recorded")
    if is_simulated(stream):
        from headrace.gpu.sim.launches import launch_host as launch_host_simulated

        launch_host_simulated(stream, lambda: _call(function, Exception))
        return
    from cuda.bindings import driver

    queue = driver.CUstream(handle)
    token = next(_tokens)
    _pending[token] = function
    (status,) = driver.cuLaunchHostFunc(queue, _entry(), token)
    if status != driver.CUresult.CUDA_SUCCESS:
        del _pending[token]
        raise RuntimeError(f"the driver refused a host function on {stream!r}: {status.name}")


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
    _call(_pending.pop(token), BaseException)


def _call(function: Callable[[], object], caught: type[BaseException]) -> None:
    # A thread of the driver has no caller to raise an error to. A simulated stream has: the thread that waits
    # for it, which must receive Ctrl-C.
    try:
        function()
    except caught as error:
        # The attributes that the hook reads; Python code cannot create sys.UnraisableHookArgs.
        args = SimpleNamespace(
            exc_type=type(error),
            exc_value=error,
            exc_traceback=error.__traceback__,
            err_msg="Exception ignored in a host function",
            object=function,
        )
        sys.unraisablehook(args)
