"""Tensors: arrays from any library, in a form that every other library accepts without a copy.

:func:`as_tensor` describes an array as a :class:`Tensor`, which supports DLPack and both array interfaces. The
package does not depend on pipelines and is also useful in a plain script.
"""

from __future__ import annotations

from headrace.tensor.conversion import as_tensor
from headrace.tensor.errors import TensorError
from headrace.tensor.libraries import Library, register_library
from headrace.tensor.libraries.opencv import gpumat_to_tensor, tensor_to_gpumat
from headrace.tensor.pending_work import PendingWork, stream_of
from headrace.tensor.tensor import Tensor
from headrace.tensor.tensor_map import TensorMap, as_message
from headrace.tensor.types import DLDataType, DLDevice, DLDeviceType

__all__ = [
    "DLDataType",
    "DLDevice",
    "DLDeviceType",
    "Library",
    "PendingWork",
    "Tensor",
    "TensorError",
    "TensorMap",
    "as_message",
    "as_tensor",
    "gpumat_to_tensor",
    "register_library",
    "stream_of",
    "tensor_to_gpumat",
]
