"""Replay: a frame as a launch of a graph, in place of the computes of its operators.

To streams and messages a replay is one compute of the segment's node, on a stream of its own. It is ordered after
what it received, which stays alive as long as the device may read it; what it emits carries the metadata and the
timestamps that the operators would have sent. Replays and ordinary computes may use the same arrays of the
operators. So the first replay after ordinary computes is ordered after them, and the other way round (`begin`,
`end`).

Nobody can know all that a compute depends on. So now and then a frame is computed as well, and both results are
compared (`_compare`): the first one of every graph, and one of every graph in `check_every` seconds of the run's
clock. The result of the compute is what is sent if they differ.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from functools import partial
from math import isfinite
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope, ManagedStream, create_event, wait_for, write_knobs
from headrace.capture.direct_compute import DirectStreams, compute_directly, compute_one
from headrace.capture.refusal import Refusal
from headrace.capture.state import DeviceState
from headrace.tensor.device_memory import KeptArray, Saved, changed_numbers, compare_messages, compare_saved
from headrace.tensor.structures import Leaves, rebuild

if TYPE_CHECKING:
    from headrace._runtime import Group, Knobs
    from headrace.capture.graph import Graph
    from headrace.core.parameters import ParameterVersion

_log = logging.getLogger("headrace.capture")


class Replay:
    """Replays the frames of a segment.

    Attributes
    ----------
    replayed, times, compute_times
        The number of frames that were replayed; the time of recent replays and computes on the host, in ns.
    period, polled_knobs
        The time between comparisons, the knobs to look at every time.
    findings
        What the last comparison found, or None: how the replay differed from the compute, in words, or an empty
        text; and the numbers of the arrays that the compute changed in place and the graph does not copy back.
    """

    def __init__(
        self, group: Group, state: DeviceState, version: ParameterVersion, check_every: float | None
    ) -> None:
        self.replayed = 0
        self.times: deque[int] = deque(maxlen=256)
        self.compute_times: deque[int] = deque(maxlen=32)
        self.findings: tuple[str, set[int]] | None = None
        self._group = group
        self._node = group.node
        self._streams = group.node.streams
        self._ports = group.node.input.ports
        self._port = self._ports[0] if len(self._ports) == 1 else None
        self._state = state
        self._own: ManagedStream | None = None
        self._clock = group.node.engine.clock.timestamp
        # In whole nanoseconds, since a float would round a time of today; unless it is infinite.
        self.period: float | None = check_every
        if check_every is not None and isfinite(check_every):
            self.period = round(check_every * 1e9)
        self._compute_streams: DirectStreams | None = None
        # The knobs of the operators, and those that were set.
        self._knobs: dict[Any, Knobs] = {}
        self._set_knobs = version.knobs
        self.polled_knobs: list[Knobs] = []
        # Whether the last frame was replayed, and whether the operators have released the frames of their computes.
        self._is_replaying = False
        self._are_settled = False

    @property
    def own(self) -> ManagedStream:
        """The stream that graphs are launched on."""
        if self._own is None:
            streams = self._streams
            last = self._group.operators[-1]
            device_id = streams.run.device_of(last)
            stream = streams.run.make_stream(last)
            streams.run.own_streams.append(stream)
            self._own = ManagedStream(stream, device_id, partial(create_event, device_id))
            streams.work_on(streams.run.adopt(self._own))
        return self._own

    # Each frame.

    def replay(self, graph: Graph, items: list[Any], leaves: Leaves, values: Leaves) -> None:
        """Replay a frame, and emit its results.

        Parameters
        ----------
        graph
            The graph for the frame.
        items, leaves, values
            The messages of the frame, and the arrays and the values of the host in them. The lists are emptied, so
            that nothing holds an array when its reference count is looked at.
        """
        began = time.perf_counter_ns()
        is_compared = self.period is not None and self._clock() >= graph.compare_at
        node, own = self._node, self._own
        assert own is not None
        if get_ident() != self._streams.current_on:
            self._streams.make_current(own.device_id)
        try:
            has_details = self._receive(items)
            if self._set_knobs or self.polled_knobs:
                self._write_knobs(own)
            emitted = self._compare(graph, leaves, values) if is_compared else graph.launch(leaves, values)
            if has_details:
                self._emit_with_details(graph, items, emitted)
            else:
                for name in graph.names:
                    node.output.emit(emitted.pop(0), name)
        finally:
            items.clear()
            leaves.clear()
            if values:
                values.clear()
            self._streams.lifetimes.note_compute()  # type: ignore[union-attr]
        if node.has_details:
            node.clear_details()
        self.replayed += 1
        graph.launches += 1
        if not is_compared:
            self.times.append(time.perf_counter_ns() - began)
        if not self._are_settled:
            kept = [each.lifetimes for each in self._group.members if each.lifetimes is not None]
            self._are_settled = not [each for each in kept if not each.settle()]

    def _receive(self, items: list[Any]) -> bool:
        """Order the stream after the messages of a frame, and keep them alive; return whether they have details."""
        has_details = False
        for port, item in zip(self._ports, items, strict=True):
            self._node.input.keep(port, item)
            has_details |= type(item) is Envelope and item.details is not None
        return has_details

    def _write_knobs(self, own: ManagedStream) -> None:
        """Write what knobs were set to since the last frame; nothing if one of the values is wrong."""
        changes = [change for knobs in self.polled_knobs for change in knobs.changes()]
        while self._set_knobs:
            values = self._set_knobs.popleft()
            values.is_announced = False  # first: what is set from now on is announced again
            if values in self._knobs:
                changes += self._knobs[values].changes()
        if changes:
            write_knobs(changes, own)

    def _emit_with_details(self, graph: Graph, items: list[Any], emitted: list[Any]) -> None:
        """Emit results, each with the metadata and the timestamp that an ordinary compute would send."""
        node, output = self._node, self._node.output
        metadata = node.operator.metadata
        carried = graph.flow.carry(
            {
                (boundary.node, boundary.port): item.details
                for boundary, item in zip(self._group.inputs, items, strict=True)
                if type(item) is Envelope and item.details is not None
            }
        )
        node.has_extra_work = node.has_details = True
        for each, data in zip(graph.outputs, emitted, strict=True):
            details = carried.get((each.boundary.node, each.boundary.port))
            metadata.clear()
            output.clear()
            if details is not None:
                output.has_details = True
                output.acq_timestamp, output.calls = details.acq_timestamp, details.calls
                if details.metadata is not None:
                    metadata.update(details.metadata)
            output.emit(data, each.name)

    # Comparing.

    def _compare(self, graph: Graph, leaves: Leaves, values: Leaves) -> list[Any]:
        """Replay a frame, compute it too, and return the results of the replay if both are the same."""
        assert self.period is not None
        graph.compare_at = self._clock() + self.period
        state, handle = self._state, self.own.handle
        if self._compute_streams is None:
            run = self._node.streams.run
            self._compute_streams = DirectStreams(run, self._group.operators[0], is_captured=False)
        streams = self._compute_streams
        received = [KeptArray("what it received", leaf) for leaf in leaves]
        kept: list[Any] = []
        left = None
        try:
            before = Saved([*state.arrays(self._knobs.values()), *received], handle)
        except Exception as error:
            self.period = None
            _log.warning(
                "segment %r: its replays are not compared with computes, since there is too little memory for a "
                "copy of what its operators keep (%s)",
                self._group.name,
                error,
            )
            return graph.launch(leaves, values)
        try:
            replayed = graph.launch(leaves, values)
            copied_back = graph.copied_back
            left = Saved(
                [*state.arrays(self._knobs.values()), *[received[number] for number in copied_back]], handle
            )
            before.restore()
            state.release(handle)
            streams.order(handle, streams.origin)
            arrays, others = iter(leaves), iter(values)
            messages = [rebuild(each, arrays, others) for each in graph.structures]
            emitted: dict[Any, Any] | None = None
            began = time.perf_counter_ns()
            try:
                emitted = compute_directly(self._group, streams, messages, kept, compute_one)
            except Refusal as refusal:
                self.findings = (f"an ordinary compute of the same frame failed ({refusal})", set())
            finally:
                streams.join()
                streams.order(streams.origin, handle)
            if emitted is None:  # what the replay left is what the next frame goes on with
                before.restore()
                left.restore()
                state.take_back()
                return replayed
            self.compute_times.append(time.perf_counter_ns() - began)
            state.note_assigned()
            state.adopt(handle, kept)
            handle.stream.sync()
            computed = {boundary.name: data for boundary, data in emitted.items()}
            found = [
                compare_messages(name, data, computed[name], handle)
                for name, data in zip(graph.names, replayed, strict=True)
            ]
            difference = next(filter(None, found), "") or compare_saved(left, handle)
            changed = changed_numbers(before, leaves, handle) - copied_back
            if difference or changed:
                self.findings = difference, changed
            return replayed if not difference else [computed[name] for name in graph.names]
        finally:
            before.close()
            if left is not None:
                left.close()
            handle.stream.sync()  # what the compute used goes now

    # The order between replays and ordinary computes.

    def begin(self, has_recorded: bool = False) -> bool:
        """Order replays after the computes of the operators; return whether graphs of before are of no use.

        A recording may have made knobs, which are written on other streams.
        """
        if self._is_replaying and not has_recorded and not self._state.is_set_anew:
            return False
        self._is_replaying = True
        self._are_settled = False
        self._knobs = {
            node.operator._headrace.knobs: knobs
            for node in self._group.members
            if (knobs := node.streams.knobs) is not None
        }
        self.polled_knobs = [knobs for knobs in self._knobs.values() if knobs.are_polled]
        for values in self._knobs:
            values.announce()
        self.order_own()
        self._node.lifetimes = self._node.streams.lifetimes
        held = self._streams.lifetimes.held  # type: ignore[union-attr]
        return self._state.adopt(self.own.handle, held.unsorted)

    def end(self) -> None:
        """Order the computes of the operators after the last replay, if there has been one since the last call."""
        if not self._is_replaying:
            return
        self._is_replaying = False
        own = self.own
        self._state.release(own.handle)
        for node in self._group.members:
            for stream in node.streams.used:
                if stream is not own:
                    stream.wait(own.now())
        for knobs in self._knobs.values():
            knobs.end_replays(own)

    def order_own(self) -> None:
        """Order the stream of replays after the work of the operators."""
        own = self.own
        self._streams.make_current(own.device_id)
        for node in self._group.members:
            for stream in node.streams.used:
                if stream is not own:
                    own.wait(stream.now())
            if node.streams.knobs is not None:
                node.streams.knobs.begin_replays(own)

    def order_after(self, items: list[Any]) -> None:
        """Order it after the messages of a frame as well."""
        self.order_own()
        for item in items:
            if type(item) is Envelope:
                wait_for(item, self.own)

    def close(self) -> None:
        """Release the streams of comparisons; the device has finished."""
        if self._compute_streams is not None:
            self._compute_streams.close()
