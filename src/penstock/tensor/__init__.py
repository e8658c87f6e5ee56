"""Tensors: arrays of any library, so that every other library takes them without a copy.

:func:`as_tensor` describes an array; the :class:`Tensor` it gives speaks DLPack and both array interfaces.
Nothing here knows of pipelines: it is useful in a plain script too.
"""

from penstock.tensor.conversion import as_tensor
from penstock.tensor.errors import TensorError
from penstock.tensor.opencv import gpumat_to_tensor, tensor_to_gpumat
from penstock.tensor.pending_work import Ready, stream_of
from penstock.tensor.tensor import Tensor
from penstock.tensor.tensor_map import TensorMap, as_message
from penstock.tensor.types import DLDataType, DLDevice, DLDeviceType

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
