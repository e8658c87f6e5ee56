"""A stream as every library takes it."""

from typing import Any

from penstock.gpu.simulated import is_simulated


class StreamHandle(int):
    """A stream's handle: an ``int`` that also speaks the CUDA stream protocol.

    Libraries disagree on what a foreign stream is: an integer for ``cupy.cuda.ExternalStream``,
    ``torch.cuda.ExternalStream`` and ``ctypes.c_void_p``, an object with ``__cuda_stream__`` for cuda.core
    and ``cupy.cuda.Stream.from_external``. This is both. It keeps its stream alive.

    Parameters
    ----------
    stream : Stream
        A stream of cuda.core, of a simulated device, or of any library that speaks the protocol.
    """

    stream: Any
    is_simulated: bool
    _cupy: Any
    _cvcuda: Any
    _numba: Any
    _torch: Any

    def __new__(cls, stream: Any) -> "StreamHandle":
        """Return the handle of a stream."""
        self = super().__new__(cls, handle_of(stream))
        self.stream = getattr(stream, "stream", stream)  # a handle of a handle is of the same stream
        self.is_simulated = is_simulated(self.stream)
        return self

    def cupy(self) -> Any:
        """Return CuPy's object for this stream, made once."""
        try:
            return self._cupy
        except AttributeError:
            import cupy

            self._cupy = cupy.cuda.Stream.from_external(self)
            return self._cupy

    def torch(self) -> Any:
        """Return PyTorch's object for this stream, made once."""
        try:
            return self._torch
        except AttributeError:
            import torch

            # Without a number it would take the stream for one of the current device.
            number = getattr(getattr(self.stream, "device", None), "device_id", None)
            known = {} if number is None else {"device": number}
            self._torch = torch.cuda.ExternalStream(self, **known)
            return self._torch

    def numba(self) -> Any:
        """Return Numba's object for this stream, made once."""
        try:
            return self._numba
        except AttributeError:
            from numba import cuda

            self._numba = cuda.external_stream(int(self))
            return self._numba

    def cvcuda(self) -> Any:
        """Return CV-CUDA's object for this stream, made once."""
        try:
            return self._cvcuda
        except AttributeError:
            import cvcuda

            self._cvcuda = cvcuda.as_stream(int(self))
            return self._cvcuda

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, int(self))

    def __repr__(self) -> str:
        return f"StreamHandle({int(self):#x})"


def handle_of(stream: Any) -> int:
    """Return the number by which the driver knows a stream of any library."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is None:
        raise TypeError(
            f"{type(stream).__name__} is not a stream: it has no __cuda_stream__; "
            "give a Stream of penstock.gpu or of a library that speaks the CUDA stream protocol"
        )
    _, handle = protocol() if callable(protocol) else protocol
    return int(handle)
