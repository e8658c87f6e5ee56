"""Stream capture: what cuda.core lacks for graphs.

cuda.core records graphs by capture (``Stream.create_graph_builder``); :func:`graph_builder` does so without the
damage that an invalidated capture does there. An event that is recorded while its stream
captures orders the nodes of the graph and is nothing else: it can be neither queried nor timed. An *external*
record is a node of the graph, so every launch of the graph records the event, and its time can be read. Likewise an
external wait is a node that waits for work outside the graph.

Records of events can also be added to a graph that was recorded without them (:func:`instantiate_with_records`), at
the points that its streams had reached (:func:`captured_frontier`). So one recording gives both a graph that takes
times and one that does not pay for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.gpu.backend import backend_of
from headrace.gpu.stream_handle import SupportsStream

if TYPE_CHECKING:
    from headrace.gpu import sim


def is_capturing(stream: SupportsStream) -> bool:
    """Return whether a stream captures its work for a graph, even if an error has invalidated the capture.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream of any device.
    """
    return backend_of(stream).is_capturing(stream)


def graph_builder(stream: SupportsStream) -> sim.GraphBuilder:
    """Return a builder that captures the work of a stream, and that an invalid capture does not harm.

    Parameters
    ----------
    stream : Stream or StreamHandle
        A stream of any device.
    """
    builder: sim.GraphBuilder = backend_of(stream).graph_builder(getattr(stream, "stream", stream))
    return builder


def captured_nodes(stream: SupportsStream) -> int:
    """Return the number of nodes that the capture of a stream has recorded so far, on all its streams.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    """
    return backend_of(stream).captured_nodes(stream)


def captured_frontier(stream: SupportsStream) -> dict[int, Any]:
    """Return the nodes that the next work of a stream will depend on, by their handles; empty at the beginning.

    Parameters
    ----------
    stream : Stream, StreamHandle, or another library's stream
        A stream that captures; for other streams, an error.
    """
    return backend_of(stream).captured_frontier(stream)


def instantiate_with_records(
    definition: Any, records: Iterable[tuple[Mapping[int, Any], sim.Event]], options: Any = None
) -> sim.Graph:
    """Return an executable graph of recorded nodes that also records events; the definition stays as it is.

    The graph does not keep the events alive.

    Parameters
    ----------
    definition : GraphDefinition
        The recorded nodes.
    records
        For each event, the nodes after which every launch records it, as :func:`captured_frontier` returned them
        during the capture.
    options : GraphCompleteOptions, optional
        The options of the executable graph.
    """
    graph: sim.Graph = backend_of(definition).instantiate_with_records(definition, records, options)
    return graph


class RecordedCopy:
    """A copy in a recorded graph, between addresses that stay the same.

    Parameters
    ----------
    stream : Stream or StreamHandle
        A stream that captures; the copy is recorded on it.
    target, source : int
        The addresses to copy to and from, in memory that the stream's device can use.
    size : int
        The number of bytes.
    """

    __slots__ = ()

    def __init__(self, stream: SupportsStream, target: int, source: int, size: int) -> None:
        check_copy(stream, size)
        backend_of(stream).record_copy(stream, target, source, size)

    @staticmethod
    def prepare(device: sim.Device) -> None:
        """Compile what recorded copies need, which would otherwise delay the first of them."""
        backend_of(device).prepare_copies(device)


def check_copy(stream: SupportsStream, size: int) -> None:
    """Raise an error if a copy of that size cannot be recorded on a stream."""
    if size < 1:
        raise ValueError(f"a recorded copy has at least one byte, got {size}")
    if not is_capturing(stream):
        raise RuntimeError("the stream does not capture, so there is no graph to record a copy in")
