"""The device that is current on a thread, for a while.

CUDA keeps a current context for each thread. The default stream is that of the current context, and streams and
events are made in it. Code that works on one device for a moment, on a thread where other code relies on another,
makes its device current and then puts back what was there.
"""

from collections.abc import Callable

from penstock.gpu.backends import backend, module


class on_device:
    """Make a device current on this thread, for the length of a ``with``; then put back what was current.

    Its primary context is made current. Where nothing was current before, the device stays so.

    Parameters
    ----------
    device_id : int
        The number of the device.

    Examples
    --------
    >>> with gpu.on_device(1):
    ...     event = gpu.Device(1).create_event()
    """

    __slots__ = ("_device_id", "_put_back")

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._put_back: list[Callable[[], None]] = []  # it may be entered inside itself

    def __enter__(self) -> None:
        put_back = remember_current()
        module().Device(self._device_id).set_current()
        self._put_back.append(put_back)

    def __exit__(self, *_: object) -> None:
        self._put_back.pop()()


def remember_current() -> Callable[[], None]:
    """Return a function that makes current, on this thread, what is current now; if nothing is, it does nothing."""
    return _of_driver() if backend() == "cuda" else _of_simulation()


def _of_driver() -> Callable[[], None]:
    from cuda.bindings import driver

    _, current = driver.cuCtxGetCurrent()
    if not int(current):
        return _nothing
    names = module()
    device = names.Device()
    try:
        known = device.context
    except names.CUDAError:  # another library made it current, and cuda.core was not used on this thread
        known = None

    def put_back() -> None:
        # Both are asked: cuda.core makes streams in the context that it was last told of, whatever is current.
        if known is not None:
            device.set_current(known)
        driver.cuCtxSetCurrent(current)

    return put_back


def _of_simulation() -> Callable[[], None]:
    from penstock.gpu.sim.machine import current_machine

    machine = current_machine()
    context, view = machine.current_context, machine.current_view
    if context is None:
        return _nothing
    return lambda: machine.make_current(context, view)


def _nothing() -> None:
    pass
