"""holoscan.data_loggers: lines about messages, as the SDK writes them, in the log on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from headrace.core import IOSpec, Resource
from headrace.observe import TensorCopy, TensorMapCopy
from headrace.tensor import DLDeviceType, Tensor, TensorError, TensorMap
from headrace_holoscan import logger
from headrace_holoscan.core.components import ResourceBase
from headrace_holoscan.core.loggers import AsyncDataLoggerResource, AsyncQueuePolicy, DataLoggerQueueType
from headrace_holoscan.signatures import taking

SUBMODULES = ("async_console_logger", "basic_console_logger")
async_console_logger = basic_console_logger = sys.modules[__name__]
__all__ = [
    "AsyncConsoleLogger",
    "BasicConsoleLogger",
    "GXFConsoleLogger",
    "SimpleTextSerializer",
    *SUBMODULES,
]

_FILTERS = (
    "fragment, serializer=None, log_inputs=True, log_outputs=True, log_metadata=True, "
    "log_tensor_data_content=True, use_scheduler_clock={}, clock=None, allowlist_patterns=[], "
    "denylist_patterns=[], "
)


_OUTPUT = IOSpec.IOType.OUTPUT
_CODES = {0: "kDLInt", 1: "kDLUInt", 2: "kDLFloat", 4: "kDLBfloat", 5: "kDLComplex", 6: "kDLBool"}
_DEVICES = {
    DLDeviceType.CPU: "kDLCPU",
    DLDeviceType.CUDA: "kDLCUDA",
    DLDeviceType.CUDA_HOST: "kDLCUDAHost",
    DLDeviceType.CUDA_MANAGED: "kDLCUDAManaged",
}


@taking(
    "fragment, max_elements=10, max_metadata_items=10, log_video_buffer_content=False, "
    "log_python_object_contents=True, name='simple_text_serializer'"
)
class SimpleTextSerializer(ResourceBase, Resource):
    """Writes tensors with their first elements, other objects by their repr, and the newest metadata first."""

    max_elements: int
    max_metadata_items: int
    log_python_object_contents: bool

    def serialize_to_string(self, data: Any) -> str:
        """Return the text of any object that is neither a tensor nor a TensorMap."""
        if isinstance(data, (Tensor, TensorCopy)):
            return self.serialize_tensor_to_string(data)
        if isinstance(data, (TensorMap, TensorMapCopy)):
            return self.serialize_tensormap_to_string(data)
        return (
            f"Python({type(data).__name__}): {data!r}" if self.log_python_object_contents else "Python Object"
        )

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
                array = np.asarray(tensor)
                text += f", data=[{_joined(map(_element, array.flat), array.size, self.max_elements)}]"
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
        metadata = dict(reversed((metadata or {}).items()))
        items = (f"'{name}': {self.serialize_to_string(value)}" for name, value in metadata.items())
        shown = _joined(items, len(metadata), self.max_metadata_items)
        return f"MetadataDictionary(size={len(metadata)}) {{{shown}}}"


def _joined(texts: Iterable[str], count: int, most: int) -> str:
    """Return the first texts of so many, with "..." for the others."""
    return ", ".join([*islice(texts, most), *["..."] * (count > most)])


def _element(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, np.floating):
        return f"{float(value):.6f}"
    return str(value)


class _Lines(ResourceBase, AsyncDataLoggerResource):
    """A logger that writes a line for every message, on a thread of its own; operators wait for it."""

    _label = ""

    def __init__(self, fragment: Any = None, *, serializer: Any = None, **options: Any) -> None:
        super().__init__(fragment, **{"queue_policy": AsyncQueuePolicy.WAIT, **options})
        self.serializer = SimpleTextSerializer(fragment) if serializer is None else serializer

    def initialize(self) -> None:
        """Prepare for a run."""
        logger.show()

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
        content = self.log_tensor_data_content
        if isinstance(data, (Tensor, TensorCopy)):
            category, kind = "Tensor", "headrace.Tensor"
            text = self.serializer.serialize_tensor_to_string(data, content)
        elif isinstance(data, (TensorMap, TensorMapCopy)):
            category, kind = "TensorMap", "headrace.TensorMap"
            text = self.serializer.serialize_tensormap_to_string(data, content)
        else:
            module = type(data).__module__
            category, kind = (
                "Message (std::any)",
                f"{module}.{type(data).__qualname__}".removeprefix("builtins."),
            )
            text = self.serializer.serialize_to_string(data)
        moment = "Emit" if io_type is _OUTPUT else "Receive"
        shown = "none" if stream is None else f"{int(stream):#x}"
        line = (
            f"{self._label}[ID:{unique_id}][Acquisition Timestamp:{acquisition_timestamp}]"
            f"[{moment} Timestamp:{self.get_timestamp()}][Category:{category}][Type Name: {kind}]"
            f"[Stream: {shown}] {text}"
        )
        if self.log_metadata:
            line += f"\n{self.serializer.serialize_metadata_to_string(metadata)}"
        logging.getLogger("headrace.data").info("%s", line)
        return True


@taking(_FILTERS.format(True) + "name='basic_console_logger'", base=_Lines)
class BasicConsoleLogger(_Lines):
    """A line for every message."""

    _label = "BasicConsoleLogger"


@taking(_FILTERS.format(True) + "name='gxf_basic_console_logger'", base=_Lines)
class GXFConsoleLogger(BasicConsoleLogger):
    """A line for every message."""


@taking(
    _FILTERS.format(False) + "max_queue_size=50000, worker_sleep_time=50000, queue_policy=REJECT, "
    "large_data_max_queue_size=1000, large_data_worker_sleep_time=50000, large_data_queue_policy=REJECT, "
    "enable_large_data_queue=True, shutdown_wait_period_ms=-1, queue_type=LOCK_FREE, name='async_console_logger'",
    base=_Lines,
    REJECT=AsyncQueuePolicy.REJECT,
    LOCK_FREE=DataLoggerQueueType.LOCK_FREE,
)
class AsyncConsoleLogger(_Lines):
    """A line for every message, in the order of the messages: those with tensors have no queue of their own."""

    _label = "AsyncConsoleLogger"
