"""Executables: the executable graphs of one recording, one for each set of addresses that frames come with.

A recorded graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ
from frame to frame. But memory is used again and again, so after a few frames the same addresses come back. An
executable graph is made for each set of addresses, up to a number; from then on one of them is changed for every
frame whose addresses are not known. A change affects later launches only.

Measured on an H200: a launch costs the host 4 to 5 µs, and a change of one copy 3 µs; a copy beside the graph would
cost 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import gpu
from penstock._runtime.capture.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Copy", "Executables", "TimedExecutable"]

_MOST = 16


class Copy(NamedTuple):
    """A copy at the border of a recorded graph.

    Attributes
    ----------
    recorded
        The address outside of the recording with which it was recorded.
    fixed
        The address inside the recording.
    size
        The number of bytes.
    enters
        Whether it copies from outside to inside.
    """

    recorded: int
    fixed: int
    size: int
    enters: bool

    def addresses(self, outside: int) -> dict[str, int]:
        """Return where to copy to and from, for an address outside."""
        if self.enters:
            return {"dst": self.fixed, "src": outside, "size": self.size}
        return {"dst": outside, "src": self.fixed, "size": self.size}


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

    Attributes
    ----------
    known
        The executable graphs by their addresses.
    """

    def __init__(self, definition: Any, copies: Sequence[Copy], options: Any) -> None:
        self._definition = definition
        self._copies = list(copies)
        self._options = options
        self._nodes = _find_nodes(definition, copies)
        self.known: dict[tuple[int, ...], Any] = {}
        # The one that is changed for each frame, and what it was last changed to.
        self._changed: Any = None
        self._changed_to: list[int] = []

    def launch(self, addresses: tuple[int, ...], stream: Any) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        graph = self.known.get(addresses)
        if graph is None:
            graph = self._make(addresses)
        graph.launch(stream)

    def _make(self, addresses: tuple[int, ...]) -> Any:
        if len(self.known) < _MOST:
            graph = self._definition.instantiate(self._options)
            self._change(graph, [0] * len(addresses), addresses)
            self.known[addresses] = graph
            return graph
        if self._changed is None:
            self._changed = self._definition.instantiate(self._options)
            self._changed_to = [0] * len(addresses)
        self._change(self._changed, self._changed_to, addresses)
        self._changed_to = list(addresses)
        return self._changed

    def _change(self, graph: Any, earlier: list[int], addresses: tuple[int, ...]) -> None:
        for copy, node, before, address in zip(self._copies, self._nodes, earlier, addresses, strict=True):
            if address != before:
                graph[node].update(**copy.addresses(address))

    def make_timed(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> TimedExecutable:
        """Return another executable graph, which also records events, each after some of the nodes."""
        graph = gpu.instantiate_with_records(self._definition, records, self._options)
        return TimedExecutable(graph, self._change, len(self._copies))

    def close(self) -> None:
        """Close the graphs; the device has finished."""
        graphs = [*self.known.values(), self._changed]
        self.known.clear()
        self._changed = None
        for graph in graphs:
            if graph is not None:
                graph.close()


class TimedExecutable:
    """An executable graph that also records events; it is changed for each frame.

    Parameters
    ----------
    graph
        The graph.
    change
        Changes the copies at its border, given the addresses before and now.
    copies
        The number of these copies.
    """

    def __init__(
        self, graph: Any, change: Callable[[Any, list[int], tuple[int, ...]], None], copies: int
    ) -> None:
        self._graph = graph
        self._change = change
        self._at = [0] * copies

    def launch(self, addresses: tuple[int, ...], stream: Any) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        self._change(self._graph, self._at, addresses)
        self._at = list(addresses)
        self._graph.launch(stream)

    def close(self) -> None:
        """Close the graph; the device has finished."""
        self._graph.close()


def _find_nodes(definition: Any, copies: Sequence[Copy]) -> list[Any]:
    """Return the nodes of copies in a recorded graph."""
    by_address = {
        (node.dst, node.src): node for node in definition.nodes() if type(node).__name__ == "MemcpyNode"
    }
    found: list[Any] = []
    for copy in copies:
        where = copy.addresses(copy.recorded)
        node = by_address.get((where["dst"], where["src"]))
        if node is None:
            raise Refusal("a copy at the border of the segment was not found in the recorded graph")
        found.append(node)
    return found
