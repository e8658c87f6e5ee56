"""Tensors: arrays of any library, so that every other library takes them without a copy.

:func:`as_tensor` describes an array; the :class:`Tensor` it gives speaks DLPack and both array interfaces.
Nothing here knows of pipelines: it is useful in a plain script too.
"""

from penstock.tensor._as_tensor import as_tensor
from penstock.tensor._errors import TensorError
from penstock.tensor._map import TensorMap, as_message
from penstock.tensor._opencv import gpumat_to_tensor, tensor_to_gpumat
from penstock.tensor._ready import Ready, stream_of
from penstock.tensor._tensor import Tensor
from penstock.tensor._types import DLDataType, DLDevice, DLDeviceType

__all__ = [
    "DLDataType",
    "DLDevice",
    "DLDeviceType",
    "Ready",
    "Tensor",
    "TensorError",
    "TensorMap",
    "as_message",
    "as_tensor",
    "gpumat_to_tensor",
    "stream_of",
    "tensor_to_gpumat",
]
