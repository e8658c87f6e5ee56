"""The current device of a thread, changed temporarily.

In CUDA, each thread has a current context. The default stream belongs to it, and streams and events are created in
it. Code that briefly works on one device, on a thread where other code relies on another device, makes its device
current and then restores the previous context.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.gpu.backend import active


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
        # A stack: an instance may be entered while it is entered.
        self._restore: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        restore = remember_current()
        active().names.Device(self._device_id).set_current()
        self._restore.append(restore)

    def __exit__(self, *_: object) -> None:
        self._restore.pop()()


def remember_current() -> Callable[[], None]:
    """Return a function that restores this thread's current context; without one, the function does nothing."""
    return active().remember_current()
