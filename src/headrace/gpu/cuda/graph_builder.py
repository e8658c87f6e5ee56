"""The capture of a stream into a graph that is destroyed once.

When a capture that was invalidated is ended, the driver destroys its graph, whether it was made for the capture or
given to it (driver 580). cuda.core's objects do not know that. They destroy the graph once more when they are
collected: its builder, which owns the graph from the beginning, and a definition that the capture was given. If
another graph has been made at the same address meanwhile, it is that one which is gone, and its owner destroys it
again: now and then the process ended with ``free(): invalid size``.

So a capture is given a definition of ours, and if it was invalidated, the definition is never collected. That costs
a small object for each frame that cannot be recorded.
"""

from __future__ import annotations

import ctypes
from typing import Any

from headrace.gpu.cuda.capture import check_status


class CudaGraphBuilder:
    """The part of cuda.core's GraphBuilder that recording a segment needs."""

    def __init__(self, stream: Any) -> None:
        from headrace.gpu.cuda import GraphDefinition

        self._stream = stream
        self._is_capturing = False
        self.graph_definition = GraphDefinition()

    def begin_building(self, mode: str) -> None:
        """Begin to capture."""
        from cuda.bindings import driver

        modes = driver.CUstreamCaptureMode
        (status,) = driver.cuStreamBeginCaptureToGraph(
            self._stream.handle,
            self.graph_definition.handle,
            None,
            None,
            0,
            getattr(modes, f"CU_STREAM_CAPTURE_MODE_{mode.upper()}"),
        )
        check_status(status, "a stream cannot be captured")
        self._is_capturing = True

    def end_building(self) -> None:
        """End the capture."""
        from cuda.bindings import driver

        self._is_capturing = False
        status, _ = driver.cuStreamEndCapture(self._stream.handle)
        if status != driver.CUresult.CUDA_SUCCESS:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.graph_definition))
        check_status(status, "the capture of a stream cannot be ended")

    def close(self) -> None:
        """End the capture, if it has begun and not ended."""
        if self._is_capturing:
            self.end_building()
