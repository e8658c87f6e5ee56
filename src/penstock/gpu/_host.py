"""Host functions: the stream calls the program when it gets there, and goes on when the call returns.

cuda.core has no call for this on a stream, so the real device's is made through cuda.bindings. The driver
wants the address of a C function; ctypes makes one from a Python function, and is used for nothing else.

Use it to order something on the host between two pieces of work. To be *told* that a stream has passed a
point use :func:`penstock.gpu.when_done`, which costs less and leaves no gap in the stream.
"""

import ctypes
import itertools
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from penstock.gpu import sim
from penstock.gpu.sim.kernel import launch_host as launch_host_simulated


def launch_host(stream: Any, function: Callable[[], object]) -> None:
    """Have the host call a function once the stream has done what was submitted so far.

    What is submitted afterwards waits until the function has returned. The function runs on a thread of the
    driver's. It must not call CUDA, and what it raises is reported through ``sys.unraisablehook``.

    Parameters
    ----------
    stream : Stream or StreamHandle
        Of a real or a simulated device.
    """
    stream = getattr(stream, "stream", stream)  # a StreamHandle knows which device it is of
    if isinstance(stream, sim.Stream):
        launch_host_simulated(stream, lambda: _call(function))
        return
    from cuda.bindings import driver

    token = next(_tokens)
    _pending[token] = function
    (status,) = driver.cuLaunchHostFunc(driver.CUstream(stream.__cuda_stream__()[1]), _entry(), token)
    if status != driver.CUresult.CUDA_SUCCESS:
        del _pending[token]
        raise RuntimeError(f"the driver refused a host function on {stream!r}: {status.name}")


_pending: dict[int, Callable[[], object]] = {}
_tokens = itertools.count(
    1
)  # not 0: the driver hands the number over as a pointer, and ctypes reads NULL as None


@cache
def _entry() -> Any:
    """Return the C function that the driver calls with a token."""
    from cuda.bindings import driver

    return driver.CUhostFn(ctypes.cast(_c_entry, ctypes.c_void_p).value)


def _call_pending(token: int) -> None:
    _call(_pending.pop(token))


_c_entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_call_pending)


def _call(function: Callable[[], object]) -> None:
    try:
        function()
    except BaseException as error:
        # What the hook reads; Python has no way to make its own UnraisableHookArgs.
        args = SimpleNamespace(
            exc_type=type(error),
            exc_value=error,
            exc_traceback=error.__traceback__,
            err_msg="Exception ignored in a host function",
            object=function,
        )
        sys.unraisablehook(args)
