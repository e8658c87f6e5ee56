"""Part: operators of a segment that are recorded together, and what becomes of each frame.

The first frames of a signature run as without capture: kernels are compiled, and buffers made. Then a frame is
recorded. The first replays are compared with ordinary runs of the same frames, whose results are what is emitted.
From then on `compute` is not called any more: a frame is a copy in, a launch, and a copy out.

A part that cannot be recorded runs as without capture for the rest of the run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._runtime.capture.attribute_use import names_in_compute
from penstock._runtime.capture.device_arrays import Layout, Unsupported
from penstock._runtime.capture.device_state import DeviceState
from penstock._runtime.capture.few_buffers import addresses_of, shared_memory
from penstock._runtime.capture.known_frames import Known, Quick
from penstock._runtime.capture.member_node import MemberNode
from penstock._runtime.capture.nodes import Collector
from penstock._runtime.capture.recording import Recording, record
from penstock._runtime.capture.refusal import Refusal
from penstock._runtime.capture.slots import SlotAvailable, Slots
from penstock._runtime.capture.structure import Leaves, Signature, differing_values, flatten
from penstock._runtime.capture.verification import compare, compare_states, contents_of_states
from penstock._runtime.lifecycle.accounts import Tally
from penstock._runtime.lifecycle.notes import note
from penstock._runtime.messages.message import Details, Message
from penstock._runtime.messages.queue import UnconnectedQueue
from penstock._runtime.streams.managed_stream import ManagedStream, create_event
from penstock._runtime.streams.order import wait_for
from penstock._runtime.streams.owners import add_owners

if TYPE_CHECKING:
    from penstock._runtime.messages.output import OutputContext
    from penstock._runtime.messages.queue import Queue
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.knobs import Knobs
    from penstock._runtime.streams.run_streams import RunStreams
    from penstock.core.protocols import Replays
    from penstock.core.segment import SegmentOptions

__all__ = ["Border", "Part"]

_RERECORDINGS = 8  # after so many changes of a value the part is not recorded again
_STRANGERS = 2  # frames of values that were not met before, times the number of frames that come first
_UNCHANGING = 8  # frames that look like the recorded one count this little


class Border(NamedTuple):
    """A port at which messages enter or leave a part."""

    node: Node
    port: str
    queue: Queue | None = None
    """The queue from which the operator itself receives; for inputs."""

    @property
    def name(self) -> str:
        """The port, as the part names it."""
        return f"{self.node.name}.{self.port}"


class Part:
    """Operators that are recorded together.

    Parameters
    ----------
    node
        Its node, which is not scheduled; its ports are those at which messages enter and leave.
    members
        The nodes of the operators, each after those that it receives from.
    inputs, outputs
        Where messages enter and leave.
    inner
        Where the messages of an output go inside the part.
    options
        How it is recorded.
    on_refusal
        Called when it will not be recorded any more.

    Attributes
    ----------
    state, reason
        As those of the segment.
    replays
        What is told about each replay, if the run is watched.
    """

    def __init__(
        self,
        node: Node,
        members: list[Node],
        inputs: list[Border],
        outputs: list[Border],
        inner: dict[tuple[Node, str], list[tuple[Node, str]]],
        options: SegmentOptions,
        verifies: bool,
        on_refusal: Callable[[Part, Refusal], None],
        slot_available: SlotAvailable | None = None,
    ) -> None:
        self._slot_available = slot_available
        self.node = node
        self.members = members
        self.inputs = inputs
        self.outputs = outputs
        self.inner = inner
        self.output_at = {(border.node, border.port): border for border in outputs}
        self.state = "warming up"
        self.reason = ""
        self.frames = 0
        self.replayed = 0
        self.recordings = 0
        self._takes: list[Callable[[], Any]] = []
        self._quick: Quick | None = None
        self.eager_times: deque[int] = deque(maxlen=32)
        self.replay_times: deque[int] = deque(maxlen=256)
        self._options = options
        self._verifies = verifies
        self._on_refusal = on_refusal
        self._keeps_state = any(member.operator.keeps_state for member in members)
        self._known: dict[Signature, Known] = {}
        self._made: list[Recording] = []
        self._rerecordings = 0
        self._strangers = 0
        self._was_replayed = False
        # The queues that its operators receive from, and those that each sends to inside the segment.
        self._queues = {
            node: [queue for port in node.input.ports for queue in port.queues] for node in members
        }
        self._behind = {
            node: [
                queue
                for queues in node.output_queues.values()
                for queue in queues
                if isinstance(queue.consumer, MemberNode)
            ]
            for node in members
        }
        self._to_other_parts = [
            queue for queues in self._behind.values() for queue in queues if queue.consumer not in members
        ]
        # Whether messages are left inside, because an operator did not receive at all of its inputs.
        self._has_left = False
        # The operators that emitted nothing to the next in the last frame that ran as without capture.
        self._silent: list[Node] = []
        self._emitted: list[Any] = []
        self._first_place: dict[str, int] = {}
        self._own: ManagedStream | None = None
        self.replays: Replays | None = None
        # `_replay`, or what an observer puts around it.
        self._replay_frame: Callable[[Recording, list[Any], Leaves], None] = self._replay
        self._live = [live for member in members if (live := member.operator._live) is not None]
        # The knobs that recordings may use.
        self._knobs: list[Knobs] = []

    # Before the run.

    def prime(self) -> None:
        """Prepare for the first frame: the outputs lead where those of the operators do."""
        for border in self.outputs:
            port = border.node.output.ports[border.port]
            outer = self.node.output_queues[border.name]
            # Those of the operator in the same order, behind whatever counts and times its messages.
            behind = border.node.output_queues[border.port]
            places = [place for place, queue in enumerate(behind) if queue in outer]
            self.node.output.ports[border.name].queues = tuple(port.queues[place] for place in places)
            self._first_place[border.name] = places[0]
        # From another part of the segment the operator itself receives, and nobody is to see more than that.
        self._takes = [
            partial(deque.popleft, border.queue) if border.queue in port.queues else port.take
            for border, port in zip(self.inputs, self.node.input.ports, strict=True)
        ]
        observer = self.node.engine.observer
        if observer is not None:
            self.replays = observer.watch_replays(self)
            self._replay_frame = self.replays.around(self._replay)

    # What a recording asks for.

    @property
    def own(self) -> ManagedStream:
        """The stream that recordings are replayed on."""
        if self._own is None:
            streams = self.node.streams
            last = self.members[-1].operator
            device_id = streams.run.device_of(last)
            stream = streams.run.make_stream(last)
            streams.run.own_streams.append(stream)
            self._own = ManagedStream(stream, device_id, partial(create_event, device_id))
            streams.allocation.own = self._own
            streams.work_on(self._own)
        return self._own

    @property
    def streams_of_run(self) -> RunStreams:
        """The streams of the run."""
        return self.node.streams.run

    @property
    def compares(self) -> bool:
        """Whether replays are compared with ordinary runs at all."""
        return not self._keeps_state and (self._options.verify > 0 or self._verifies)

    def knob_names(self) -> dict[str, set[str]]:
        """Return the knobs of each operator, whose values may change, unless its compute uses them on the host."""
        return {
            member.name: knobs.names - names_in_compute(member.operator)
            for member in self.members
            if (knobs := member.streams.knobs) is not None
        }

    def is_knob(self, array: Any) -> bool:
        """Return whether an array is a knob, which is set from outside and is not state of its operator."""
        return any(knobs.has(array) for knobs in self._knobs_of_members())

    # Each frame.

    def run(self) -> None:
        """Take the messages of a frame, and replay it or let the operators compute."""
        self.frames += 1
        if self._has_left:
            self._go_on()
            return
        leaves: Leaves
        items = [take() for take in self._takes]
        if self._live and self.state != "eager":
            for live in self._live:
                live.apply()
        quick = self._quick
        if quick is not None:
            # No variable may hold the array: whether the program still does is found by its reference count.
            leaves = [_data_of(items[0])]
            chosen = quick.choose(leaves[0])
            if chosen is not None and not chosen.left_to_verify and chosen.attributes.are_unchanged():
                if quick.slots is not None:
                    quick.slots.free.popleft()
                self._replay_frame(chosen, items, leaves)
                return
        elif self.state == "eager":
            self._compute(items)
            return
        leaves = []
        try:
            signature = tuple([flatten(_data_of(item), leaves) for item in items])
        except Unsupported as error:
            border = self._unsupported(items)
            what = f"what operator {border.node.name!r} receives at {border.port!r} is {error}"
            self._compute(items)
            self._refuse(Refusal(what, border.node.name))
            return
        if len(leaves) > 1 and (shared := shared_memory(leaves)) is not None:
            signature = (*signature, shared)
        known = self._known.get(signature)
        if known is None:
            known = self._meet(signature)
            if known is None:
                self._compute(items)
                return
        recording = self._choose(known, leaves)
        if recording is None:
            self._run_unrecorded(known, signature, items, leaves)
        elif not recording.attributes.are_unchanged():
            self._forget(recording)
            self._compute(items)
        elif recording.left_to_verify:
            self._verify(recording, items, leaves)
        else:
            self._replay_frame(recording, items, leaves)

    def _meet(self, signature: Signature) -> Known | None:
        """Begin to know a signature, unless too many are known."""
        if len(self._known) < self._options.shapes:
            slots = Slots(self._slot_available) if self._options.outputs == "ring" else None
            known = self._known[signature] = Known(slots)
            return known
        others = [other for other in self._known if differing_values(signature, other)]
        if others and not self.recordings:
            self._strangers += 1
        if self._strangers > _STRANGERS * max(self._options.warmup, self._options.shapes):
            border = self._differing(signature, others[0])
            self._refuse(
                Refusal(
                    f"values that it receives at input {border.port!r} of operator {border.node.name!r} change "
                    "from frame to frame, and each would need a recording; send an array on the device, or use a "
                    "knob: context.knob(name, dtype)",
                    border.node.name,
                )
            )
        return None

    def _choose(self, known: Known, leaves: Leaves) -> Recording | None:
        """Return the recording for a frame; None if one is to be made, or it is too soon for that."""
        slots = known.slots
        if slots is not None:
            if slots.made < self._options.slots:
                return None
            if self._quick is None:
                self._be_quick(known, None)
            return slots.free.popleft().recording
        recording = known.recording
        if known.buffers is not None and recording is not None and not recording.left_to_verify:
            self._look_for_buffers(known, recording, leaves)
        if known.at and recording is not None and not recording.left_to_verify:
            key = addresses_of(leaves)
            if key in known.at:
                return known.at[key]
        return recording

    def _run_unrecorded(self, known: Known, signature: Signature, items: list[Any], leaves: Leaves) -> None:
        known.frames += 1
        if known.buffers is not None:
            known.buffers.note(leaves)
        if known.frames <= self._options.warmup:
            leaves.clear()
            self._silent.clear()
            known.note_emits(self._compute_and_collect(items, is_compared=False), self._silent)
            return
        names = [border.name for border in self.inputs]
        assert isinstance(signature, tuple)
        # A recording in place of the one that copies, for a buffer that comes again and again.
        is_copied = known.recording is None
        self._order_after(items)
        try:
            received = dict(zip(names, signature, strict=False))  # without what is said about shared memory
            recording = record(self, received, leaves, known.slots, is_copied)
            self._check_emits(known, recording)
        except Refusal as refusal:
            # First of all the frame: if the operators fail at it as well, that is the error.
            self._compute(items)
            self._refuse(refusal)
            return
        if self.replays is not None:
            recording.watch(self.replays)
        self._knobs = self._knobs_of_members()
        self._was_replayed = False  # it may have made knobs, on other streams
        self._made.append(recording)
        self.recordings += 1
        if known.slots is not None:
            known.slots.made += 1
        elif is_copied:
            known.recording = recording
        else:
            known.at[addresses_of(leaves)] = recording
        if self.compares:
            recording.left_to_verify = max(self._options.verify, int(self._verifies)) * _UNCHANGING
        if recording.left_to_verify:
            if self.state != "captured":  # as it is if another shape has been verified
                self.state = "verifying"
            self._verify(recording, items, leaves)
        else:
            self.state = "captured"
            self._replay_frame(recording, items, leaves)

    # Without capture.

    def _compute(self, items: list[Any]) -> None:
        """Let every operator compute that has received its messages, each after those before it."""
        began = time.perf_counter_ns()
        if self._was_replayed:
            self._was_replayed = False
            self._order_members()
        for border, item in zip(self.inputs, items, strict=True):
            assert border.queue is not None
            border.queue.append(item)
        del items
        self._compute_members()
        self.eager_times.append(time.perf_counter_ns() - began)

    def _compute_members(self) -> int:
        """Let every operator compute that has its messages and room for its own; return how many did."""
        computed: list[Node] = []
        for node in self.members:
            if (
                node.stop_requested
                or any(len(queue) < queue.min_size for queue in self._queues[node])
                or any(len(queue) >= queue.limit for queue in self._behind[node])
            ):
                continue
            computed.append(node)
            try:
                node.compute(node.input, node.output, node.context)
            except BaseException as error:
                note(error, "compute", node.operator)
                raise
            node.remaining -= 1
            if node.has_details:
                node.clear_details()
        self._has_left = any(map(any, self._queues.values()))
        if len(computed) < len(self.members):
            self._silent = [
                node
                for node in computed
                for targets in [self.inner.get((node, port), []) for port in node.output_queues]
                if any(target not in computed for target, _ in targets)
            ]
        return len(computed)

    def _go_on(self) -> None:
        """Go on with messages that were left inside, and take only what there is room for."""
        if self._was_replayed:
            self._was_replayed = False
            self._order_members()
        waiting = self._half_supplied()
        has_taken = False
        for border, take in zip(self.inputs, self._takes, strict=True):
            if not border.queue:
                try:
                    item = take()
                except IndexError:
                    continue
                assert border.queue is not None
                border.queue.append(item)
                has_taken = True
                del item
        if not self._compute_members() and not has_taken:
            # Nothing can run here any more, as without capture; there it would not be asked again.
            self.members[0].request_stop()
        if self.state != "eager":
            self._refuse(
                Refusal(
                    f"operator {waiting!r} had messages at one input and none at another; operators that are "
                    "recorded together emit one message for each frame",
                    waiting,
                )
            )

    def _half_supplied(self) -> str:
        """Return the operator at which messages were left."""
        return next((node.name for node in self.members if any(self._queues[node])), "")

    @property
    def is_ready(self) -> bool:
        """Whether it has its messages, and room for what it sends to other parts; the engine sees to the rest."""
        return self._has_left or (
            all(queue for port in self.node.input.ports for queue in port.queues)
            and all(len(queue) < queue.limit for queue in self._to_other_parts)
        )

    # With capture.

    def _replay(self, recording: Recording, items: list[Any], leaves: Leaves, emits: bool = True) -> None:
        """Replay a frame as a compute of the part's node: ordered after what it received, which is kept as long."""
        began = time.perf_counter_ns()
        if not self._was_replayed:
            self._was_replayed = True
            self.order_own()
        node = self.node
        streams = node.streams
        own = self._own
        if get_ident() != streams.allocation.current_on:
            streams.allocation.make_current(self.own.device_id)
        lifetimes = streams.lifetimes
        has_details = False
        details: Details | None = None
        try:
            for port, item in zip(node.input.ports, items, strict=True):
                # A copy of `NodeStreams.received` for a message with one fence and without metadata.
                if (
                    type(item) is Message
                    and item.more_fences is None
                    and (
                        (details := item.details) is None or (recording.is_chain and details.metadata is None)
                    )
                ):
                    fences = item.fences
                    if fences is not None and fences.stream is not own and item.number > fences.completed:
                        own.wait(item.event)  # type: ignore[union-attr]
                    if not recording.keeps_inputs:
                        add_owners(item.data, lifetimes.keeper.received)
                else:
                    streams.received(port, item)
                    has_details |= type(item) is Message and item.details is not None
            for knobs in self._knobs:
                knobs.replay(self.own)
            emitted = recording.replay(leaves)
            if not emits:
                self._emitted = emitted
            elif has_details:
                self._emit_with_details(recording, items, emitted, node.output)
            elif details is not None:
                node.output.emit(emitted[0], recording.outputs[0].name, acq_timestamp=details.acq_timestamp)
            else:
                emit = node.output.emit
                for output, data in zip(recording.outputs, emitted, strict=True):
                    emit(data, output.name)
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
            self.replayed += 1
            recording.replays += 1
            self.replay_times.append(time.perf_counter_ns() - began)

    def _emit_with_details(
        self, recording: Recording, items: list[Any], emitted: list[Any], op_output: OutputContext
    ) -> None:
        """Emit what was replayed, each with the metadata and the timestamp that an ordinary run would send."""
        node = self.node
        metadata = node.operator.metadata
        carried = recording.flow.carry(
            {
                (border.node, border.port): item.details
                for border, item in zip(self.inputs, items, strict=True)
                if type(item) is Message and item.details is not None
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

    def _verify(self, recording: Recording, items: list[Any], leaves: Leaves) -> None:
        """Replay a frame, let the operators compute it too, and compare; what they emit is what is sent."""
        own = self.own.handle
        self._order_after(items)
        try:
            saved = DeviceState(recording.arrays, own)
        except Refusal as refusal:
            leaves.clear()
            self._compute(items)
            self._refuse(refusal)
            return
        looks = recording.contents(leaves)
        self._replay(recording, list(items), list(leaves), emits=False)
        emitted, self._emitted = self._emitted, []
        left = contents_of_states(saved, own)
        saved.restore()
        own.stream.sync()  # of the recording, too: an operator may work on streams that are not known
        leaves.clear()
        collected = self._compute_and_collect(items)
        difference = compare(recording.outputs, emitted, collected, own)
        if not difference:
            self.order_own()
            difference = compare_states(left, contents_of_states(saved, own))
        saved.close()
        del emitted
        if difference and self._forget_buffers(recording):
            return
        if difference:
            self._refuse(
                Refusal(
                    f"a replay of the recording differs from an ordinary run of the same frame: {difference}; a "
                    "value or an array that changes from frame to frame on the host was recorded, or the operators "
                    "keep state on the device (then set keeps_state = True on the operator)"
                )
            )
        elif not self._verifies:
            # A frame like the recorded one says little about what depends on its contents.
            is_new = looks not in recording.seen_inputs or not recording.inputs
            recording.left_to_verify -= _UNCHANGING if is_new else 1
            recording.left_to_verify = max(recording.left_to_verify, 0)
            recording.seen_inputs.add(looks)
            if not recording.left_to_verify:
                recording.seen_inputs.clear()
                self._is_verified(recording)

    def _check_emits(self, known: Known, recording: Recording) -> None:
        """Raise Refusal if the frames before emitted more or less than the recorded one, which all replays do."""
        if known.silent:
            recording.close()
            name = known.silent[0].name
            raise Refusal(
                f"operator {name!r} emitted nothing to the next in some frames; operators that are recorded "
                "together emit one message for each frame: leave it out of the segment",
                name,
            )
        names = {output.name for output in recording.outputs}
        for border in self.outputs:
            count = int(border.name in names)
            others = known.emits.get(border.name, {count})
            if others != {count}:
                recording.close()
                counts = " and ".join(map(str, sorted(others | {count})))
                raise Refusal(
                    f"operator {border.node.name!r} emitted {counts} messages at {border.port!r} in different "
                    "frames; a recorded operator emits the same number in each: leave it out of the segment",
                    border.node.name,
                )

    def _compute_and_collect(self, items: list[Any], is_compared: bool = True) -> dict[str, list[Any]]:
        """Let the operators compute, and return what they emitted at each output."""
        collected: dict[str, list[Any]] = {}
        before: list[tuple[Any, tuple[Queue, ...]]] = []
        for border in self.outputs:
            port = border.node.output.ports[border.port]
            before.append((port, port.queues))
            place = self._first_place[border.name]
            collector = Collector(port.queues[place])
            collected[border.name] = collector.seen
            port.queues = (*port.queues[:place], collector, *port.queues[place + 1 :])
        held: list[Any] = [*self._knobs_of_members(), *self._live] if is_compared else []
        for values in held:  # the operators see what the replay saw
            values.is_held = True
        try:
            self._compute(items)
        finally:
            for values in held:
                values.is_held = False
            for port, queues in before:
                port.queues = queues
        return collected

    def _is_verified(self, recording: Recording) -> None:
        """Replay from now on."""
        self.state = "captured"

    def _look_for_buffers(self, known: Known, recording: Recording, leaves: Leaves) -> None:
        """Find out in the first replays whether frames come in few buffers; then look at frames only quickly."""
        assert known.buffers is not None
        known.buffers.note(leaves)
        if not known.buffers.is_decided:
            return
        known.at = dict.fromkeys(known.buffers.found())
        known.buffers = None
        self._be_quick(known, recording)

    def _be_quick(self, known: Known, recording: Recording | None) -> None:
        """Recognize frames without a look at their signature from now on, if they are single arrays."""
        for signature, other in self._known.items():
            (layout,) = signature if isinstance(signature, tuple) and len(signature) == 1 else (None,)
            if other is known and type(layout) is Layout and not self._verifies:
                kind = layout.kind
                self._quick = Quick(
                    kind.matching(layout),
                    recording,
                    kind.address,
                    known.at,
                    None if recording else known.slots,
                )

    def _forget_buffers(self, recording: Recording) -> bool:
        """Drop a recording that reads a buffer where it is; return whether it was one.

        An operator that changes what it received changes the buffer twice when a replay is compared.
        """
        for known in self._known.values():
            if recording in known.at.values():
                known.at.clear()
                self.state = "captured"
                return True
        return False

    # Changes.

    def _forget(self, recording: Recording) -> None:
        """Record again, because an attribute of an operator has changed."""
        operator, name = recording.attributes.changed()
        self._rerecordings += 1
        if self._rerecordings > _RERECORDINGS:
            remedy = f"use a knob for it: context.knob({name.rpartition('.')[2]!r}, dtype)"
            if any(name in knobs.names for knobs in self._knobs):
                remedy = f"use the knob alone: compute reads self.{name} on the host, too"
            self._refuse(
                Refusal(
                    f"{name!r} of operator {operator!r} keeps changing, and its value is part of the recording; "
                    f"{remedy}",
                    operator,
                )
            )
            return
        self._quick = None
        for known in self._known.values():
            known.recording = None
            known.at.clear()
            known.buffers = None
            if known.slots is not None:
                known.slots.forget()
                known.slots = Slots(self._slot_available)
        self.state = "warming up"

    def _refuse(self, refusal: Refusal) -> None:
        self._quick = None
        for known in self._known.values():
            if known.slots is not None:
                known.slots.forget()  # it need not wait for one any more
        self.state = "eager"
        self.reason = str(refusal)
        self._on_refusal(self, refusal)

    def count_replayed(self) -> None:
        """Count the messages of replays that were not sent: those inside, and those of unconnected outputs."""
        for recording in self._made:
            for node, steps in recording.flow.steps:
                for is_received, port in steps:
                    if is_received:
                        continue
                    queues = node.output.ports[port].queues
                    for queue, behind in zip(queues, node.output_queues[port], strict=True):
                        is_unconnected = isinstance(behind, UnconnectedQueue)
                        if isinstance(queue, Tally) and (is_unconnected or behind.consumer in self.members):
                            queue.passed_on += recording.replays
                        if is_unconnected:
                            behind.dropped += recording.replays
            recording.replays = 0

    def close(self) -> None:
        """Release the recordings, and messages that were left inside; the device has finished."""
        for queues in self._queues.values():
            for queue in queues:
                queue.clear()
        self._known.clear()
        while self._made:
            self._made.pop().close()

    # The order between replays and ordinary runs: both may use what the operators keep on the device.

    def order_own(self) -> None:
        """Order the stream of replays after the work of the operators."""
        own = self.own
        for member in self.members:
            for stream in member.streams.order.streams():
                if stream is not own:
                    own.wait(stream.now())
        for knobs in self._knobs_of_members():
            knobs.begin_replays(own)

    def _order_after(self, items: list[Any]) -> None:
        """Order it after the messages of a frame as well; its device is current from now on."""
        self.order_own()
        self.node.streams.allocation.make_current(self.own.device_id)
        for item in items:
            wait_for(item, self.own)

    def _order_members(self) -> None:
        own = self.own
        for member in self.members:
            for stream in member.streams.order.streams():
                if stream is not own:
                    stream.wait(own.now())
        for knobs in self._knobs_of_members():
            knobs.end_replays(own)

    def _knobs_of_members(self) -> list[Knobs]:
        return [knobs for member in self.members if (knobs := member.streams.knobs) is not None]

    # Words.

    def _unsupported(self, items: list[Any]) -> Border:
        """Return the input at which something is received that cannot enter."""
        for border, item in zip(self.inputs, items, strict=True):
            try:
                flatten(_data_of(item), [])
            except Unsupported:
                return border
        return self.inputs[0]

    def _differing(self, signature: Any, other: Any) -> Border:
        """Return the input at which two signatures differ."""
        pairs = zip(self.inputs, signature, other, strict=False)
        return next(border for border, one, two in pairs if one != two)


def _data_of(item: Any) -> Any:
    return item.data if type(item) is Message else item
