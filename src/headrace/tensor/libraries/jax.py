"""JAX: arrays are immutable, and the library works on streams of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.tensor.libraries.library import Library

if TYPE_CHECKING:
    from headrace.tensor.tensor import Tensor


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


LIBRARY = JAX()
