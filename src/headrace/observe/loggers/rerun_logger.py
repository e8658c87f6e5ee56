"""RerunLogger: messages in Rerun's viewer (the extra ``rerun``)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.ports import IOSpec
from headrace.core.run_files import path_of_start
from headrace.lazy import import_or_explain
from headrace.observe.loggers.data_loggers import OneThreadLogger, tensors_of

if TYPE_CHECKING:
    from headrace.core.composition import Composition

_OUTPUT = IOSpec.IOType.OUTPUT


class RerunLogger(OneThreadLogger):
    """Logs every message to Rerun, as the entity ``operator/port``; the tensors of a TensorMap below it.

    A number becomes a time series, an image (height, width, and 1, 3 or 4 channels of uint8) an image, another
    array a tensor, and everything else text. The timelines are ``time``, which is the time of the run, and
    ``acq_timestamp``.

    Parameters
    ----------
    target
        ``"window"`` opens Rerun's viewer, ``"web"`` serves it to a browser, and anything else is the path of an
        ``.rrd`` file.
    **options
        The parameters of :class:`AsyncDataLoggerResource` and :class:`DataLoggerResource`; received messages are
        logged only if ``log_inputs`` is set.
    """

    def __init__(
        self,
        fragment: Composition | None = None,
        target: str | os.PathLike[str] = "window",
        **options: Any,
    ) -> None:
        super().__init__(fragment, **{"name": "rerun_logger", "log_inputs": False, **options})
        self.target = os.fspath(target)
        self._rerun: Any = import_or_explain("rerun", "rerun", "to log messages to Rerun")
        self._recording: Any = None

    def initialize(self) -> None:
        """Open the viewer or the file."""
        title = "headrace" if self.fragment is None else self.fragment.name
        self._recording = self._rerun.RecordingStream(title)
        if self.target == "window":
            self._recording.spawn()
        elif self.target == "web":
            self._rerun.serve_web_viewer(open_browser=False, connect_to=self._recording.serve_grpc())
        else:
            self._recording.save(path_of_start(self.target))

    def release(self) -> None:
        """Write what is left, and end."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.flush()
            recording.disconnect()

    def log_data(
        self,
        data: Any,
        unique_id: str,
        acquisition_timestamp: int = -1,
        metadata: dict[str, Any] | None = None,
        io_type: IOSpec.IOType = _OUTPUT,
        stream: Any = None,
    ) -> bool:
        """Log a message."""
        recording = self._recording
        recording.set_time("time", duration=self.get_timestamp() / 1e9)
        if acquisition_timestamp != -1:
            recording.set_time("acq_timestamp", duration=acquisition_timestamp / 1e9)
        operator, _, port = unique_id.rpartition(".")
        path = [operator, port] if io_type is _OUTPUT else [operator, "inputs", port]
        for name, value in tensors_of(data).items():
            recording.log([*path, name] if name else path, self._entity(value))
        if metadata:
            recording.log([*path, "metadata"], self._rerun.TextLog(repr(metadata)))
        return True

    def _entity(self, value: Any) -> Any:
        rr = self._rerun
        if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
            scalars = getattr(rr, "Scalars", None) or rr.Scalar
            return scalars(float(value))
        if isinstance(value, np.ndarray) or hasattr(value, "dl_dtype"):
            if not self.log_tensor_data_content:
                return rr.TextLog(repr(value))
            array = np.asarray(value)
            is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
            if is_image and array.dtype == np.uint8:
                return rr.Image(np.ascontiguousarray(array))
            if array.dtype.kind in "iuf" and array.ndim and array.size:
                return rr.Tensor(np.ascontiguousarray(array))
            return rr.TextLog(np.array2string(array, threshold=100))
        return rr.TextLog(value if isinstance(value, str) else repr(value))
