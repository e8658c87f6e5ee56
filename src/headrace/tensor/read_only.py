"""The DLPack capsules of read-only tensors.

Since version 1.0, DLPack can mark memory as read-only. JAX and TensorFlow export the older form. The capsule of a
read-only tensor is therefore always created from its description.

The protocol does not name the consumer, but two of them need special treatment. JAX requests the old form and never
writes, so it may have read-only memory that is not marked. PyTorch requests the new form and writes despite the
mark (2.13), so the program is warned, as `torch.from_numpy` does. Both make the request from Python code, so the
caller's module identifies them. Every other consumer is treated as the protocol specifies.
"""

from __future__ import annotations

import warnings
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.tensor.libraries import library_of_module
from headrace.tensor.memory_exporter import create_capsule

if TYPE_CHECKING:
    from headrace.tensor.tensor import Tensor

__all__ = ["make_read_only_capsule"]


def make_read_only_capsule(tensor: Tensor, max_version: tuple[int, int] | None, caller: FrameType) -> Any:
    """Return a capsule that marks a tensor as read-only; `caller` is the frame of the consumer."""
    library = library_of_module(str(caller.f_globals.get("__name__")))
    can_say_read_only = max_version is not None and max_version[0] >= 1
    if not can_say_read_only and not library.is_immutable:
        raise tensor._export_error(
            "it is read-only, and the requested old form cannot express that. Request it with "
            "max_version=(1, 0), or a copy with copy=True; numpy.asarray and cupy.asarray accept it as it is"
        )
    if library.ignores_read_only:
        warnings.warn(
            f"{library.name} ignores that this memory is read-only: do not write to this {library.name} tensor, or "
            f"copy it with {library.module}.from_dlpack(tensor, copy=True)",
            stacklevel=4,  # the caller of from_dlpack
        )
    description = (tensor.data, tensor.shape, tensor.strides, tensor.dl_dtype, tensor.device, True)
    form = (1, 0) if can_say_read_only else None
    try:
        return create_capsule(description, tensor, form, is_readonly=can_say_read_only)
    except BufferError as error:
        raise tensor._export_error(f"it is read-only, and {error} as read-only") from None
