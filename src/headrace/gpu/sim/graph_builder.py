"""Builders of graphs: the capture of a stream's work."""

from __future__ import annotations

from headrace.gpu.sim.capture import MODES, Capture
from headrace.gpu.sim.graph import Graph, GraphCompleteOptions
from headrace.gpu.sim.graph_nodes import GraphDefinition
from headrace.gpu.sim.objects import CUDAError, MadeByDriver, capture_error
from headrace.gpu.sim.operations import StreamQueue
from headrace.gpu.sim.stream import Stream


class GraphBuilder(metaclass=MadeByDriver):
    """The graph that a stream's work is recorded into.

    From :meth:`begin_building` to :meth:`end_building` the stream captures: its work becomes nodes and does not
    run. A stream that waits for an event of the capture joins it; the builder's stream has to wait for it before
    the end. An operation that cannot be captured raises an error and invalidates the capture. :meth:`close` then
    ends it, with an error, and the stream can be used again.

    The nodes do not keep the buffers alive that they use.
    """

    __slots__ = ("__weakref__", "_capture", "_definition", "stream")
    _made_by = "Stream.create_graph_builder"
    _refusal = NotImplementedError
    is_join_required = False  # simulated builders are not split

    def __init__(self, stream: Stream) -> None:
        self.stream: Stream | None = stream  # the stream that captures; None if closed
        self._capture: Capture | None = None  # from begin_building until it has been ended without an error
        self._definition: GraphDefinition | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self.stream is None

    @property
    def is_building(self) -> bool:
        """Whether its stream captures; an error if the capture has been invalidated."""
        queue = self._queue
        with queue.timeline.lock:
            capture = queue.capture
            if capture is not None and not capture.is_valid:
                raise RuntimeError(
                    "an error has invalidated the capture of this builder's stream; end it with close()"
                )
            return capture is not None

    @property
    def graph_definition(self) -> GraphDefinition:
        """The recorded nodes; available after :meth:`end_building`, and valid after :meth:`close`."""
        self._open()
        if self._definition is None:
            raise RuntimeError(
                "graph_definition is not available before building has ended; call end_building() first"
            )
        return self._definition

    def begin_building(self, mode: str | None = "relaxed") -> GraphBuilder:
        """Begin to capture.

        Parameters
        ----------
        mode : {"relaxed", "thread_local", "global"}
            Who must not make calls meanwhile that might be unsafe, such as allocating pinned memory: nobody, this
            thread, or any thread.
        """
        queue = self._queue
        if self._definition is not None:
            raise RuntimeError("a builder cannot begin again after building has ended")
        if self._capture is not None:
            raise RuntimeError("this builder is already building")
        if mode not in MODES:
            raise ValueError(f"unsupported build mode {mode!r}: must be one of {', '.join(map(repr, MODES))}")
        queue.context.device.machine.check()
        with queue.timeline.lock:
            if queue.is_default:
                raise capture_error("UNSUPPORTED", "the default stream cannot be captured")
            if queue.capture is not None:
                raise CUDAError("CUDA_ERROR_ILLEGAL_STATE: the stream is already capturing")
            self._capture = Capture(queue, mode)
        return self

    def end_building(self) -> GraphBuilder:
        """End the capture; an error if streams that joined it were not joined back."""
        if not self.is_building:
            raise RuntimeError("this builder is not building")
        queue = self._queue
        with queue.timeline.lock:
            capture = queue.capture
            assert capture is not None
            nodes = capture.end(queue)
        self._capture = None
        self._definition = GraphDefinition._create(queue.context.device.machine, nodes)
        return self

    def complete(self, options: GraphCompleteOptions | None = None) -> Graph:
        """Return an executable graph of the recorded nodes."""
        self._open()
        if self._definition is None:
            raise RuntimeError("this builder has not finished building")
        return Graph._create(self._definition, options)

    def close(self) -> None:
        """Close the builder; an invalidated capture ends with an error."""
        if self.stream is None:
            return
        if self._capture is not None:
            queue = self.stream._own_queue
            with queue.timeline.lock:
                capture = queue.capture
                nodes = [] if capture is None else capture.end(queue)
            del nodes  # and what they refer to, without the lock
            self._capture = None
        self._definition = None
        self.stream = None

    def __cuda_stream__(self) -> tuple[int, int]:
        return self._open().__cuda_stream__()

    def __del__(self) -> None:
        # As cuda.core does it: whatever the stream captures now is ended, even for another builder. A program that
        # keeps a builder whose close() failed, and captures the stream again, loses that capture.
        if getattr(self, "_capture", None) is not None and self.stream is not None:
            capture = self.stream._own_queue.capture
            if capture is not None:
                capture.abandon()

    def __repr__(self) -> str:
        return f"<GraphBuilder of {self.stream!r}>" if self.stream else "<GraphBuilder closed>"

    @property
    def _queue(self) -> StreamQueue:
        return self._open()._queue

    def _open(self) -> Stream:
        if self.stream is None:
            raise RuntimeError("this graph builder has been closed")
        return self.stream
