"""Executables: the executable graphs of one recording, one for each set of addresses that frames come with.

A recorded graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ
from frame to frame. But memory is used again and again, so after a few frames the same addresses come back. An
executable graph is made for each set of addresses, up to a number; from then on one of them is changed for every
frame whose addresses are not known. A change affects later launches only. The driver refuses to change a copy to
memory of another kind (a pool's in place of the driver's own); such an array is copied by way of another.

On an H200 a launch costs the host 4 µs, and a copy beside the graph would cost 6 (`benchmarks/graph_costs.py`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock._runtime.capture.graphs import copy
from penstock._runtime.capture.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock._runtime.capture.device_arrays import Layout

__all__ = ["Copy", "Executables", "TimedExecutable"]

_MOST = 16


class Copy:
    """A copy at the border of a recorded graph.

    Parameters
    ----------
    layout
        The layout of the array that is copied.
    fixed
        The address inside the recording.
    enters
        Whether it copies from outside to inside.
    stream
        A stream, for the memory of the bounce array.

    Attributes
    ----------
    bounce
        An array outside with which the copy was recorded; one in another kind of memory is copied by way of it.
    """

    def __init__(self, layout: Layout, fixed: int, enters: bool, stream: gpu.StreamHandle) -> None:
        before, self.size = layout.kind.extent(layout)
        self.fixed = fixed
        self.enters = enters
        current = layout.kind.current(stream)
        with nullcontext() if current is None else current:
            self.bounce = layout.kind.new(layout, stream)
        self.outside = layout.kind.address(self.bounce) - before
        self._recorded: gpu.RecordedCopy

    def record(self, stream: gpu.StreamHandle) -> None:
        """Record the copy on a stream that captures."""
        copy(stream, *self._ends(self.outside), self.size)

    def find(self, nodes: dict[tuple[int, int], Any]) -> None:
        """Find its node among those of the recorded graph, by where they copy to and from."""
        node = nodes.get(self._ends(self.outside))
        if node is None:
            raise Refusal("a copy at the border of the segment was not found in the recorded graph")
        self._recorded = gpu.RecordedCopy(node)

    def change(self, graph: Any, outside: int) -> bool:
        """Copy from or to another address outside; return False if the driver refuses, and use the bounce array."""
        if self._recorded.change(graph, *self._ends(outside), self.size):
            return True
        self._recorded.change(graph, *self._ends(self.outside), self.size)
        return False

    def bounce_over(self, stream: gpu.StreamHandle, outside: int) -> None:
        """Copy between an array outside and the bounce array, beside the graph."""
        ends = (self.outside, outside) if self.enters else (outside, self.outside)
        copy(stream, *ends, self.size)

    def _ends(self, outside: int) -> tuple[int, int]:
        """Return where to copy to and from."""
        return (self.fixed, outside) if self.enters else (outside, self.fixed)


class _Executable:
    """An executable graph, and the copies that need to go by way of their bounce arrays."""

    __slots__ = ("after", "before", "graph")

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.before: list[tuple[Copy, int]] = []
        self.after: list[tuple[Copy, int]] = []

    def launch(self, stream: gpu.StreamHandle) -> None:
        for each, address in self.before:
            each.bounce_over(stream, address)
        self.graph.launch(stream.stream)
        for each, address in self.after:
            each.bounce_over(stream, address)


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
        nodes = definition.nodes() if copies else ()
        found = {(node.dst, node.src): node for node in nodes if type(node).__name__ == "MemcpyNode"}
        for each in copies:
            each.find(found)
        self._known: dict[tuple[int, ...], _Executable] = {}
        # The one that is changed for each frame whose addresses are not known.
        self._changed: _Executable | None = None

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        executable = self._known.get(addresses)
        if executable is None:
            executable = self._make(addresses)
        if executable.before or executable.after:
            executable.launch(stream)
        else:
            executable.graph.launch(stream.stream)

    def _make(self, addresses: tuple[int, ...]) -> _Executable:
        if len(self._known) < _MOST:
            executable = self._known[addresses] = _Executable(self._definition.instantiate(self._options))
        else:
            if self._changed is None:
                self._changed = _Executable(self._definition.instantiate(self._options))
            executable = self._changed
        self._change(executable, addresses)
        return executable

    def _change(self, executable: _Executable, addresses: tuple[int, ...]) -> None:
        executable.before.clear()
        executable.after.clear()
        for each, address in zip(self._copies, addresses, strict=True):
            if not each.change(executable.graph, address):
                (executable.before if each.enters else executable.after).append((each, address))

    def make_timed(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> TimedExecutable:
        """Return another executable graph, which also records events, each after some of the nodes."""
        graph = gpu.instantiate_with_records(self._definition, records, self._options)
        return TimedExecutable(_Executable(graph), self._change)

    def close(self) -> None:
        """Close the graphs; the device has finished."""
        executables = [*self._known.values(), self._changed]
        self._known.clear()
        self._changed = None
        for executable in executables:
            if executable is not None:
                executable.graph.close()


class TimedExecutable:
    """An executable graph that also records events; it is changed for each frame whose addresses differ."""

    def __init__(
        self, executable: _Executable, change: Callable[[_Executable, tuple[int, ...]], None]
    ) -> None:
        self._executable = executable
        self._change = change
        self._addresses: tuple[int, ...] | None = None

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        if addresses != self._addresses:
            self._change(self._executable, addresses)
            self._addresses = addresses
        self._executable.launch(stream)

    def close(self) -> None:
        """Close the graph; the device has finished."""
        self._executable.graph.close()
