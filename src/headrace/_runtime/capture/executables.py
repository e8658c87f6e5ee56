"""Executables: the executable graphs of one recording, one for each set of addresses that frames come with.

A recorded graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ
from frame to frame. But memory is used again and again, so after a few frames the same addresses come back. An
executable graph is made for each set of addresses, up to a number; from then on one of them is changed for every
frame whose addresses are not known. A change affects later launches only. The first is made with the recording: if
that fails, the segment is not recorded. If another cannot be made, those that there are have to do.

The memory at an address may have been freed since, and other memory allocated there: the graphs know addresses only
(:class:`headrace.gpu.RecordedCopy`).

On an H200 a launch costs the host 4 µs, and a copy beside the graph would cost 6 (`benchmarks/graph_costs.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace import gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Copy", "Executables", "TimedExecutable"]

_MOST = 16


class Copy:
    """A copy at the border of a recorded graph.

    Parameters
    ----------
    stream
        The stream that captures.
    fixed
        The address inside the recording.
    size
        The number of bytes.
    enters
        Whether it copies from outside to inside.
    """

    def __init__(self, stream: gpu.StreamHandle, fixed: int, size: int, enters: bool) -> None:
        self._fixed = fixed
        self._enters = enters
        # Each executable graph is changed before its first launch; until then the address outside is not known.
        self._recorded = gpu.RecordedCopy(stream, fixed, fixed, size)

    def change(self, graph: Any, outside: int) -> None:
        """Copy from or to an address outside in later launches of an executable graph."""
        if self._enters:
            self._recorded.change(graph, self._fixed, outside)
        else:
            self._recorded.change(graph, outside, self._fixed)


class Executables:
    """The executable graphs of one recording.

    Parameters
    ----------
    definition
        The recorded graph.
    copies
        The copies at its border, in the order of the addresses that `launch` takes.
    options
        The options for making a graph executable.
    """

    def __init__(self, definition: Any, copies: Sequence[Copy], options: Any) -> None:
        self._definition = definition
        self._copies = list(copies)
        self._options = options
        self._known: dict[tuple[int, ...], Any] = {}
        # One that was made and not used yet.
        self._spare: Any = definition.instantiate(options)
        # The one that is changed for each frame whose addresses are not known.
        self._changed: Any = None

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        graph = self._known.get(addresses)
        if graph is None:
            graph = self._make(addresses)
        graph.launch(stream.stream)

    def _make(self, addresses: tuple[int, ...]) -> Any:
        graph = self._changed
        if graph is None:
            graph = self._take()
            if graph is not None and len(self._known) < _MOST:
                self._change(graph, addresses)
                self._known[addresses] = graph
                return graph
            self._changed = graph = graph or self._known.popitem()[1]
        self._change(graph, addresses)
        return graph

    def _take(self) -> Any:
        """Return an executable graph that is not used yet; None if another cannot be made."""
        graph, self._spare = self._spare, None
        if graph is None:
            with suppress(Exception):  # there is too little memory, say
                graph = self._definition.instantiate(self._options)
        return graph

    def _change(self, graph: Any, addresses: tuple[int, ...]) -> None:
        for each, address in zip(self._copies, addresses, strict=True):
            each.change(graph, address)

    def make_timed(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> TimedExecutable:
        """Return another executable graph, which also records events, each after some of the nodes."""
        return TimedExecutable(
            gpu.instantiate_with_records(self._definition, records, self._options), self._change
        )

    def close(self) -> None:
        """Close the graphs; the device has finished."""
        graphs = [*self._known.values(), self._spare, self._changed]
        self._known.clear()
        self._spare = self._changed = None
        for graph in graphs:
            if graph is not None:
                graph.close()


class TimedExecutable:
    """An executable graph that also records events; it is changed for each frame whose addresses differ."""

    def __init__(self, graph: Any, change: Callable[[Any, tuple[int, ...]], None]) -> None:
        self._graph = graph
        self._change = change
        self._addresses: tuple[int, ...] | None = None

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        if addresses != self._addresses:
            self._addresses = None  # a change that fails leaves some of the copies changed
            self._change(self._graph, addresses)
            self._addresses = addresses
        self._graph.launch(stream.stream)

    def close(self) -> None:
        """Close the graph; the device has finished."""
        self._graph.close()
