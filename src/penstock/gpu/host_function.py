"""Host functions: the stream calls the program when it gets there, and goes on when the call returns.

cuda.core has no call for this on a stream, so the real device's is made through cuda.bindings. The driver
wants the address of a C function; ctypes makes one from a Python function, and is used for nothing else.

Use it to order something on the host between two pieces of work. To be *told* that a stream has passed a
point use :func:`penstock.gpu.when_done`, which costs less and leaves no gap in the stream.
"""

import itertools
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from penstock.gpu.simulated import is_simulated
from penstock.gpu.stream_handle import handle_of


def launch_host(stream: Any, function: Callable[[], object]) -> None:
    """Have the host call a function once the stream has done what was submitted so far.

    What is submitted afterwards waits until the function has returned. The function runs on a thread of the
    driver's. It must not call CUDA, and what it raises is reported through ``sys.unraisablehook``.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        Of a real or a simulated device.
    """
    stream = getattr(stream, "stream", stream)  # a StreamHandle knows which device it is of
    if is_simulated(stream):
        from penstock.gpu.sim.kernel import launch_host as launch_host_simulated

        launch_host_simulated(stream, lambda: _call(function, Exception))
        return
    from cuda.bindings import driver

    queue = driver.CUstream(handle_of(stream))
    token = next(_tokens)
    _pending[token] = function
    (status,) = driver.cuLaunchHostFunc(queue, _entry(), token)
    if status != driver.CUresult.CUDA_SUCCESS:
        del _pending[token]
        raise RuntimeError(f"the driver refused a host function on {stream!r}: {status.name}")


_pending: dict[int, Callable[[], object]] = {}
_tokens = itertools.count(1)  # not 0: the driver hands it over as a pointer, and ctypes reads NULL as None


@cache
def _entry() -> Any:
    """Return the C function that the driver calls with a token; made once and kept, as the driver needs."""
    import ctypes

    from cuda.bindings import driver

    c_entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_pending)
    _kept.append(c_entry)
    return driver.CUhostFn(ctypes.cast(c_entry, ctypes.c_void_p).value)


_kept: list[Any] = []


def _call_pending(token: int) -> None:
    _call(_pending.pop(token), BaseException)


def _call(function: Callable[[], object], caught: type[BaseException]) -> None:
    # The driver's thread has nobody to hand an error to. A simulated stream has: the thread that waits for
    # it, which is the one to hear of Ctrl-C.
    try:
        function()
    except caught as error:
        # What the hook reads; Python has no way to make its own UnraisableHookArgs.
        args = SimpleNamespace(
            exc_type=type(error),
            exc_value=error,
            exc_traceback=error.__traceback__,
            err_msg="Exception ignored in a host function",
            object=function,
        )
        sys.unraisablehook(args)
