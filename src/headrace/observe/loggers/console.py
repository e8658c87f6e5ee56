"""ConsoleLogger: a line for every message, through Python's ``logging``, by the logger ``headrace.data``."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from headrace.observe.loggers.data_loggers import DataLogger, LoggedMessage
from headrace.observe.recordings.snapshots import TensorCopy
from headrace.tensor import TensorError, as_tensor
from headrace.tensor.conversion import is_array

_log = logging.getLogger("headrace.data")
_LONGEST = 1000  # characters of an object's own text


class ConsoleLogger(DataLogger):
    """Prints a line for every message, on a thread of its own and in their order.

    The line goes to the logger ``headrace.data`` of Python's ``logging``, as INFO. A program that has not set up
    logging gets it on stderr. Operators wait while too many lines are to be printed, unless `when_full` says
    otherwise.

    Parameters
    ----------
    ports
        Patterns of the ports to log; all unless given.
    most
        The number of elements of a tensor or container that are written.
    **options
        The parameters of :class:`DataLogger`. Without `contents`, tensors are described, and not written.
    """

    def __init__(self, ports: Iterable[str] | str | None = None, *, most: int = 10, **options: Any) -> None:
        super().__init__(ports, **options)
        self._text = _Text(most, self.contents)

    def initialize(self) -> None:
        """Prepare for a run."""
        if _log.level == logging.NOTSET:
            _log.setLevel(logging.INFO)
        if not _log.hasHandlers():
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("%(message)s"))
            _log.addHandler(handler)

    def log(self, message: LoggedMessage) -> None:
        """Print a message."""
        port, acquired = message.port, message.acq_timestamp
        more = "" if acquired is None else f", acquired at {acquired} ns"
        if message.metadata:
            more += f", metadata {self._text.repr(message.metadata)}"
        verb = "emits" if port.is_output else "receives"
        _log.info("%s %s at %d ns%s: %s", port.name, verb, message.time, more, self._text.repr(message.data))


class _Text(reprlib.Repr):
    """Writes messages: what arrays are with their first elements, and the beginning of what is long."""

    def __init__(self, most: int, contents: bool) -> None:
        super().__init__()
        self._most, self._contents = most, contents
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = self.maxdeque = most
        self.maxstring = self.maxlong = self.maxother = _LONGEST

    def repr1(self, x: Any, level: int) -> str:
        """Return the text of an object."""
        if isinstance(x, (TensorCopy, np.ndarray)) or is_array(x):
            try:
                return self._array(x)
            except TensorError:
                return super().repr1(x, level)
        return self.repr_dict(dict(x), level) if isinstance(x, Mapping) else super().repr1(x, level)

    def _array(self, array: Any) -> str:
        if isinstance(array, np.ndarray):
            dtype, device, is_read = array.dtype, "cpu", True
        else:
            array = array if isinstance(array, TensorCopy) else as_tensor(array)
            dtype, device = array.dl_dtype.name, array.device
            is_read = isinstance(array, TensorCopy) or not device.is_cuda
        text = f"{dtype} {array.shape} on {device}"
        return f"{text}: {self._elements(np.asarray(array))}" if is_read and self._contents else text

    def _elements(self, array: np.ndarray) -> str:
        first = array.reshape(-1)[: self._most]
        text = np.array2string(first, separator=", ", threshold=self._most + 1, max_line_width=1 << 20)
        return text if array.size <= self._most else f"{text[:-1]}, ...]"
