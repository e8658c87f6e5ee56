"""The current device of a thread, changed temporarily.

In CUDA, each thread has a current context. The default stream belongs to it, and streams and events are created in
it. Code that briefly works on one device, on a thread where other code relies on another device, makes its device
current and then restores the previous context.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.gpu.backends import backend, module


class on_device:
    """Make a device current on this thread for the duration of a ``with`` block, then restore the previous context.

    The device's primary context is made current. If no context was current before, the device stays current.

    Parameters
    ----------
    device_id : int
        The number of the device.

    Examples
    --------
    >>> with gpu.on_device(1):
    ...     event = gpu.Device(1).create_event()
    """

    __slots__ = ("_device_id", "_restore")

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._restore: list[
            Callable[[], None]
        ] = []  # a stack: an instance may be entered while it is entered

    def __enter__(self) -> None:
        restore = remember_current()
        module().Device(self._device_id).set_current()
        self._restore.append(restore)

    def __exit__(self, *_: object) -> None:
        self._restore.pop()()


def remember_current() -> Callable[[], None]:
    """Return a function that restores this thread's current context; without one, the function does nothing."""
    return _remember_real() if backend() == "cuda" else _remember_simulated()


def _remember_real() -> Callable[[], None]:
    from cuda.bindings import driver

    _, current = driver.cuCtxGetCurrent()
    if not int(current):
        return _do_nothing
    names = module()
    device = names.Device()
    try:
        known = device.context
    except names.CUDAError:  # another library made it current; cuda.core was not used on this thread
        known = None

    def restore() -> None:
        # Both are needed: cuda.core creates streams in the context last set through it, whichever is current.
        if known is not None:
            device.set_current(known)
        driver.cuCtxSetCurrent(current)

    return restore


def _remember_simulated() -> Callable[[], None]:
    from headrace.gpu.sim.machine import current_machine

    machine = current_machine()
    context, view = machine.current_context, machine.current_view
    if context is None:
        return _do_nothing
    return lambda: machine.make_current(context, view)


def _do_nothing() -> None:
    pass
