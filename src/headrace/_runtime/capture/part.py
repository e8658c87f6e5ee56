"""Part: operators of a segment that are recorded together, and what becomes of each frame.

The first frames of a signature run as without capture (`members`): kernels are compiled, and buffers made. Then a
frame is recorded (`record`). The first replays are compared with ordinary runs of the same frames, whose results
are what is emitted (`verification`). From then on `compute` is not called any more: a frame is a copy in, a launch,
and a copy out (`replaying`).

A part that cannot be recorded runs as without capture for the rest of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace._runtime.capture.attribute_use import names_in_compute
from headrace._runtime.capture.device_arrays import Layout, Unsupported, layout_of
from headrace._runtime.capture.device_state import DeviceState, KeptArray
from headrace._runtime.capture.few_buffers import FewBuffers, addresses_of
from headrace._runtime.capture.known_frames import Known, Quick
from headrace._runtime.capture.members import Members
from headrace._runtime.capture.record import record
from headrace._runtime.capture.recording import Recording
from headrace._runtime.capture.refusal import Refusal
from headrace._runtime.capture.replaying import Replaying
from headrace._runtime.capture.sharing import extents_of, shared_memory, spans_of, with_shared
from headrace._runtime.capture.slots import SlotAvailable, Slots
from headrace._runtime.capture.structure import Leaves, Signature, differing_values, flatten
from headrace._runtime.capture.verification import compare, compare_states, contents_of_states, digests_of
from headrace._runtime.lifecycle.accounts import MessageCounter
from headrace._runtime.messages.envelope import Envelope
from headrace._runtime.messages.queue import UnconnectedQueue

if TYPE_CHECKING:
    from headrace._runtime.capture.border import Border
    from headrace._runtime.capture.captured_segment import CapturedSegment
    from headrace._runtime.capture.device_arrays import Extent
    from headrace._runtime.messages.managed_stream import ManagedStream
    from headrace._runtime.observer import Replays
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.run_streams import RunStreams
    from headrace.core.segment import SegmentOptions

__all__ = ["Part"]

_RERECORDINGS = 8  # after so many changes of a value the part is not recorded again
_STRANGERS = 2  # frames of values that were not met before, times the number of frames that come first
_UNCHANGING = 8  # frames that look like the recorded one count this little


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
    owner
        The segment, which is told if the part will not be recorded any more, and knows when it can be.

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
        owner: CapturedSegment,
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
        self.recordings = 0
        self.replays: Replays | None = None
        self._takes: list[Callable[[], Any]] = []
        self._quick: Quick | None = None
        self._options = options
        self._verifies = verifies
        self._owner = owner
        self._keeps_state = any(member.operator.keeps_state for member in members)
        self._known: dict[Signature, Known] = {}
        self._made: list[Recording] = []
        self._rerecordings = 0
        self._strangers = 0
        self._members = Members(members, inputs, outputs, inner)
        self._replaying = Replaying(node, self._members, inputs)
        # `Replaying.replay`, or what an observer puts around it.
        self._replay: Callable[[Recording, list[Any], Leaves], None] = self._replaying.replay
        self._live = [live for member in members if (live := member.operator._live) is not None]

    # Before the run.

    def prime(self) -> None:
        """Prepare for the first frame: the outputs lead where those of the operators do."""
        for name, queues in self._members.prime(self.node.output_queues).items():
            self.node.output.ports[name].queues = queues
        # From another part of the segment the operator itself receives, and nobody is to see more than that.
        self._takes = [
            partial(deque.popleft, border.queue) if border.queue in port.queues else port.take
            for border, port in zip(self.inputs, self.node.input.ports, strict=True)
        ]
        observer = self.node.engine.observer
        if observer is not None:
            self.replays = observer.watch_replays(self)
            self._replay = self.replays.around(self._replaying.replay)

    # What others ask for.

    @property
    def replayed(self) -> int:
        """The number of frames that were replayed."""
        return self._replaying.replayed

    @property
    def eager_times(self) -> deque[int]:
        """How long the latest frames took on the host that ran as without capture, in nanoseconds."""
        return self._members.times

    @property
    def replay_times(self) -> deque[int]:
        """How long the latest replays took on the host, in nanoseconds."""
        return self._replaying.times

    @property
    def is_ready(self) -> bool:
        """Whether it has its messages, and room for what it sends to other parts."""
        return self._members.has_left or (
            all(queue for port in self.node.input.ports for queue in port.queues) and self._members.has_room
        )

    @property
    def own(self) -> ManagedStream:
        """The stream that recordings are made and replayed on."""
        return self._replaying.own

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
        return any(knobs.has(array) for knobs in self._members.knobs)

    # Each frame.

    def run(self) -> bool:
        """Take the messages of a frame, and replay it or let the operators compute; return whether it replayed."""
        self.frames += 1
        if self._members.has_left:
            self._go_on()
            return False
        items = [take() for take in self._takes]
        if self._live and self.state != "eager":
            for live in self._live:
                live.apply()
        quick = self._quick
        if quick is not None:
            # No variable may hold the array: whether the program still does is found by its reference count.
            leaves: Leaves = [_data_of(items[0])]
            chosen = quick.choose(leaves[0])
            if chosen is not None and not chosen.left_to_verify and chosen.attributes.are_unchanged():
                if quick.slots is not None:
                    quick.slots.free.popleft()
                self._replay(chosen, items, leaves)
                return True
        elif self.state == "eager":
            self._compute(items)
            return False
        return self._run_any(items)

    def _run_any(self, items: list[Any]) -> bool:
        """Do that with a frame whose recording has to be looked for."""
        leaves: Leaves = []
        try:
            signature = tuple([flatten(_data_of(item), leaves) for item in items])
        except Unsupported as error:
            border = self._unsupported(items)
            what = f"what operator {border.node.name!r} receives at {border.port!r} is {error}"
            self._compute(items)
            self._refuse(Refusal(what, border.node.name))
            return False
        known = self._known.get(signature)
        extents = extents_of(leaves) if known is None else known.extents
        if len(leaves) > 1 and (shared := shared_memory(leaves, extents)) is not None:
            signature = (*signature, shared)
            known = self._known.get(signature)
        if known is None:
            known = self._meet(signature, extents)
            if known is None:
                self._compute(items)
                return False
        recording = self._choose(known, leaves)
        if recording is None:
            self._run_unrecorded(known, signature, items, leaves)
        elif not recording.attributes.are_unchanged():
            self._forget(recording)
            self._compute(items)
        elif recording.left_to_verify:
            self._verify(known, recording, items, leaves)
        else:
            self._replay(recording, items, leaves)
            return True
        return False

    def _compute(self, items: list[Any]) -> None:
        """Let the operators compute as without capture."""
        self._replaying.end()
        self._members.compute(items)

    def _go_on(self) -> None:
        """Go on with messages that an earlier frame left inside, and do not record any more."""
        waiting = self._members.waiting
        self._replaying.end()
        if not self._members.go_on(self._takes):
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

    def _meet(self, signature: Signature, extents: list[Extent]) -> Known | None:
        """Begin to know a signature, unless too many are known."""
        if len(self._known) < self._options.shapes:
            slots = Slots(self._slot_available) if self._options.outputs == "ring" else None
            known = self._known[signature] = Known(slots, extents)
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
            found = known.at.get(key)
            if found is not None and not found.reads(leaves):
                del known.at[key]  # its memory was freed
                found = None
            if found is not None or (key in known.at and self._owner.may_record()):
                return found
        return recording

    def _run_unrecorded(self, known: Known, signature: Signature, items: list[Any], leaves: Leaves) -> None:
        known.frames += 1
        if known.buffers is not None:
            known.buffers.note(leaves)
        if known.frames <= self._options.warmup or not self._owner.may_record():
            if known.frames == 1:
                self._replaying.prepare()
            if known.frames == self._options.warmup:
                self._owner.will_record()
            self._run_eagerly(known, items, leaves)
            return
        names = [border.name for border in self.inputs]
        assert isinstance(signature, tuple)
        # A recording in place of the one that copies, for a buffer that comes again and again.
        is_copied = known.recording is None
        self._replaying.order_after(items)
        try:
            received = dict(zip(names, signature, strict=False))  # without what is said about shared memory
            recording = record(self, received, leaves, known.slots, is_copied, known.changed)
            known.check_emits(recording, self.outputs)
        except Refusal as refusal:
            # First of all the frame: if the operators fail at it as well, that is the error.
            self._compute(items)
            self._refuse(refusal)
            return
        if self.replays is not None:
            recording.watch(self.replays)
        self._replaying.has_new_recording()
        self._made.append(recording)
        self.recordings += 1
        if known.slots is not None:
            known.slots.made += 1
            if known.slots.made < self._options.slots:
                self._owner.will_record()
        elif is_copied:
            known.recording = recording
        else:
            recording.keep_owners(leaves)
            known.at[addresses_of(leaves)] = recording
        if self.compares:
            recording.left_to_verify = max(self._options.verify, int(self._verifies)) * _UNCHANGING
        if recording.left_to_verify:
            if self.state != "captured":  # as it is if another shape has been verified
                self.state = "verifying"
            self._verify(known, recording, items, leaves)
        else:
            self.state = "captured"
            self._replay(recording, items, leaves)

    def _run_eagerly(self, known: Known, items: list[Any], leaves: Leaves) -> None:
        """Let the operators compute, and note what a recording of such frames needs to know."""
        looks: tuple[bytes, ...] = ()
        if self.compares:
            leaves.clear()
        else:  # no frame is compared later
            self._replaying.order_after(items)
            looks = digests_of(leaves, known.extents, self.own.handle)
        self._members.silent.clear()
        self._replaying.end()
        known.note_emits(self._members.compute_and_collect(items), self._members.silent)
        if leaves:
            self._replaying.order_own()
            self._find_changed(known, leaves, looks)
            leaves.clear()

    def _verify(self, known: Known, recording: Recording, items: list[Any], leaves: Leaves) -> None:
        """Replay a frame, let the operators compute it too, and compare; what they emit is what is sent."""
        own = self.own.handle
        self._replaying.order_after(items)
        arrays = recording.arrays
        if recording.copies_back:
            name = self.inputs[0].node.name
            arrays = [*arrays, *[KeptArray(name, "what it received", leaf) for leaf in leaves]]
        try:
            saved = DeviceState(arrays, own)
        except Refusal as refusal:
            leaves.clear()
            self._compute(items)
            self._refuse(refusal)
            return
        looks = digests_of(leaves, known.extents, own)
        emitted = self._replaying.replay_unsent(recording, list(items), list(leaves))
        left = contents_of_states(saved, own)
        saved.restore()
        own.stream.sync()  # of the recording, too: an operator may work on streams that are not known
        self._replaying.end()
        held = [*self._members.knobs, *self._live]  # the operators see what the replay saw
        collected = self._members.compute_and_collect(items, held)
        difference = compare(recording.outputs, emitted, collected, own)
        if not difference:
            self._replaying.order_own()
            difference = compare_states(left, contents_of_states(saved, own))
        is_changed = (
            not difference and not recording.keeps_inputs and self._find_changed(known, leaves, looks)
        )
        saved.close()
        del emitted
        leaves.clear()
        if is_changed:
            if self.state != "eager":
                self._record_again(known)
            return
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
                self.state = "captured"

    def _find_changed(self, known: Known, leaves: Leaves, looks: tuple[bytes, ...]) -> bool:
        """Note the arrays that the operators have changed in place; return whether that was not known.

        They are copied back, since others may still use them. If that is not possible, the segment is refused.
        """
        after = digests_of(leaves, known.extents, self.own.handle)
        changed = [number for number, one in enumerate(looks) if one != after[number]]
        if known.changed.issuperset(changed):
            return False
        known.changed |= with_shared(changed, spans_of(leaves, known.extents))
        if any(layout_of(leaves[number]).has_gaps for number in known.changed):
            self._refuse(
                Refusal(
                    "its operators change an array in place that they receive and that does not lie in memory "
                    "without gaps; what is between its elements may be in use elsewhere, so copy it first"
                )
            )
        return True

    def _look_for_buffers(self, known: Known, recording: Recording, leaves: Leaves) -> None:
        """Find out in the first replays whether frames come in few buffers; then look at frames only quickly."""
        assert known.buffers is not None
        known.buffers.note(leaves)
        if not known.buffers.is_decided:
            return
        known.at = dict.fromkeys(known.buffers.found())
        if known.at:
            self._owner.will_record()
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
            if any(name in knobs.names for knobs in self._replaying.knobs):
                remedy = f"use the knob alone: compute reads self.{name} on the host, too"
            self._refuse(
                Refusal(
                    f"{name!r} of operator {operator!r} keeps changing, and its value is part of the recording; "
                    f"{remedy}",
                    operator,
                )
            )
            return
        for known in self._known.values():
            self._record_again(known)
            known.buffers = FewBuffers()
        self.state = "warming up"

    def _record_again(self, known: Known) -> None:
        """Drop the recordings of a signature; its next frame is recorded."""
        self._owner.will_record()
        self._quick = None
        known.recording = None
        known.at.clear()
        if known.slots is not None:
            known.slots.forget()
            known.slots = Slots(self._slot_available)

    def _refuse(self, refusal: Refusal) -> None:
        self._quick = None
        for known in self._known.values():
            if known.slots is not None:
                known.slots.forget()  # it need not wait for one any more
        self.state = "eager"
        self.reason = str(refusal)
        self._owner.refused(self, refusal)

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
                        if isinstance(queue, MessageCounter) and (
                            is_unconnected or behind.consumer in self.members
                        ):
                            queue.passed_on += recording.replays
                        if is_unconnected:
                            behind.dropped += recording.replays
            recording.replays = 0

    def close(self) -> None:
        """Release the recordings, and messages that were left inside; the device has finished."""
        self._members.clear()
        self._known.clear()
        while self._made:
            self._made.pop().close()

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
    return item.data if type(item) is Envelope else item
