"""Executables: the executable graphs of one recorded graph, whose frames are at changing addresses.

A recorded graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ
from frame to frame, but memory is used again and again, so after a few frames the same addresses come back. An
executable is made for each set of addresses, up to a number. From then on, a frame at unknown addresses changes the
executable that has had its addresses for longest. So those of the first frames, whose memory is not used any more,
make room. A change affects later launches only. The first executable is made with the recording: if that fails,
there is no graph. If another cannot be made, the existing ones have to do.

On an H200 a launch costs the host 4 µs, and a copy beside the graph would cost 6 (`benchmarks/graph_costs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.gpu.capture import RecordedCopy, instantiate_with_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST_EXECUTABLES = 32


class BoundaryCopy:
    """A copy at the boundary of a recorded graph, between a fixed address inside and one outside that changes."""

    def __init__(self, stream: gpu.StreamHandle, fixed: int, size: int, enters: bool) -> None:
        self._fixed = fixed
        self._enters = enters
        # Each executable is changed before its first launch; until then the address outside is not known.
        self._recorded = RecordedCopy(stream, fixed, fixed, size)

    def change(self, executable: Any, outside: int) -> None:
        """Copy from or to an address outside in later launches of an executable."""
        if self._enters:
            self._recorded.change(executable, self._fixed, outside)
        else:
            self._recorded.change(executable, outside, self._fixed)


class Executables:
    """The executables of one graph.

    Parameters
    ----------
    definition
        The recorded graph.
    copies
        The copies at its boundary, in the order of the addresses that `launch` takes.
    changing
        The only executable, which is changed for every frame; without it, they are made as they are needed.
    """

    def __init__(self, definition: Any, copies: Sequence[BoundaryCopy], changing: Any = None) -> None:
        self._definition = definition
        self._copies = list(copies)
        self._most = 1 if changing else _MOST_EXECUTABLES
        # The executables by their addresses, and one that has none.
        self._known: dict[tuple[int, ...], Any] = {}
        self._spare: Any = changing or definition.instantiate(gpu.GraphCompleteOptions())

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        executable = self._known.get(addresses)
        if executable is None:
            executable = self._make(addresses)
        executable.launch(stream.stream)

    def _make(self, addresses: tuple[int, ...]) -> Any:
        if self._spare is None and len(self._known) < self._most:
            try:
                self._spare = self._definition.instantiate(gpu.GraphCompleteOptions())
            except Exception:  # there is too little memory, say
                self._most = len(self._known)
        if self._spare is None:
            self._spare = self._known.pop(next(iter(self._known)))
        executable = self._spare
        for copy, address in zip(self._copies, addresses, strict=True):
            copy.change(executable, address)
        self._spare = None
        self._known[addresses] = executable
        return executable

    def with_records(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> Executables:
        """Return another executable, which also records events, each after some of the nodes."""
        changing = instantiate_with_records(self._definition, records, gpu.GraphCompleteOptions())
        return Executables(self._definition, self._copies, changing)

    def close(self) -> None:
        """Close the executables; the device has finished."""
        executables = [*self._known.values(), self._spare]
        self._known.clear()
        self._spare = None
        for executable in executables:
            if executable is not None:
                executable.close()
