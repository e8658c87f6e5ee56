"""Recording: one frame of a segment as a CUDA graph, and its replays.

A recording is made for messages of one signature (`record`). Its inputs are copied to memory of its own before each
replay, and its outputs are copied from there to new memory of their library, since the next replay overwrites them.
What was received, emitted and held while it was made lives as long as the recording: a graph keeps nothing alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.border_arrays import Input, Output, OutputArray, copied_arrays
from headrace._runtime.capture.details_flow import DetailsFlow
from headrace._runtime.capture.device_state import KeptArray
from headrace._runtime.capture.executables import Executables
from headrace._runtime.capture.few_buffers import are_same, owners_of
from headrace._runtime.capture.host_state import Attributes
from headrace._runtime.capture.marks import Marks
from headrace._runtime.capture.slots import Slot
from headrace._runtime.capture.stock import Stock
from headrace._runtime.capture.structure import Leaves, rebuild

if TYPE_CHECKING:
    from headrace._runtime.capture.slots import Slots
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.observer import Launches, Replays

__all__ = ["Recording"]


class Recording:
    """A recorded frame.

    Attributes
    ----------
    left_to_verify
        The number of replays that are still to be compared with ordinary runs.
    attributes
        The attributes of the operators when it was made.
    outputs
        What it emits.
    flow
        How metadata and timestamps pass through it.
    arrays
        The arrays that it may change in place: those that its operators keep, and what it reads where it is.
    replays
        The number of frames that it emitted.
    keeps_inputs
        Whether it reads what it receives where that is, and keeps it.
    copies_back
        Whether it copies back some of what it receives.
    is_chain
        Whether what it emits carries the metadata and the timestamp of the one message that it receives.
    """

    def __init__(
        self,
        stream: ManagedStream,
        inputs: list[Input],
        outputs: list[Output],
        executables: Executables,
        attributes: Attributes,
        flow: DetailsFlow,
        arrays: list[KeptArray],
        kept: list[Any],
        slots: Slots | None,
        marks: Marks | None,
    ) -> None:
        self.flow = flow
        self.arrays = arrays
        self.replays = 0
        # The owners of the memory that it reads where it is, unless that lives as long as the arrays.
        self._owners: list[Any] | None = None
        self.keeps_inputs = bool(inputs) and not any(input_.memory is not None for input_ in inputs)
        self.copies_back = any(input_.is_copied_back for input_ in inputs)
        self._stream = stream
        self._handle = stream.handle
        self.inputs = inputs
        self.outputs = outputs
        self._executables: Launches = executables
        self._marks = marks
        self.attributes = attributes
        self._kept = kept
        self.left_to_verify = 0
        self.seen_inputs: set[tuple[bytes, ...]] = set()
        self.slot = None if slots is None else Slot(slots, self)
        # What each output emits: new arrays, which may share memory, or those of the recording itself.
        self._shared_stocks = (
            {array: Stock(array.layout, stream.handle) for array in copied_arrays(outputs)}
            if slots is None and any(array.within for output in outputs for array in output.arrays)
            else {}
        )
        self._stocks = [
            (output, [(Stock(array.layout, stream.handle), array) for array in output.arrays])
            for output in (outputs if slots is None and not self._shared_stocks else [])
        ]
        self._lent = [
            (output, [array.layout.kind.aliasing(array.layout, array.array) for array in output.arrays])
            for output in (outputs if slots is not None else [])
        ]
        self.is_chain = len(inputs) == 1 == len(outputs) and flow.is_chain
        # One array in and one out, the usual case, without loops.
        self._single: tuple[Input, Stock, OutputArray] | None = None
        if len(inputs) == 1 == len(self._stocks) and inputs[0].size:
            ((output, stocks),) = self._stocks
            if output.is_array and stocks[0][1].size:
                self._single = (inputs[0], *stocks[0])

    def replay(self, leaves: Leaves) -> list[Any]:
        """Launch the graph on the arrays of a frame, and return what each output emits, in new memory."""
        if self._single is not None:
            input_, stock, array = self._single
            new = stock.arrays.pop() if stock.arrays else stock.take()
            target = array.address_of(new) - array.before
            if self.keeps_inputs:
                self._executables.launch((target,), self._handle)
            else:
                (leaf,) = leaves
                source = input_.address_of(leaf) - input_.before
                addresses = (source, target, source) if self.copies_back else (source, target)
                self._executables.launch(addresses, self._handle)
            return [new]
        return self._replay_any(leaves)

    def _replay_any(self, leaves: Leaves) -> list[Any]:
        addresses: list[int] = []
        if not self.keeps_inputs:
            for input_, leaf in zip(self.inputs, leaves, strict=True):
                if input_.copied:
                    addresses.append(input_.address_of(leaf) - input_.before)
        emitted: list[Any] = []
        if self.slot is not None:
            emitted = self._lend_outputs(self.slot)
        if self._shared_stocks:
            emitted = self._take_sharing(addresses)
        else:
            for output, stocks in self._stocks:
                made: list[Any] = []
                for stock, array in stocks:
                    made.append(stock.take())
                    if array.size:
                        addresses.append(array.address_of(made[-1]) - array.before)
                emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        if self.copies_back:
            addresses += [
                input_.address_of(leaf) - input_.before
                for input_, leaf in zip(self.inputs, leaves, strict=True)
                if input_.copied and input_.is_copied_back
            ]
        self._executables.launch(tuple(addresses), self._handle)
        return emitted

    def _take_sharing(self, addresses: list[int]) -> list[Any]:
        """Return what each output emits, where some arrays are on the memory of others; add the addresses."""
        new: dict[OutputArray, Any] = {}
        for array, stock in self._shared_stocks.items():
            new[array] = stock.take()
            if array.size:
                addresses.append(array.address_of(new[array]) - array.before)
        emitted: list[Any] = []
        for output in self.outputs:
            made = [
                new[array] if array.within is None else array.within.view(array, new[array.within])
                for array in output.arrays
            ]
            emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        return emitted

    def _lend_outputs(self, slot: Slot) -> list[Any]:
        """Return what each output emits: the memory of the recording itself."""
        owners = slot.lend(self._stream)
        emitted: list[Any] = []
        place = 0
        for output, aliases in self._lent:
            made: list[Any] = []
            for alias in aliases:
                made.append(alias(owners[place]))
                place += 1
            emitted.append(made[0] if output.is_array else rebuild(output.signature, iter(made)))
        return emitted

    def keep_owners(self, leaves: Leaves) -> None:
        """Note whose memory it reads where it is: an address may become that of other memory."""
        if not all(input_.layout.kind.keeps_memory for input_ in self.inputs):
            self._owners = owners_of(leaves)

    def reads(self, leaves: Leaves) -> bool:
        """Return whether the arrays of a frame, which are at the addresses that it reads, are in that memory."""
        return self._owners is None or are_same(self._owners, owners_of(leaves))

    def watch(self, replays: Replays) -> None:
        """Let an observer see every launch."""
        self._executables = replays.around_launches(self._executables, self._marks, self._stream)

    def close(self) -> None:
        """Release the graphs first, then the memory that they use; the device has finished."""
        self._executables.close()
        self._stocks.clear()
        self._shared_stocks.clear()
        self._lent.clear()
        self._single = self.slot = None  # a slot refers to its recording
        self.outputs.clear()
        self.arrays.clear()
        self._kept.clear()
        self._owners = None
        for input_ in self.inputs:
            input_.close(self._handle)
