"""The current stream: the stream of array code that names none.

CuPy and PyTorch each have a current stream for every thread. :class:`use_stream` sets both, so that code that never
mentions streams runs on the given stream, and on the SMs it belongs to. On exit both are restored. A library
that has not been imported is left alone: nothing is imported to check.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from headrace.gpu.stream_handle import StreamHandle, SupportsStream

_thread = threading.local()


class use_stream:
    """Make a stream current for CuPy and PyTorch on this thread, for the duration of a ``with`` block.

    An instance can be entered any number of times, so one that is used often is created once.

    Examples
    --------
    >>> with gpu.use_stream(parts["control"].create_stream()):
    ...     total = cupy.arange(1000).sum()
    """

    __slots__ = ("_cupy", "_previous", "_torch", "handle")

    def __init__(self, stream: SupportsStream) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._previous: list[Any] = []
        self._cupy: Any = None  # a library's stream to restore
        self._torch: Any = None

    def __enter__(self) -> StreamHandle:
        handle = self.handle
        self._previous.append((getattr(_thread, "innermost", None), self._cupy, self._torch))
        _thread.innermost = self
        self._cupy = self._torch = None
        if handle.backend.runs_cuda:
            try:
                self._enter_libraries(handle)
            except BaseException:
                self.__exit__()  # an error of one library must not leave the other on this stream
                raise
        return handle

    def _enter_libraries(self, handle: StreamHandle) -> None:
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if cupy is not None:
            ours = handle.cupy()
            self._cupy = cupy.cuda.get_current_stream()
            ours.use()
        if torch is not None and _torch_has_cuda():
            ours = handle.torch()
            self._torch = torch.cuda.current_stream()
            torch.cuda.set_stream(ours)

    def __exit__(self, *_: object) -> None:
        if self._torch is not None:
            sys.modules["torch"].cuda.set_stream(self._torch)
        if self._cupy is not None:
            self._cupy.use()
        # In this order, so that after an interrupt `remember_stream` can call this once more.
        _thread.innermost, self._cupy, self._torch = self._previous[-1]
        self._previous.pop()


def library_is_in_use() -> bool:
    """Return whether CuPy, or a PyTorch that sees a GPU, has been imported."""
    return "cupy" in sys.modules or ("torch" in sys.modules and _torch_has_cuda())


@cache
def _torch_has_cuda() -> bool:
    return bool(sys.modules["torch"].cuda.is_available())


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
