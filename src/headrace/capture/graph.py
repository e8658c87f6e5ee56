"""Graph: one frame of a segment as a CUDA graph, and its launches.

A graph begins with copies from where a frame is, and ends with copies to where its results go; both are other
addresses from frame to frame (`headrace.gpu.executables`). What was received, emitted and held while a graph was
recorded lives as long as the graph, which keeps nothing alive itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.capture.boundary import Input, Output, copied_arrays
from headrace.gpu.executables import Executables
from headrace.tensor.lent_arrays import OutputArrays
from headrace.tensor.structures import Leaves, Structure, rebuild

if TYPE_CHECKING:
    from headrace._runtime import Launches, ManagedStream, Replays
    from headrace.capture.direct_compute import DetailsFlow
    from headrace.tensor.lent_arrays import LentArray


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
    ) -> None:
        self.structures = structures
        self.inputs = inputs
        self.outputs = outputs
        self.names = [output.name for output in outputs]
        self.flow = flow
        self.launches = 0
        self.compare_at = float("-inf")
        self._stream = stream
        self._handle = stream.handle
        self._executables: Launches = executables
        self._kept = kept
        # How a launch finds the addresses of its arrays and makes what it emits, so that a frame looks nothing up.
        copied = [(number, input_) for number, input_ in enumerate(inputs) if input_.copied]
        self._entering = [(number, input_.address_of, input_.before) for number, input_ in copied]
        self._copied_back = [place for place, (_, input_) in enumerate(copied) if input_.is_copied_back]
        emitted = [array for output in outputs for array in output.arrays]
        sent = copied_arrays(outputs)
        self._new = [OutputArrays(array.layout, stream) for array in sent]
        self._leaving = [
            (place, array.address_of, array.before) for place, array in enumerate(sent) if array.size
        ]
        # Whether what is emitted are these arrays, one at each output.
        self._is_plain = all(output.is_array for output in outputs) and sent == emitted
        self._sent = sent

    @property
    def copied_back(self) -> set[int]:
        """The numbers of the arrays that are copied back after a frame."""
        return {number for number, input_ in enumerate(self.inputs) if input_.is_copied_back}

    def launch(self, leaves: Leaves, values: Leaves) -> list[Any]:
        """Launch an executable on the arrays of a frame, and return what each output emits."""
        addresses = [address_of(leaves[number]) - before for number, address_of, before in self._entering]
        back = [addresses[place] for place in self._copied_back] if self._copied_back else None
        made = [new.take() for new in self._new]
        for place, address_of, before in self._leaving:
            addresses.append(address_of(made[place]) - before)
        if back is not None:
            addresses += back
        self._executables.launch(addresses, self._handle)
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

    def retire(self) -> list[LentArray]:
        """Return the arrays that it sent and whose memory has to stay, since somebody uses them."""
        return [array for new in self._new for array in new.retire()]

    def close(self) -> None:
        """Release the executables first, then the memory that they use; the device has finished."""
        self._executables.close()
        for new in self._new:
            new.close()
        self._new.clear()
        self._sent.clear()
        self.outputs.clear()
        self._kept.clear()
        for input_ in self.inputs:
            input_.close(self._handle)
