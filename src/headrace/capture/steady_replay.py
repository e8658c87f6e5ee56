"""The compute of a segment in its steady state: a frame is one array like the one before, and so is its result.

This is `CapturedSegment.compute` with `Replay.replay` for the usual frame. What happens in each of them is written
out, and nothing else. Any other frame goes the general way: one with a timestamp, one that is compared, one
after a knob or a parameter was set.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope
from headrace.gpu.allocation import Allocation
from headrace.tensor.libraries import NEVER_ALLOCATED

if TYPE_CHECKING:
    from headrace.capture.cache import Entry
    from headrace.capture.replay import Replay
    from headrace.capture.state import DeviceState


def steady_replay(segment: Any, replay: Replay, state: DeviceState, entry: Entry) -> Callable[..., None]:
    """Return the compute of a segment for frames of an entry, which has one input and one output."""
    node, own, buffers, version = segment.node, replay.own, state.buffers, segment.version
    port, to = node.input.ports[0], node.output.ports[""]
    keeping = port.keeping
    matches, knobs, now = entry.matches, version.knobs, node.clock.timestamp
    streams, lifetimes = node.streams, node.streams.lifetimes
    is_always, has_slots = streams.stays_current, entry.slots is not None
    received, unsorted = lifetimes.held.received, lifetimes.held.unsorted
    fences, numbers, check, sort = lifetimes.fences, lifetimes.numbers, lifetimes.check, lifetimes.sort

    def compute_steadily(op_input: Any, op_output: Any, context: Any) -> None:
        if segment.last is not entry:
            segment.compute(op_input, op_output, context)
            return
        began = perf_counter_ns() if replay.replayed >= replay.timed_at else 0
        item = port.take()
        graph: Any = None
        if (
            version.number == segment.seen_version
            and type(item) is Envelope
            and item.extra is None
            and type(item.data) is keeping.kind
            and not (knobs or buffers)
            and matches(item.data)
        ):
            graph = entry.graph or entry.slots.take()
        if graph is None or not graph.is_single or (replay.period is not None and now() >= graph.compare_at):
            items = [item]
            item = None  # no variable may hold the array when its reference count is looked at
            segment.compute_frame(items, graph)
            if has_slots:
                segment.look_for_slot()
            return
        if not is_always and get_ident() != streams.current_on:
            streams.make_current(own.device_id)
        try:
            before = item.fences
            if before is not None and item.number > before.completed and before.stream is not own:
                own.wait(item.event)
            if item.sent is not None:
                item.sent.note_received(node)
            owner = keeping.owner_of(item.data)
            if type(owner) not in NEVER_ALLOCATED:
                owner = keeping.memory_of(item.data)
            (unsorted if type(owner) is Allocation else received).append(owner)
            message = to.stamp(graph.launch_one(item.data))
            if graph.lender is not None:
                message.record = graph.lender.allocation
            for queue in to.queues:
                if len(queue) < queue.capacity:
                    queue.append(message)
                else:
                    queue.offer(message)
        finally:
            item = owner = message = None
            numbers.append(fences.last)
            if len(numbers) >= lifetimes.check_at:
                check()
            elif unsorted:
                sort()
        replay.replayed += 1
        graph.launches += 1
        if began:
            replay.note_time(perf_counter_ns() - began)
        if has_slots and not (entry.slots.free and node.evaluated is None):
            segment.look_for_slot()

    return compute_steadily
