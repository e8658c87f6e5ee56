"""What is current on a thread: the stream of array code that names none, the device, and the module for arrays.

CuPy and PyTorch each have a current stream for every thread. :class:`use_stream` sets both, and that of every
other library that has one, so that code that never mentions streams runs on the given stream, and on the SMs it
belongs to. On exit all are restored. A library that has not been imported is left alone: nothing is imported to
check. A run uses `lasting_stream`, and restores what was current before when a thread leaves it.

In CUDA, each thread has a current context. The default stream belongs to it, and streams and events are created in
it. Code that briefly works on one device, on a thread where other code relies on another, makes its device current
(:class:`on_device`) and then restores the previous context.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headrace.gpu import array_libraries
from headrace.gpu.array_libraries import StreamLibrary
from headrace.gpu.backend import active
from headrace.gpu.lasting_stream import Current, states_of
from headrace.gpu.stream_handle import StreamHandle, SupportsStream


class _Thread(threading.local):
    """Holds what is current on each thread."""

    def __init__(self) -> None:
        self.current = Current()


thread = _Thread()


class use_stream:
    """Make a stream current for CuPy, PyTorch and others on this thread, for the duration of a ``with`` block.

    An instance can be entered any number of times, so one that is used often is created once.

    Examples
    --------
    >>> with gpu.use_stream(parts["control"].create_stream()):
    ...     total = cupy.arange(1000).sum()
    """

    __slots__ = ("_entered", "_previous", "_runs_cuda", "handle")

    def __init__(self, stream: SupportsStream) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._runs_cuda = self.handle.backend.runs_cuda
        self._previous: list[Any] = []
        # The libraries that are on this stream, and what restores each.
        self._entered: list[tuple[StreamLibrary, Any]] = []

    def __enter__(self) -> StreamHandle:
        here = thread.current
        self._previous.append((here.innermost, self._entered))
        here.innermost = self
        self._entered = entered = []
        try:
            for library, state in states_of(self.handle, array_libraries.with_streams(self._runs_cuda)):
                previous = library.read_stream()
                library.set_stream(state)
                entered.append((library, previous))
        except BaseException:
            self.__exit__()  # an error of one library must not leave the others on this stream
            raise
        return self.handle

    def __exit__(self, *_: object) -> None:
        for library, previous in self._entered:
            library.set_stream(previous)
        here = thread.current
        # In this order, so that after an interrupt `remember_stream` can call this once more.
        here.innermost, self._entered = self._previous[-1]
        self._previous.pop()


def leave() -> None:
    """Restore what was current on this thread before the first lasting stream."""
    here = thread.current
    if here.before is not None:
        known, here.innermost = here.before
        here.before = here.remembered = None
        for library, state in known.items():
            library.set_stream(state)


def library_is_in_use() -> bool:
    """Return whether a library that has a current stream on a GPU, real or simulated, has been imported."""
    return bool(array_libraries.with_streams(True) or array_libraries.with_streams(False))


def current_stream() -> StreamHandle | None:
    """Return the stream that :class:`use_stream` or the running operator made current on this thread, or None.

    In an operator it is the operator's stream; None only if there is no device.
    """
    here = thread.current
    if here.innermost is None:
        (here.ask or active)()  # runs in progress make their streams when the device is chosen
    return entered_stream()


def entered_stream() -> StreamHandle | None:
    """Return the same; None in a program that has not used a device yet."""
    innermost = thread.current.innermost
    return None if innermost is None else innermost.handle


def remember_stream() -> Callable[[], None]:
    """Return a function that restores this thread's current stream, if a run or an interrupt has left it changed.

    Python calls ``__exit__`` after the last line of a ``with`` block. An interrupt between the two skips the call.
    """
    here = thread.current
    before = here.innermost
    # A run in a compute of another run: what that compute had as current, and what was current before that run.
    known = None if here.before is None else {library: library.read_stream() for library in here.before[0]}
    of_run = here.before, here.remembered

    def restore() -> None:
        while (innermost := here.innermost) is not before and isinstance(innermost, use_stream):
            innermost.__exit__()
        if known is None:
            leave()
        elif here.innermost is not before:
            here.innermost = before
            here.before, here.remembered = of_run
            for library, state in known.items():
                library.set_stream(state)

    return restore


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


def arrays() -> Any:
    """Return the module for arrays in device memory: CuPy on a GPU, a module that stands for it on a simulated one.

    That module follows the Array API standard. Its work is queued on the current stream, and takes time there.

    Raises
    ------
    ImportError
        If there is a GPU and CuPy is not installed, or if NumPy is older than 2.1, which the simulation needs.

    Examples
    --------
    >>> from headrace import gpu
    >>> xp = gpu.arrays()
    >>> frame = xp.full((1080, 1920), 2, dtype=xp.float32)
    >>> float(xp.mean(2 * frame + 1))
    5.0
    """
    return active().array_module()
