"""Libraries that differ from others in little: CV-CUDA, JAX, PyArrow, TensorFlow.

CV-CUDA's streams are objects of its own. JAX's arrays are immutable, and it works on streams of its own. PyArrow's
are immutable, which the capsules of older versions cannot express. TensorFlow's are immutable, and DLPack exports
only complete data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.libraries.library import Library

if TYPE_CHECKING:
    from headrace.gpu import StreamHandle
    from headrace.tensor.tensor import Tensor


class CVCUDA(Library):
    """CV-CUDA's tensors."""

    name = "CV-CUDA"
    types = ("cvcuda.Tensor",)

    def stream(self, handle: StreamHandle) -> Any:
        """Return CV-CUDA's object for a stream."""
        import cvcuda

        return cvcuda.Stream.default if handle.is_default else cvcuda.as_stream(int(handle))


class JAX(Library):
    """JAX's arrays."""

    name = "JAX"
    types = ("jax", "jaxlib")
    unordered = None
    is_immutable = True
    uncapturable = (
        "an array of JAX, which works on streams of its own, so that nothing of it would be captured"
    )

    def from_tensor(self, tensor: Tensor) -> Any:
        """Return an array of JAX with the contents of a tensor."""
        from jax.dlpack import from_dlpack

        return from_dlpack(tensor)


class PyArrow(Library):
    """PyArrow's arrays."""

    name = "PyArrow"
    types = ("pyarrow",)
    is_immutable = True


class TensorFlow(Library):
    """TensorFlow's tensors."""

    name = "TensorFlow"
    types = ("tensorflow",)
    takes_stream = False
    is_immutable = True


LIBRARIES: dict[str, Library] = {
    library.module: library for library in (CVCUDA(), JAX(), PyArrow(), TensorFlow())
}
