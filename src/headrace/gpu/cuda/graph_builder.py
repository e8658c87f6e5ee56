"""The capture of a stream into a graph that is ours from the beginning.

cuda.core's GraphBuilder owns the graph that the driver makes for a capture. If the capture is invalidated, the
driver destroys that graph when the capture is ended. The builder does not know, and destroys it once more when it
is collected (cuda.core 1.2), which damages the heap: now and then the process ends with ``free(): invalid size``.
A capture into an existing graph leaves that graph alone, whatever becomes of the capture.
"""

from __future__ import annotations

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
        check_status(status, "the capture of a stream cannot be ended")

    def close(self) -> None:
        """End the capture, if it has begun and not ended."""
        if self._is_capturing:
            self.end_building()
