"""CV-CUDA: tensors speak the array protocols; streams are objects of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.libraries.library import Library

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle


class CVCUDA(Library):
    """CV-CUDA's tensors."""

    name = "CV-CUDA"
    types = ("cvcuda.Tensor",)

    def stream(self, handle: StreamHandle) -> Any:
        """Return CV-CUDA's object for a stream."""
        import cvcuda

        return cvcuda.Stream.default if handle.is_default else cvcuda.as_stream(int(handle))


LIBRARY = CVCUDA()
