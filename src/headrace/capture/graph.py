"""Graph: one frame of a segment as a CUDA graph, its executables, and its launches.

A graph begins with copies from where a frame is, and ends with copies to where its results go. Both differ from
frame to frame, but memory is used again and again, so after a few frames the same addresses come back. An
executable is made for each set of addresses, up to a number; from then on one of them is changed for every frame
whose addresses are not known. A change affects later launches only. The first is made with the graph: if that
fails, the segment is not captured. If another cannot be made, the existing ones have to do.

What was received, emitted and held while a graph was recorded lives as long as the graph, which keeps nothing alive
itself. On an H200 a launch costs the host 4 µs, and a copy beside the graph would cost 6
(`benchmarks/graph_costs.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace.capture.boundary import Input, Output, copied_arrays
from headrace.capture.slots import Slot
from headrace.gpu.capture import RecordedCopy, instantiate_with_records
from headrace.tensor.device_arrays import NewArrays
from headrace.tensor.structures import Leaves, Structure, rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace._runtime import DetailsFlow, Launches, ManagedStream, Replays
    from headrace.capture.slots import Slots

_MOST_EXECUTABLES = 16


class Graph:
    """A recorded frame.

    Attributes
    ----------
    structures, outputs, names
        What it receives at each input, what it emits, and at which outputs.
    flow
        How metadata and timestamps pass it.
    launches
        The number of frames that it emitted.
    compare_at
        The time at which the next one is compared with an ordinary compute; the first one is at any time.
    is_chain
        Whether what it emits carries the metadata and the timestamp of the one message that it receives.
    """

    def __init__(
        self,
        stream: ManagedStream,
        structures: tuple[Structure, ...],
        inputs: list[Input],
        outputs: list[Output],
        executables: Executables,
        flow: DetailsFlow,
        kept: list[Any],
        slots: Slots | None,
    ) -> None:
        self.structures = structures
        self.inputs = inputs
        self.outputs = outputs
        self.names = [output.name for output in outputs]
        self.flow = flow
        self.launches = 0
        self.compare_at = float("-inf")
        self.is_chain = len(inputs) == 1 == len(outputs) and flow.is_chain
        self._stream = stream
        self._handle = stream.handle
        self._executables: Launches = executables
        self._kept = kept
        self._slot: Slot | None = None
        # How a launch finds the addresses of its arrays and makes what it emits, so that a frame looks nothing up.
        copied = [(number, input_) for number, input_ in enumerate(inputs) if input_.copied]
        self._entering = [(number, input_.address_of, input_.before) for number, input_ in copied]
        self._copied_back = [place for place, (_, input_) in enumerate(copied) if input_.is_copied_back]
        self._new: list[NewArrays] = []
        self._leaving: list[tuple[int, Callable[[Any], int], int]] = []
        if slots is None:
            sent = copied_arrays(outputs)
            self._new = [NewArrays(array.layout, stream.handle) for array in sent]
            self._leaving = [
                (place, array.address_of, array.before) for place, array in enumerate(sent) if array.size
            ]
        else:
            sent = [array for output in outputs for array in output.arrays]
            self._slot = Slot(slots, self, sent)
        # Whether what is emitted are these arrays, one at each output.
        self._is_plain = all(output.is_array for output in outputs) and sent == [
            array for output in outputs for array in output.arrays
        ]
        self._sent = sent

    @property
    def copied_back(self) -> set[int]:
        """The numbers of the arrays that are copied back after a frame."""
        return {number for number, input_ in enumerate(self.inputs) if input_.is_copied_back}

    def launch(self, leaves: Leaves, values: Leaves) -> list[Any]:
        """Launch an executable on the arrays of a frame, and return what each output emits."""
        addresses = [address_of(leaves[number]) - before for number, address_of, before in self._entering]
        back = [addresses[place] for place in self._copied_back] if self._copied_back else None
        if self._slot is None:
            made = [new.spare.pop() if new.spare else new.take() for new in self._new]
            for place, address_of, before in self._leaving:
                addresses.append(address_of(made[place]) - before)
        else:
            made = self._slot.lend(self._stream)
        if back is not None:
            addresses += back
        self._executables.launch(tuple(addresses), self._handle)
        return made if self._is_plain else self._emitted(made, values)

    def _emitted(self, made: list[Any], values: Leaves) -> list[Any]:
        """Return what is emitted: the arrays that a launch writes, views of them, and values of the host."""
        arrays = dict(zip(self._sent, made, strict=True))
        emitted: list[Any] = []
        for output in self.outputs:
            found = [
                arrays[array] if array.within is None else array.within.view(array, arrays[array.within])
                for array in output.arrays
            ]
            emitted.append(
                found[0]
                if output.is_array
                else rebuild(output.structure, iter(found), iter(output.values_for(values)))
            )
        return emitted

    def watch(self, replays: Replays, spans: Any) -> None:
        """Let an observer see every launch; `spans` tells where the work of each operator begins and ends."""
        self._executables = replays.around_launches(self._executables, spans, self._stream)

    def close(self) -> None:
        """Release the executables first, then the memory that they use; the device has finished."""
        self._executables.close()
        self._new.clear()
        self._sent.clear()
        self._slot = None  # it refers to its graph
        self.outputs.clear()
        self._kept.clear()
        for input_ in self.inputs:
            input_.close(self._handle)


class BoundaryCopy:
    """A copy at the boundary of a graph, between a fixed address inside and one outside that changes."""

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
        self._known: dict[tuple[int, ...], Any] = {}
        # The executable that was made and not used yet, and the one that is changed for unknown addresses.
        self._spare: Any = None if changing else definition.instantiate(gpu.GraphCompleteOptions())
        self._changing: Any = changing

    def launch(self, addresses: tuple[int, ...], stream: gpu.StreamHandle) -> None:
        """Launch the graph for a frame whose arrays are at these addresses."""
        executable = self._known.get(addresses)
        if executable is None:
            executable = self._make(addresses)
        executable.launch(stream.stream)

    def _make(self, addresses: tuple[int, ...]) -> Any:
        if self._changing is None:
            executable, self._spare = self._spare, None
            if executable is None:
                with suppress(Exception):  # there is too little memory, say
                    executable = self._definition.instantiate(gpu.GraphCompleteOptions())
            if executable is not None and len(self._known) < _MOST_EXECUTABLES:
                self._change(executable, addresses)
                self._known[addresses] = executable
                return executable
            self._changing = executable or self._known.popitem()[1]
        self._change(self._changing, addresses)
        return self._changing

    def _change(self, executable: Any, addresses: tuple[int, ...]) -> None:
        for copy, address in zip(self._copies, addresses, strict=True):
            copy.change(executable, address)

    def with_records(self, records: Iterable[tuple[Mapping[int, Any], Any]]) -> Executables:
        """Return another executable, which also records events, each after some of the nodes."""
        changing = instantiate_with_records(self._definition, records, gpu.GraphCompleteOptions())
        return Executables(self._definition, self._copies, changing)

    def close(self) -> None:
        """Close the executables; the device has finished."""
        executables = [*self._known.values(), self._spare, self._changing]
        self._known.clear()
        self._spare = self._changing = None
        for executable in executables:
            if executable is not None:
                executable.close()
