"""DEFAULT_STREAM: the stream of an operator that has none and received none."""

from __future__ import annotations

from typing import Any

from penstock import gpu

__all__ = ["DEFAULT_STREAM"]


class _DefaultStreamHandle(gpu.StreamHandle):
    """The default stream: what is given to an operator that has no stream and received none.

    It is made before a device is chosen, so it finds the stream behind it when that is asked for.
    """

    def __new__(cls) -> _DefaultStreamHandle:
        return int.__new__(cls, 0)

    @property
    def stream(self) -> Any:
        return gpu.LEGACY_DEFAULT_STREAM

    @property
    def is_simulated(self) -> bool:  # type: ignore[override]
        return gpu.backend() == "sim"

    def cupy(self) -> Any:
        import cupy

        return cupy.cuda.Stream.null

    def torch(self) -> Any:
        import torch

        return torch.cuda.default_stream()

    def numba(self) -> Any:
        from numba import cuda

        return cuda.default_stream()

    def cvcuda(self) -> Any:
        import cvcuda

        return cvcuda.Stream.default

    def __repr__(self) -> str:
        return "StreamHandle(default)"


DEFAULT_STREAM = _DefaultStreamHandle()
