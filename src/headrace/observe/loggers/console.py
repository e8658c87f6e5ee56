"""ConsoleLogger: a line for every message, through Python's ``logging``, by the logger ``headrace.data``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headrace.core.ports import IOSpec
from headrace.core.resource import Resource
from headrace.observe.loggers.data_loggers import (
    AsyncDataLoggerResource,
    AsyncQueuePolicy,
    has_arrays,
    options,
)
from headrace.observe.recordings.carriers import matches
from headrace.observe.recordings.payloads import type_name
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import DLDeviceType, Tensor, TensorError, TensorMap, as_tensor
from headrace.tensor.conversion import is_array

if TYPE_CHECKING:
    from headrace.core.composition import Composition

_OUTPUT = IOSpec.IOType.OUTPUT
_log = logging.getLogger("headrace.data")
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
    log_python_object_contents
        Whether objects are written with their contents, and not only with their type.
    """

    fragment: Any = field(default=None, kw_only=False)
    max_elements: int = 10
    max_metadata_items: int = 10
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
        if not hasattr(value, "dl_dtype") and not isinstance(value, np.ndarray) and is_array(value):
            with suppress(TensorError):  # an array on a device is shown without its contents
                tensor = as_tensor(value)
                value = tensor if tensor.device.is_cuda else value
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


class ConsoleLogger(AsyncDataLoggerResource):
    """Prints a line for every message, on a thread of its own and in their order.

    The line goes to the logger ``headrace.data`` of Python's ``logging``, as INFO. A program that has not set up
    logging gets it on stderr. Operators wait while too many lines are to be printed, unless `queue_policy` says
    otherwise.

    Parameters
    ----------
    serializer
        What makes the text; a :class:`SimpleTextSerializer` unless given.
    **options
        The parameters of :class:`AsyncDataLoggerResource`.
    """

    _label = "ConsoleLogger"
    _shows_empty_metadata = False
    _serializer: ClassVar[type[SimpleTextSerializer]] = SimpleTextSerializer

    def __init__(
        self, fragment: Composition | None = None, *, serializer: Any = None, **options: Any
    ) -> None:
        super().__init__(
            fragment, **{"name": "console_logger", "queue_policy": AsyncQueuePolicy.WAIT, **options}
        )
        self.serializer = self._serializer(fragment) if serializer is None else serializer

    def initialize(self) -> None:
        """Prepare for a run."""
        if _log.level == logging.NOTSET:
            _log.setLevel(logging.INFO)
        if not _log.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(message)s"))
            _log.addHandler(handler)

    def log_data(
        self,
        data: Any,
        unique_id: str,
        acquisition_timestamp: int = -1,
        metadata: dict[str, Any] | None = None,
        io_type: IOSpec.IOType = _OUTPUT,
        stream: Any = None,
    ) -> bool:
        """Print a message."""
        category, kind, text = self._describe(data)
        moment = "Emit" if io_type is _OUTPUT else "Receive"
        shown = "none" if stream is None else f"{int(stream):#x}"
        line = (
            f"{self._label}[ID:{unique_id}][Acquisition Timestamp:{acquisition_timestamp}]"
            f"[{moment} Timestamp:{self.get_timestamp()}][Category:{category}][Type Name: {kind}]"
            f"[Stream: {shown}] {text}"
        )
        if self.log_metadata and (metadata or self._shows_empty_metadata):
            line += f"\n{self.serializer.serialize_metadata_to_string(metadata)}"
        _log.info("%s", line)
        return True

    def _describe(self, data: Any) -> tuple[str, str, str]:
        """Return the category of a message, the name of its type, and its text."""
        content = self.log_tensor_data_content
        if isinstance(data, (Tensor, TensorCopy)):
            return "Tensor", "headrace.Tensor", self.serializer.serialize_tensor_to_string(data, content)
        if isinstance(data, (TensorMap, TensorMapCopy)):
            text = self.serializer.serialize_tensormap_to_string(data, content)
            return "TensorMap", "headrace.TensorMap", text
        # A serializer of the program need not know the argument where it changes nothing.
        options = {"log_content": False} if not content and has_arrays(data) else {}
        return "Message", type_name(data), self.serializer.serialize_to_string(data, **options)


class PortPrinter(ConsoleLogger):
    """Prints the messages of ports that patterns name, such as ``camera.out``, ``camera.*`` or ``camera``."""

    _label = "HEADRACE_LOG"

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__(None, name="HEADRACE_LOG")
        self._ports = list(patterns)
        self._found: set[str] = set()

    def should_log_output(self, unique_id: str) -> bool:
        """Return whether a pattern names the port."""
        name = unique_id.rpartition(":")[0] if unique_id.rpartition(":")[2].isdecimal() else unique_id
        operator, _, port = name.rpartition(".")
        found = [pattern for pattern in self._ports if matches(pattern, operator, port)]
        self._found.update(found)
        return bool(found)

    should_log_input = should_log_output

    def _end(self) -> None:
        super()._end()
        for pattern in self._ports:
            if pattern not in self._found:
                _log.warning("HEADRACE_LOG=%s names no port of the application", pattern)
