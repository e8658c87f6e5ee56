"""Console loggers: a line for every message, through Python's ``logging``, by the logger ``headrace.data``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from headrace._runtime import Envelope
from headrace.core.ports import IOSpec
from headrace.observe.loggers.data_loggers import (
    AsyncDataLoggerResource,
    DataLoggerQueueType,
    DataLoggerResource,
    has_arrays,
)
from headrace.observe.loggers.text_serializer import SimpleTextSerializer
from headrace.observe.recordings.payloads import type_name
from headrace.observe.recordings.ports import matches
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy
from headrace.tensor import Tensor, TensorMap
from headrace.tensor.conversion import is_array

if TYPE_CHECKING:
    from headrace.core.composition import Composition
    from headrace.observe.loggers.data_loggers import _Entry

_OUTPUT = IOSpec.IOType.OUTPUT
_log = logging.getLogger("headrace.data")


class AsyncConsoleLogger(AsyncDataLoggerResource):
    """Prints a line for every message, on a thread of its own.

    The line goes to the logger ``headrace.data`` of Python's ``logging``, as INFO. A program that has not set up
    logging gets it on stderr.

    Parameters
    ----------
    serializer
        What makes the text; a :class:`SimpleTextSerializer` unless given.
    **options
        The parameters of :class:`AsyncDataLoggerResource`.
    """

    _label = "AsyncConsoleLogger"
    _shows_empty_metadata = False
    _serializer: ClassVar[type[SimpleTextSerializer]] = SimpleTextSerializer

    def __init__(
        self, fragment: Composition | None = None, *, serializer: Any = None, **options: Any
    ) -> None:
        super().__init__(fragment, **{"name": "async_console_logger", **options})
        self.serializer = self._serializer(fragment) if serializer is None else serializer

    def initialize(self) -> None:
        """Prepare for a run."""
        make_visible(_log)

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


class BasicConsoleLogger(AsyncConsoleLogger):
    """Prints a line for every message, on the thread that computes.

    A message with device memory whose contents are printed is copied to the host first, while the pipeline goes on.
    It is printed when the copy is complete, by another thread, and messages after it wait for it: lines are always
    in order.

    Parameters
    ----------
    serializer
        What makes the text; a :class:`SimpleTextSerializer` unless given.
    **options
        The parameters of :class:`DataLoggerResource`.
    """

    _label = "BasicConsoleLogger"

    def __init__(
        self, fragment: Composition | None = None, *, serializer: Any = None, **options: Any
    ) -> None:
        super().__init__(
            fragment,
            serializer=serializer,
            max_queue_size=sys.maxsize,
            enable_large_data_queue=False,
            queue_type=DataLoggerQueueType.ORDERED,
            **{"name": "basic_console_logger", **options},
        )

    def _take(self, entry: _Entry, item: Any) -> None:
        if self._queues[0].is_idle and not self._must_be_copied(item):
            DataLoggerResource._take(self, entry, item)
        else:
            super()._take(entry, item)

    def _must_be_copied(self, item: Any) -> bool:
        """Return whether a message has contents that the host cannot read now."""
        if not self.log_tensor_data_content:
            return False
        if type(item) is Envelope:
            if not item.is_done:
                return True
            item = item.data
        if isinstance(item, dict):
            return any(map(_is_elsewhere, item.values()))
        return any(map(_is_elsewhere, item)) if type(item) in (list, tuple) else _is_elsewhere(item)


def _is_elsewhere(value: Any) -> bool:
    """Return whether a value is an array that may be in memory of a device."""
    if type(value) is Tensor:
        return value.device.is_cuda
    return not isinstance(value, np.ndarray) and is_array(value)


class PortPrinter(BasicConsoleLogger):
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


def make_visible(logger: logging.Logger) -> None:
    """Let a logger print INFO, and print to stderr if the program has not set up logging."""
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
