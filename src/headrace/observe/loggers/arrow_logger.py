"""ArrowLogger: messages as the rows of an Arrow or Parquet file (the extra ``arrow``)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.ports import IOSpec
from headrace.lazy import import_or_explain
from headrace.observe.loggers.data_loggers import AsyncDataLoggerResource, DataLoggerQueueType
from headrace.observe.recordings.payloads import PayloadError, encode
from headrace.observe.recordings.snapshots import TensorCopy, TensorMapCopy

if TYPE_CHECKING:
    from headrace.core.composition import Composition

_OUTPUT = IOSpec.IOType.OUTPUT


class ArrowLogger(AsyncDataLoggerResource):
    """Writes a row for every message, or one for each tensor of a TensorMap.

    ================== =======================================================================================
    ``time``           when it was emitted or received, in nanoseconds of the logger's clock
    ``operator``       the operator
    ``port``           the port, with ``:index`` at an input for any number of connections
    ``direction``      ``"output"`` or ``"input"``
    ``acq_timestamp``  the acquisition timestamp, or null
    ``metadata``       JSON, or null
    ``name``           the name of the tensor in a TensorMap, or null
    ``shape``          of an array, else null
    ``dtype``          of an array, or the type of a Python object
    ``scalar``         a number as float64, or null
    ``text``           a str, or the text of an object that is neither a number nor an array
    ``data``           the elements of an array in row-major order, or bytes
    ================== =======================================================================================

    The ending of the file decides on the format: ``.parquet``, ``.feather`` and ``.arrow`` (Arrow's file format),
    or ``.arrows`` (Arrow's stream format). What ends the process leaves the flushed rows of a stream readable; the
    other formats can be read only when the run has ended.

    Parameters
    ----------
    path
        The file, which is replaced if it exists.
    flush_rows
        The number of rows that are written at once.
    max_queue_size, **options
        The parameters of :class:`AsyncDataLoggerResource` and :class:`DataLoggerResource`.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        path: str | os.PathLike[str] = "messages.parquet",
        *,
        flush_rows: int = 256,
        max_queue_size: int = 50_000,
        **options: Any,
    ) -> None:
        options.setdefault("name", "arrow_logger")
        super().__init__(
            fragment,
            max_queue_size=max_queue_size,
            enable_large_data_queue=False,  # one thread, since one file
            queue_type=DataLoggerQueueType.ORDERED,
            **options,
        )
        self.path = Path(path)
        if self.path.suffix not in _FORMATS:
            raise ValueError(
                f"{self.name!r}: the name of the file must end in {', '.join(_FORMATS)}, not {str(self.path)!r}"
            )
        self.flush_rows = flush_rows
        self._arrow: Any = import_or_explain("pyarrow", "arrow", "to write Arrow and Parquet files")
        self._schema = self._arrow.schema(
            [
                ("time", self._arrow.int64()),
                ("operator", self._arrow.string()),
                ("port", self._arrow.string()),
                ("direction", self._arrow.string()),
                ("acq_timestamp", self._arrow.int64()),
                ("metadata", self._arrow.string()),
                ("name", self._arrow.string()),
                ("shape", self._arrow.list_(self._arrow.int64())),
                ("dtype", self._arrow.string()),
                ("scalar", self._arrow.float64()),
                ("text", self._arrow.string()),
                ("data", self._arrow.large_binary()),
            ]
        )
        self._rows: list[dict[str, Any]] = []
        self._sink: Any = None
        self._writer: Any = None

    def initialize(self) -> None:
        """Create the file."""
        self._rows = []
        self._sink = open(self.path, "wb")  # noqa: SIM115 (it stays open for the run)
        if self.path.suffix == ".parquet":
            parquet: Any = import_or_explain("pyarrow.parquet", "arrow", "to write Parquet files")
            self._writer = parquet.ParquetWriter(self._sink, self._schema)
        elif self.path.suffix == ".arrows":
            self._writer = self._arrow.ipc.new_stream(self._sink, self._schema)
        else:
            self._writer = self._arrow.ipc.new_file(self._sink, self._schema)

    def release(self) -> None:
        """Write what is left and close the file."""
        if self._writer is None:
            return
        try:
            self._flush()
        finally:
            writer, self._writer = self._writer, None
            writer.close()
            self._sink.close()

    def log_data(
        self,
        data: Any,
        unique_id: str,
        acquisition_timestamp: int = -1,
        metadata: dict[str, Any] | None = None,
        io_type: IOSpec.IOType = _OUTPUT,
        stream: Any = None,
    ) -> bool:
        """Add the row of a message, or the rows of a TensorMap."""
        operator, _, port = unique_id.rpartition(".")
        common = {
            "time": self.get_timestamp(),
            "operator": operator,
            "port": port,
            "direction": io_type.name.lower(),
            "acq_timestamp": None if acquisition_timestamp == -1 else acquisition_timestamp,
            "metadata": None if metadata is None else json.dumps(metadata, default=repr),
        }
        if isinstance(data, dict) and data and all(hasattr(value, "dl_dtype") for value in data.values()):
            self._rows += [{**common, "name": name, **self._columns(tensor)} for name, tensor in data.items()]
        else:
            self._rows.append({**common, **self._columns(data)})
        if len(self._rows) >= self.flush_rows:
            self._flush()
        return True

    def _columns(self, data: Any) -> dict[str, Any]:
        if hasattr(data, "dl_dtype"):
            columns = {"shape": list(data.shape), "dtype": data.dl_dtype.name}
            if isinstance(data, TensorCopy) and self.log_tensor_data_content:
                columns["data"] = np.ascontiguousarray(data.elements()).tobytes()
            return columns
        kind = type(data)
        if isinstance(data, np.ndarray):
            columns = {"shape": list(data.shape), "dtype": str(data.dtype)}
            if self.log_tensor_data_content and not data.dtype.hasobject:
                columns["data"] = data.tobytes()
            return columns
        if isinstance(data, np.generic):
            is_number = data.dtype.kind in "biuf"
            return {
                "dtype": str(data.dtype),
                "scalar": float(data) if is_number else None,
                "data": data.tobytes(),
            }
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        if kind in (bool, int, float):
            try:
                return {"dtype": name, "scalar": float(data)}
            except OverflowError:
                return {"dtype": name, "text": str(data)}
        if kind is bytes:
            return {"dtype": name, "data": data}
        if kind is str:
            return {"dtype": name, "text": data}
        columns = {"dtype": name, "text": None if data is None else repr(data)}
        if not isinstance(data, TensorMapCopy) and kind in (tuple, list, dict):
            with suppress(PayloadError):
                columns["data"] = encode(data)
        return columns

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            batch = self._arrow.RecordBatch.from_pylist(rows, schema=self._schema)
            self._writer.write_batch(batch)
            self._sink.flush()


_FORMATS = (".parquet", ".arrows", ".arrow", ".feather")
