"""ArrowLogger: messages as the rows of an Arrow or Parquet file (the extra ``arrow``)."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.ports import IOSpec
from headrace.core.run_files import path_of_start
from headrace.lazy import import_or_explain
from headrace.observe.loggers.data_loggers import OneThreadLogger, tensors_of
from headrace.observe.recordings.payloads import PayloadError, encode, type_name
from headrace.observe.recordings.snapshots import TensorCopy

if TYPE_CHECKING:
    from headrace.core.composition import Composition

_OUTPUT = IOSpec.IOType.OUTPUT


class ArrowLogger(OneThreadLogger):
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
    **options
        The parameters of :class:`AsyncDataLoggerResource` and :class:`DataLoggerResource`.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        path: str | os.PathLike[str] = "messages.parquet",
        *,
        flush_rows: int = 256,
        **options: Any,
    ) -> None:
        super().__init__(fragment, **{"name": "arrow_logger", **options})
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
        self._sink = open(path_of_start(self.path), "wb")  # noqa: SIM115 (it stays open for the run)
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
        self._rows += [
            {**common, "name": name or None, **self._columns(one)} for name, one in tensors_of(data).items()
        ]
        if len(self._rows) >= self.flush_rows:
            self._flush()
        return True

    def _columns(self, data: Any) -> dict[str, Any]:
        """Return the columns that tell of the data."""
        is_tensor = hasattr(data, "dl_dtype")
        if is_tensor or isinstance(data, np.ndarray):
            dtype = data.dl_dtype.name if is_tensor else str(data.dtype)
            array = data.elements() if isinstance(data, TensorCopy) else data
            is_readable = isinstance(array, np.ndarray) and not array.dtype.hasobject
            content = array.tobytes() if is_readable and self.log_tensor_data_content else None
            return {"shape": list(data.shape), "dtype": dtype, "data": content}
        columns: dict[str, Any] = {"dtype": type_name(data)}
        if isinstance(data, np.generic):
            columns = {"dtype": str(data.dtype), "data": data.tobytes()}
            if data.dtype.kind in "biuf":
                columns["scalar"] = float(data)
        elif type(data) in (bool, int, float):
            try:
                columns["scalar"] = float(data)
            except OverflowError:
                columns["text"] = str(data)
        elif type(data) is bytes:
            columns["data"] = data
        elif data is not None:
            columns["text"] = data if type(data) is str else repr(data)
            if type(data) in (tuple, list, dict):
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
