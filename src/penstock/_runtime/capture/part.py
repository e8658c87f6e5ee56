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
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._runtime.capture.device_arrays import Unsupported
from penstock._runtime.capture.nodes import Collector
from penstock._runtime.capture.recording import Recording, record
from penstock._runtime.capture.refusal import Refusal
from penstock._runtime.capture.structure import Leaves, Signature, differing_values, flatten
from penstock._runtime.capture.verification import compare
from penstock._runtime.lifecycle.accounts import Tally
from penstock._runtime.messages.message import Message

if TYPE_CHECKING:
    from penstock._runtime.messages.queue import Queue
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.managed_stream import ManagedStream
    from penstock._runtime.streams.run_streams import RunStreams
    from penstock.core.protocols import Replays
    from penstock.core.segment import SegmentOptions

__all__ = ["Border", "Part"]

_RERECORDINGS = 8  # after so many changes of a value the part is not recorded again
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


class _Known:
    """What is known about the frames of one signature."""

    __slots__ = ("frames", "recording")

    def __init__(self) -> None:
        self.frames = 0
        self.recording: Recording | None = None


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
        on_refusal: Callable[[Refusal], None],
    ) -> None:
        self.node = node
        self.members = members
        self.inputs = inputs
        self.outputs = outputs
        self.inner = inner
        self.output_at = {(border.node, border.port): border for border in outputs}
        self.state = "warming up"
        self.reason = ""
        self.recordings = 0
        self.eager_times: deque[int] = deque(maxlen=32)
        self.replay_times: deque[int] = deque(maxlen=256)
        self._options = options
        self._verifies = verifies
        self._on_refusal = on_refusal
        self._keeps_state = any(member.operator.keeps_state for member in members)
        self._known: dict[Signature, _Known] = {}
        self._made: list[Recording] = []
        self._rerecordings = 0
        self._was_replayed = False
        self._frame: tuple[Recording, list[Any], Leaves, bool] | None = None
        self._emitted: list[Any] = []
        self._first_place: dict[str, int] = {}
        self._own: ManagedStream | None = None
        self.replays: Replays | None = None

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
        replay: Callable[..., None] = self._replay_frame
        observer = self.node.engine.observer
        if observer is not None:
            self.replays = observer.watch_replays(self)
            replay = self.replays.around(replay)
        self.node.compute = self.node.streams.around(replay)

    @property
    def replayed(self) -> int:
        """The number of frames that were replayed."""
        return sum(recording.replayed for recording in self._made)

    @property
    def is_emitting(self) -> bool:
        """Whether what the current replay makes is emitted, and not compared with an ordinary run."""
        return self._frame is not None and self._frame[3]

    # What a recording asks for.

    @property
    def own(self) -> ManagedStream:
        """The stream that recordings are replayed on."""
        if self._own is None:
            streams = self.node.streams
            self._own = streams.allocation.open_or_default()
            streams.work_on(self._own)
        return self._own

    @property
    def streams_of_run(self) -> RunStreams:
        """The streams of the run."""
        return self.node.streams.run

    def may_be_idle(self, node: Node) -> bool:
        """Return whether an operator need not launch anything: it only passes on what it received."""
        return False

    def knob_names(self) -> dict[str, set[str]]:
        """Return the knobs of each operator, whose values may change."""
        return {}

    # Each frame.

    def run(self) -> None:
        """Take the messages of a frame, and replay it or let the operators compute."""
        items = [port.take() for port in self.node.input.ports]
        if self.state == "eager":
            self._compute(items)
            return
        leaves: Leaves = []
        try:
            signature = tuple([flatten(_data_of(item), leaves) for item in items])
        except Unsupported as error:
            self._refuse(Refusal(f"{self._unsupported(items)} is {error}"))
            self._compute(items)
            return
        known = self._known.get(signature)
        if known is None:
            known = self._meet(signature)
            if known is None:
                self._compute(items)
                return
        recording = known.recording
        if recording is None:
            self._run_unrecorded(known, signature, items, leaves)
        elif not recording.attributes.are_unchanged():
            self._forget(recording)
            self._compute(items)
        elif recording.left_to_verify:
            self._verify(recording, items, leaves)
        else:
            self._replay(recording, items, leaves)

    def _meet(self, signature: Signature) -> _Known | None:
        """Begin to know a signature, unless too many are known."""
        if len(self._known) < self._options.shapes:
            known = self._known[signature] = _Known()
            return known
        others = [other for other in self._known if differing_values(signature, other)]
        if len(others) == len(self._known):
            self._refuse(
                Refusal(
                    f"values that it receives {self._differing(signature, others[0])} change from frame to frame, "
                    "and each would need a recording; send an array on the device, or use a knob: "
                    "context.knob(name, dtype)"
                )
            )
        return None

    def _run_unrecorded(self, known: _Known, signature: Signature, items: list[Any], leaves: Leaves) -> None:
        known.frames += 1
        if known.frames <= self._options.warmup:
            self._compute(items)
            return
        names = [border.name for border in self.inputs]
        assert isinstance(signature, tuple)
        try:
            recording = record(self, dict(zip(names, signature, strict=True)), leaves)
        except Refusal as refusal:
            # First of all the frame: if the operators fail at it as well, that is the error.
            self._compute(items)
            self._refuse(refusal)
            return
        if self.replays is not None:
            recording.watch(self.replays)
        known.recording = recording
        self._made.append(recording)
        self.recordings += 1
        if not self._keeps_state:
            recording.left_to_verify = max(self._options.verify, int(self._verifies)) * _UNCHANGING
        if recording.left_to_verify:
            self.state = "verifying"
            self._verify(recording, items, leaves)
        else:
            self.state = "captured"
            self._replay(recording, items, leaves)

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
        for node in self.members:
            if all(len(queue) >= queue.min_size for port in node.input.ports for queue in port.queues):
                node.compute(node.input, node.output, node.context)
                node.remaining -= 1
                if node.has_details:
                    node.clear_details()
        self.eager_times.append(time.perf_counter_ns() - began)

    # With capture.

    def _replay(self, recording: Recording, items: list[Any], leaves: Leaves, emits: bool = True) -> None:
        began = time.perf_counter_ns()
        if not self._was_replayed:
            self._was_replayed = True
            self._order_own()
        node = self.node
        self._frame = (recording, items, leaves, emits)
        node.compute(node.input, node.output, node.context)
        node.remaining -= 1
        if node.has_details:
            node.clear_details()
        if emits:
            recording.replayed += 1
            for member in self.members:
                member.remaining -= 1
            self.replay_times.append(time.perf_counter_ns() - began)

    def _replay_frame(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Replay a frame; this is the compute of the part's node."""
        assert self._frame is not None
        recording, items, leaves, emits = self._frame
        self._frame = None
        streams = self.node.streams
        for port, item in zip(self.node.input.ports, items, strict=True):
            port.item = item
            streams.received(port, item)
            if type(item) is Message and item.details is not None:
                op_input._open(port, item)
        emitted = recording.replay(leaves)
        if emits:
            for output, data in zip(recording.outputs, emitted, strict=True):
                op_output.emit(data, output.name)
        else:
            self._emitted = emitted

    def _verify(self, recording: Recording, items: list[Any], leaves: Leaves) -> None:
        """Replay a frame, let the operators compute it too, and compare; what they emit is what is sent."""
        self._replay(recording, items, leaves, emits=False)
        emitted, self._emitted = self._emitted, []
        self.own.stream.sync()
        looks = recording.contents(leaves)
        del leaves
        collected = self._compute_and_collect(items)
        difference = compare(recording.outputs, emitted, collected, self.own.handle)
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
            recording.left_to_verify -= _UNCHANGING if looks not in recording.seen_inputs else 1
            recording.left_to_verify = max(recording.left_to_verify, 0)
            recording.seen_inputs.add(looks)
            if not recording.left_to_verify:
                recording.seen_inputs.clear()
                self.state = "captured"

    def _compute_and_collect(self, items: list[Any]) -> dict[str, list[Any]]:
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
        try:
            self._compute(items)
        finally:
            for port, queues in before:
                port.queues = queues
        return collected

    # Changes.

    def _forget(self, recording: Recording) -> None:
        """Record again, because an attribute of an operator has changed."""
        operator, name = recording.attributes.changed()
        self._rerecordings += 1
        if self._rerecordings > _RERECORDINGS:
            self._refuse(
                Refusal(
                    f"{name!r} of operator {operator!r} keeps changing, and its value is part of the recording; "
                    f"use a knob for it: context.knob({name!r}, dtype)",
                    operator,
                )
            )
            return
        for known in self._known.values():
            known.recording = None
        self.state = "warming up"

    def _refuse(self, refusal: Refusal) -> None:
        self.state = "eager"
        self.reason = str(refusal)
        self._on_refusal(refusal)

    def count_messages(self) -> None:
        """Count the messages of replays that came through no queue; the run is over."""
        inside = set(self.members)
        for node, port in self.inner:
            for queue in node.output.ports[port].queues:
                if isinstance(queue, Tally) and queue.behind.consumer in inside:
                    queue.passed_on += self.replayed
        for recording in self._made:
            for (node, port), count in recording.unconnected.items():
                (queue,) = node.output.ports[port].queues
                count *= recording.replayed
                if isinstance(queue, Tally):
                    queue.passed_on += count
                    queue = queue.behind
                queue.dropped += count

    def close(self) -> None:
        """Release the recordings; the device has finished."""
        for recording in self._made:
            recording.close()
        self._made.clear()
        self._known.clear()

    # The order between replays and ordinary runs: both may use what the operators keep on the device.

    def _order_own(self) -> None:
        own = self.own
        for member in self.members:
            for stream in member.streams.order.streams():
                if stream is not own:
                    own.wait(stream.now())

    def _order_members(self) -> None:
        own = self.own
        for member in self.members:
            for stream in member.streams.order.streams():
                if stream is not own:
                    stream.wait(own.now())

    # Words.

    def _unsupported(self, items: list[Any]) -> str:
        for border, item in zip(self.inputs, items, strict=True):
            try:
                flatten(_data_of(item), [])
            except Unsupported:
                return f"what operator {border.node.name!r} receives at {border.port!r}"
        return "what it receives"

    def _differing(self, signature: Any, other: Any) -> str:
        for border, one, two in zip(self.inputs, signature, other, strict=True):
            if one != two:
                return f"at input {border.port!r} of operator {border.node.name!r}"
        return ""


def _data_of(item: Any) -> Any:
    return item.data if type(item) is Message else item
