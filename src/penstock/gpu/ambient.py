"""The current stream: where plain array code runs when it names no stream.

CuPy and PyTorch each keep a current stream for every thread. Inside :class:`use_stream` both are the given
one, so that code which never mentions streams runs on it, and on the SMs it belongs to. A library that has
not been imported is left alone: nothing is imported to look. On the way out both are put back.
"""

import sys
import threading
from functools import cache
from typing import Any

from penstock.gpu.stream_handle import StreamHandle

_thread = threading.local()


class use_stream:
    """Make a stream current for CuPy and PyTorch on this thread, for the length of a ``with``.

    It can be entered again and again, so one that is used often is made once.

    Examples
    --------
    >>> with gpu.use_stream(parts["control"].create_stream()):
    ...     total = cupy.arange(1000).sum()
    """

    __slots__ = ("_cupy", "_previous", "_torch", "handle")

    def __init__(self, stream: Any) -> None:
        self.handle = stream if isinstance(stream, StreamHandle) else StreamHandle(stream)
        self._previous: list[Any] = []
        self._cupy: Any = None  # a library's stream to go back to
        self._torch: Any = None

    def __enter__(self) -> StreamHandle:
        handle = self.handle
        before = (getattr(_thread, "stream", None), self._cupy, self._torch)
        self._previous.append(before)
        _thread.stream = handle
        self._cupy = self._torch = None
        if not handle.is_simulated:
            try:
                self._enter_libraries(handle)
            except BaseException:
                self.__exit__()  # one library that fails must not leave another on this stream
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
        _thread.stream, self._cupy, self._torch = self._previous.pop()


def library_is_in_use() -> bool:
    """Return whether CuPy, or a PyTorch that sees a GPU, has been imported."""
    return "cupy" in sys.modules or ("torch" in sys.modules and _torch_has_cuda())


@cache
def _torch_has_cuda() -> bool:
    return bool(sys.modules["torch"].cuda.is_available())


def current_stream() -> StreamHandle | None:
    """Return the stream that :class:`use_stream` made current on this thread, or None."""
    return getattr(_thread, "stream", None)
