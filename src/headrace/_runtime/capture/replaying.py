"""Replaying: a frame as a launch of its recording, in place of the computes of its operators.

To streams and messages a replay is one compute of the part's node, on a stream of its own. It is ordered after what
it received, which stays alive as long as the device may read it; what it emits carries the metadata and the
timestamps that the operators would have sent.

Replays and ordinary computes may use the same arrays of the operators. So the first replay after ordinary computes
is ordered after them, and the other way round (`begin`, `end`).
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from headrace import gpu
from headrace._runtime.messages.envelope import Details, Envelope
from headrace._runtime.messages.managed_stream import ManagedStream, create_event
from headrace._runtime.streams.order import wait_for
from headrace._runtime.streams.owners import add_owners

if TYPE_CHECKING:
    from headrace._runtime.capture.border import Border
    from headrace._runtime.capture.members import Members
    from headrace._runtime.capture.recording import Recording
    from headrace._runtime.capture.structure import Leaves
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.context_protocols import Outputs as OutputContext
    from headrace._runtime.streams.knobs import Knobs

__all__ = ["Replaying"]

# So many replays are timed at first, and then one in so many. It is odd, because every other takes a little more.
_TIMED: Final = 17


class Replaying:
    """Replays the frames of a part.

    Parameters
    ----------
    node
        The node of the part.
    members
        Its operators.
    inputs
        Where messages enter.

    Attributes
    ----------
    replayed
        The number of frames that were replayed and emitted.
    times
        How long some of the latest replays took on the host, in nanoseconds.
    knobs
        The knobs that recordings may use.
    """

    def __init__(self, node: Node, members: Members, inputs: list[Border]) -> None:
        self.replayed = 0
        self.times: deque[int] = deque(maxlen=256)
        self.knobs: list[Knobs] = []
        self._node = node
        self._members = members
        self._inputs = inputs
        self._own: ManagedStream | None = None
        self._unsent: list[Any] = []
        # Whether the last frame was replayed.
        self._is_replaying = False
        # Whether the operators have released the frames of their last computes.
        self._are_settled = False

    @property
    def own(self) -> ManagedStream:
        """The stream that recordings are replayed on."""
        if self._own is None:
            streams = self._node.streams
            last = self._members.nodes[-1].operator
            device_id = streams.run.device_of(last)
            stream = streams.run.make_stream(last)
            streams.run.own_streams.append(stream)
            self._own = ManagedStream(stream, device_id, partial(create_event, device_id))
            streams.allocation.own = self._own
            streams.work_on(self._own)
        return self._own

    def prepare(self) -> None:
        """Do what takes long before a frame is recorded: nothing else may compute while one is."""
        device_id = self._node.streams.run.device_of(self._members.nodes[-1].operator)
        with suppress(Exception):  # it will fail again when a frame is recorded, and be a refusal then
            gpu.RecordedCopy.prepare(gpu.Device(device_id))

    # Each frame.

    def replay(self, recording: Recording, items: list[Any], leaves: Leaves, emits: bool = True) -> None:
        """Replay a frame, and emit its results.

        Parameters
        ----------
        recording
            The recording for the frame.
        items, leaves
            The messages of the frame, and the arrays in them. Both lists are emptied, so that nothing holds an
            array when its reference count is looked at.
        emits
            Whether to emit; if not, `replay_unsent` returns the results.
        """
        replayed = self.replayed
        is_timed = emits and (replayed < _TIMED or replayed % _TIMED == 0)
        began = time.perf_counter_ns() if is_timed else 0
        if not self._is_replaying:
            self.begin()
        node = self._node
        streams = node.streams
        own = self._own
        if get_ident() != streams.allocation.current_on:
            streams.allocation.make_current(self.own.device_id)
        lifetimes = streams.lifetimes
        has_details = False
        details: Details | None = None
        try:
            for place, item in enumerate(items):
                # A copy of `NodeStreams.received` for a message with one fence and without metadata.
                if (
                    type(item) is Envelope
                    and item.more_fences is None
                    and (
                        (details := item.details) is None or (recording.is_chain and details.metadata is None)
                    )
                ):
                    fences = item.fences
                    if fences is not None and fences.stream is not own and item.number > fences.completed:
                        own.wait(item.event)  # type: ignore[union-attr]
                    if not recording.keeps_inputs:
                        add_owners(item.data, lifetimes.held.received)
                else:
                    streams.received(node.input.ports[place], item)
                    has_details |= type(item) is Envelope and item.details is not None
            for knobs in self.knobs:
                knobs.replay(self.own)
            emitted = recording.replay(leaves)
            if not emits:
                self._unsent = emitted
            elif has_details:
                self._emit_with_details(recording, items, emitted, node.output)
            elif details is not None:
                node.output.emit(emitted[0], recording.outputs[0].name, acq_timestamp=details.acq_timestamp)
            else:
                for place, data in enumerate(emitted):
                    node.output.emit(data, recording.outputs[place].name)
            del emitted
        finally:
            items.clear()
            leaves.clear()
            item = data = None
            if recording.keeps_inputs:
                for reader in lifetimes.readers:
                    if reader.add(None) >= reader.release_at:
                        lifetimes.release_completed(reader)
            else:
                lifetimes.end_compute()
        node.remaining -= 1
        if node.has_details:
            node.clear_details()
        if emits:
            self.replayed = replayed + 1
            recording.replays += 1
            if is_timed:
                self.times.append(time.perf_counter_ns() - began)
                if not self._are_settled:
                    # Not only once: frames are held until it is known whether they come in few buffers.
                    self._are_settled = self._members.settle() and replayed > 2 * _TIMED

    def replay_unsent(self, recording: Recording, items: list[Any], leaves: Leaves) -> list[Any]:
        """Replay a frame, and return its results."""
        self.replay(recording, items, leaves, emits=False)
        unsent, self._unsent = self._unsent, []
        return unsent

    def _emit_with_details(
        self, recording: Recording, items: list[Any], emitted: list[Any], op_output: OutputContext
    ) -> None:
        """Emit what was replayed, each with the metadata and the timestamp that an ordinary run would send."""
        node = self._node
        metadata = node.operator.metadata
        carried = recording.flow.carry(
            {
                (border.node, border.port): item.details
                for border, item in zip(self._inputs, items, strict=True)
                if type(item) is Envelope and item.details is not None
            }
        )
        node.has_extra_work = node.has_details = True
        for output, data in zip(recording.outputs, emitted, strict=True):
            details = carried.get((output.border.node, output.border.port))
            metadata.clear()
            op_output.clear()
            if details is not None:
                op_output.has_details = True
                op_output.acq_timestamp = details.acq_timestamp
                if details.metadata is not None:
                    metadata.update(details.metadata)
            op_output.emit(data, output.name)

    # The order between replays and ordinary computes.

    def begin(self) -> None:
        """Order replays after the computes of the operators."""
        self._is_replaying = True
        self._are_settled = False
        self.order_own()

    def end(self) -> None:
        """Order the computes of the operators after the last replay, if there has been one since the last call."""
        if not self._is_replaying:
            return
        self._is_replaying = False
        own = self.own
        for node in self._members.nodes:
            for stream in node.streams.order.streams():
                if stream is not own:
                    stream.wait(own.now())
        for knobs in self._members.knobs:
            knobs.end_replays(own)

    def has_new_recording(self) -> None:
        """Order the next replay anew: a recording may have made knobs, on other streams."""
        self.knobs = self._members.knobs
        self._is_replaying = False

    def order_own(self) -> None:
        """Order the stream of replays after the work of the operators."""
        own = self.own
        for node in self._members.nodes:
            for stream in node.streams.order.streams():
                if stream is not own:
                    own.wait(stream.now())
        for knobs in self._members.knobs:
            knobs.begin_replays(own)

    def order_after(self, items: list[Any]) -> None:
        """Order it after the messages of a frame as well; its device is current from now on."""
        self.order_own()
        self._node.streams.allocation.make_current(self.own.device_id)
        for item in items:
            wait_for(item, self.own)
