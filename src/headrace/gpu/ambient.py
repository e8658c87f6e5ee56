"""The current stream: the stream of array code that names none.

CuPy and PyTorch each have a current stream for every thread. :class:`use_stream` sets both, and that of every
other library that has one, so that code that never mentions streams runs on the given stream, and on the SMs it
belongs to. On exit all are restored. A library that has not been imported is left alone: nothing is imported to
check.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headrace.gpu import array_libraries
from headrace.gpu.array_libraries import StreamLibrary
from headrace.gpu.stream_handle import StreamHandle, SupportsStream

_thread = threading.local()


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
        handle = self.handle
        self._previous.append((getattr(_thread, "innermost", None), self._entered))
        _thread.innermost = self
        self._entered = entered = []
        try:
            for library in array_libraries.with_streams(self._runs_cuda):
                entered.append((library, library.use_stream(handle)))  # noqa: PERF401 (one may fail)
        except BaseException:
            self.__exit__()  # an error of one library must not leave the others on this stream
            raise
        return handle

    def __exit__(self, *_: object) -> None:
        for library, previous in self._entered:
            library.restore_stream(previous)
        # In this order, so that after an interrupt `remember_stream` can call this once more.
        _thread.innermost, self._entered = self._previous[-1]
        self._previous.pop()


def library_is_in_use() -> bool:
    """Return whether a library that has a current stream on a GPU, such as CuPy, has been imported."""
    return bool(array_libraries.with_streams(True))


def current_stream() -> StreamHandle | None:
    """Return the stream that :class:`use_stream` made current on this thread, or None."""
    innermost: use_stream | None = getattr(_thread, "innermost", None)
    return None if innermost is None else innermost.handle


def remember_stream() -> Callable[[], None]:
    """Return a function that restores this thread's current stream, if an interrupt has left it changed.

    Python calls ``__exit__`` after the last line of a ``with`` block. An interrupt between the two skips the call.
    """
    before: use_stream | None = getattr(_thread, "innermost", None)

    def restore() -> None:
        while (innermost := getattr(_thread, "innermost", None)) is not before and innermost is not None:
            innermost.__exit__()

    return restore
