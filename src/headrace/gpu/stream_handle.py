"""Handles of streams, in the form that each library accepts."""

from __future__ import annotations

from typing import Any

from headrace.gpu import array_libraries
from headrace.gpu.backend import Backend, backend_of
from headrace.gpu.backend import SupportsStream as SupportsStream

LEGACY_DEFAULT_HANDLE = 1  # CU_STREAM_LEGACY: the default stream of the current context
PER_THREAD_DEFAULT_HANDLE = 2  # CU_STREAM_PER_THREAD: the default stream of the calling thread


class StreamHandle(int):
    """A stream's handle: an ``int`` that also supports the CUDA stream protocol.

    Libraries accept streams of others in different forms: ``cupy.cuda.ExternalStream``,
    ``torch.cuda.ExternalStream`` and ``ctypes.c_void_p`` take an integer; cuda.core and
    ``cupy.cuda.Stream.from_external`` take an object with ``__cuda_stream__``. A StreamHandle is both. It keeps its
    stream alive.

    Parameters
    ----------
    stream : Stream
        A stream of cuda.core, of a simulated device, or of any library that supports the protocol.

    Attributes
    ----------
    backend : Backend
        The kind of device that the stream belongs to, such as whether it runs CUDA code (``backend.runs_cuda``).
    """

    stream: Any
    backend: Backend
    _device: Any
    _follows_default: bool
    _objects: dict[str, Any]
    is_default = False
    """Whether it stands for the default stream of a device, which libraries have an object for."""
    device_id: int | None = None
    """The device whose default stream it stands for; None for the current one."""

    def __new__(cls, stream: SupportsStream) -> StreamHandle:
        """Return the handle of a stream."""
        self = super().__new__(cls, handle_of(stream))
        self.stream = getattr(stream, "stream", stream)  # the handle of a handle has the same stream
        self.backend = backend_of(self.stream)
        return self

    @property
    def device(self) -> Any:
        """The device of the stream."""
        try:
            return self._device
        except AttributeError:
            self._device = self.stream.device
            return self._device

    @property
    def follows_default(self) -> bool:
        """Whether CUDA orders the stream with the default stream of its device, as far as is known."""
        try:
            return self._follows_default
        except AttributeError:
            self._follows_default = not getattr(self.stream, "is_nonblocking", True)
            return self._follows_default

    def cupy(self) -> Any:
        """Return CuPy's object for this stream, created on the first call."""
        return self.of_library("cupy")

    def torch(self) -> Any:
        """Return PyTorch's object for this stream, created on the first call."""
        return self.of_library("torch")

    def numba(self) -> Any:
        """Return Numba's object for this stream, created on the first call."""
        return self.of_library("numba")

    def cvcuda(self) -> Any:
        """Return CV-CUDA's object for this stream, created on the first call."""
        return self.of_library("cvcuda")

    def of_library(self, name: str) -> Any:
        """Return the object of a library, given by the name of its module, created on the first call."""
        try:
            return self._objects[name]
        except AttributeError:
            self._objects = {}
        except KeyError:
            pass
        made = self._objects[name] = array_libraries.make_stream(name, self)
        return made

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, int(self))

    def __repr__(self) -> str:
        return f"StreamHandle({int(self):#x})"


def handle_of(stream: Any) -> int:
    """Return the driver's handle of a stream of any library."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(
            f"{type(stream).__name__} is not a stream: it has no __cuda_stream__; "
            "pass a Stream of headrace.gpu or of a library that supports the CUDA stream protocol"
        )
    _, handle = protocol() if callable(protocol) else protocol
    return int(handle)
