"""SimpleTextSerializer: messages as text, for console loggers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import islice
from typing import Any

import numpy as np

from headrace.core.resource import Resource
from headrace.observe.loggers.data_loggers import describe_array, options
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import DLDeviceType, Tensor, TensorError, TensorMap

_LONGEST = 1000  # characters of an object's own text
_CODES = {0: "kDLInt", 1: "kDLUInt", 2: "kDLFloat", 4: "kDLBfloat", 5: "kDLComplex", 6: "kDLBool"}
_DEVICES = {
    DLDeviceType.CPU: "kDLCPU",
    DLDeviceType.CUDA: "kDLCUDA",
    DLDeviceType.CUDA_HOST: "kDLCUDAHost",
    DLDeviceType.CUDA_MANAGED: "kDLCUDAManaged",
}


@options
class SimpleTextSerializer(Resource):
    """Writes messages as text.

    Parameters
    ----------
    max_elements
        The number of elements of a tensor or container that are written.
    max_metadata_items
        The number of entries of metadata that are written.
    log_video_buffer_content
        Accepted for compatibility: frames are tensors here.
    log_python_object_contents
        Whether objects are written with their contents, and not only with their type.
    """

    fragment: Any = field(default=None, kw_only=False)
    max_elements: int = 10
    max_metadata_items: int = 10
    log_video_buffer_content: bool = False
    log_python_object_contents: bool = True
    name: str = "simple_text_serializer"

    def __post_init__(self) -> None:
        super().__init__(self.fragment, name=self.name)

    def serialize_to_string(self, data: Any, log_content: bool = True) -> str:
        """Return the text of any object that is neither a tensor nor a TensorMap.

        Without `log_content`, arrays in it are described without their elements.
        """
        kind = type(data)
        if kind in (list, tuple) and self.log_python_object_contents:
            shown = _joined((self._item(one, log_content) for one in data), len(data), self.max_elements)
            return f"Python({kind.__name__}, size={len(data)}): [{shown}]"
        if kind is dict and self.log_python_object_contents:
            items = (f"{name!r}: {self._item(value, log_content)}" for name, value in data.items())
            return f"Python(dict, size={len(data)}): {{{_joined(items, len(data), self.max_elements)}}}"
        return self._item(data, log_content)

    def serialize_tensor_to_string(self, tensor: Any, log_content: bool = True) -> str:
        """Return the text of a tensor: its description and, with `log_content`, its first elements."""
        element, device = tensor.dl_dtype, tensor.device
        code = _CODES.get(element.code, element.name)
        place = _DEVICES.get(device.device_type, str(device.device_type))
        text = (
            f"Tensor(shape={list(tensor.shape)}, dtype={code}:{element.bits}:{element.lanes}, "
            f"device={place}:{device.device_id}, size={tensor.size}, nbytes={tensor.nbytes}, "
            f"C-contiguous={'true' if tensor.is_contiguous() else 'false'}"
        )
        if log_content and (isinstance(tensor, TensorCopy) or not device.is_cuda):
            try:
                text += f", data={self._elements(np.asarray(tensor))}"
            except TensorError:  # NumPy has no such type
                text += ", data=?"
        return f"{text})"

    def serialize_tensormap_to_string(self, tensors: Any, log_content: bool = True) -> str:
        """Return the text of a TensorMap."""
        shown = [
            f"'{name}': {self.serialize_tensor_to_string(tensor, log_content)}"
            for name, tensor in tensors.items()
        ]
        return f"TensorMap(size={len(tensors)}) {{{', '.join(shown)}}}"

    def serialize_metadata_to_string(self, metadata: dict[str, Any] | None) -> str:
        """Return the text of metadata."""
        metadata = metadata or {}
        items = (f"'{name}': {self._item(value)}" for name, value in metadata.items())
        shown = _joined(items, len(metadata), self.max_metadata_items)
        return f"MetadataDictionary(size={len(metadata)}) {{{shown}}}"

    def _item(self, value: Any, log_content: bool = True) -> str:
        value = describe_array(value)
        if isinstance(value, (Tensor, TensorCopy)):
            return self.serialize_tensor_to_string(value, log_content)
        if isinstance(value, (TensorMap, TensorMapCopy)):
            return self.serialize_tensormap_to_string(value, log_content)
        name = type(value).__name__
        if not self.log_python_object_contents:
            return f"Python({name})"
        if isinstance(value, np.ndarray):
            text = f"Python(ndarray): shape={list(value.shape)}, dtype={value.dtype}"
            return f"{text}, data={self._elements(value)}" if log_content else text
        text = repr(value)
        return f"Python({name}): {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}"

    def _elements(self, array: np.ndarray) -> str:
        return f"[{_joined(map(_element, array.flat), array.size, self.max_elements)}]"


def _joined(texts: Iterable[str], count: int, most: int) -> str:
    """Return the first texts of so many, with "..." for the others."""
    return ", ".join([*islice(texts, most), *["..."] * (count > most)])


def _element(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, np.floating):
        return f"{float(value):.6f}"
    return str(value)
