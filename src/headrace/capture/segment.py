"""CapturedSegment: a segment in a run, and what becomes of each of its frames.

The first frames of a kind run as without capture (`Group.compute`). Then a frame is recorded (`recording`), and
from then on `compute` is not called any more: a frame is a copy in, a launch, and a copy out (`replay`). Which
graph is for which frame is known to the cache (`cache`).

A segment that cannot be recorded, or one of whose replays differs from a compute of the same frame, runs as without
capture for the rest of the run.
"""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from headrace._runtime import Envelope, MessageCounter, UnconnectedQueue
from headrace.capture.cache import Entry, Frame, GraphCache
from headrace.capture.declaration import CaptureError, CaptureRefused
from headrace.capture.direct_compute import MemberContext
from headrace.capture.lint import lint
from headrace.capture.recording import record
from headrace.capture.refusal import Refusal, refusal_of
from headrace.capture.replay import Replay
from headrace.capture.state import DeviceState
from headrace.core.parameters import ParameterVersion, holder_of
from headrace.gpu.capture import RecordedCopy
from headrace.tensor.device_arrays import Layout, Unsupported, layout_of
from headrace.tensor.device_memory import KeptArray, Saved, changed_numbers
from headrace.tensor.structures import HostValueUsed, Leaves, key_of_object

if TYPE_CHECKING:
    from headrace._runtime import Group, Replays
    from headrace.capture.declaration import Segment
    from headrace.capture.graph import Graph
    from headrace.tensor.lent_arrays import LentArray

_SOON = 16  # frames within which a frame of the same kind comes again
_CHANGING = 32  # frames in a row with new values, after which that is said

_CHANGES_GAPS = (
    "its operators change an array in place that they receive and that does not lie in memory without gaps; what "
    "is between its elements may be in use elsewhere, so copy it first"
)


class CapturedSegment:
    """A segment in a run.

    Attributes
    ----------
    segment
        What compose declared.
    members, node
        The nodes of its operators, and the one that is scheduled.
    """

    def __init__(self, segment: Segment, mode: str, group: Group) -> None:
        self.segment = segment
        self.node = group.node
        self.members = group.members
        for node in self.members:
            node.context = MemberContext(node.context)
        self._computed = 0  # frames that the operators computed
        options = segment.options
        self._group = group
        self._is_strict = options.strict or mode == "strict"
        self._state = DeviceState(self.members)
        # Raised by the parameters and knobs of the operators, and what it was when the parameters were looked at.
        self.version = ParameterVersion()
        period = 0.0 if mode == "verify" else options.check_every
        self._replay = Replay(group, self._state, self.version, period)
        self._cache = GraphCache(options, group.inputs, self._close)
        # `Replay.replay`, or what an observer puts around it.
        self._replay_frame: Callable[[Graph, list[Any], Leaves, Leaves], None] = self._replay.replay
        self._replays: Replays | None = None
        self._ports = group.node.input.ports
        self._is_refused = False
        self._is_changing = False
        # Recordings in a row in which a parameter was set, frames without state, the last kind that was computed.
        self._lost = self._unknown = 0
        self._settled_for: Hashable = None
        self._graphs: list[Graph] = []
        self._retired: list[LentArray] = []  # of closed graphs, while somebody may use them
        self._seen_version = -1
        self._knob_count = 0
        self._live = list(filter(None, (node.operator._headrace.live_state for node in self.members)))
        # Of a replayed frame that is a single array, since the next one may be like it.
        self._last: Entry | None = None
        # What lets frames be recorded while nothing else computes; None if there is one worker. Whether nothing
        # else computes in this frame, and in how many frames nothing else is to compute until one of them is
        # recorded.
        engine = group.node.engine
        self._alone = engine.alone if engine.scheduler.workers else None
        self._is_alone = False
        self._alone_left = 0

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        return self._computed + self._replay.replayed

    @property
    def replayed(self) -> int:
        """The number of frames that were replayed so far."""
        return self._replay.replayed

    def prime(self) -> None:
        """Prepare for the first frame."""
        for node in self.members:
            node.operator._headrace.knobs.version = self.version
            node.replayed = lambda: self._replay.replayed
        observer = self.node.engine.observer
        if observer is not None:
            self._replays = observer.watch_replays(self)
            self._replay_frame = self._replays.around(self._replay.replay)
        self.node.compute = self.compute

    # Each frame.

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass; the compute of the segment's node."""
        if self._last is None and self._group.has_left:
            self._go_on()
        else:
            self._compute_frame([port.take() for port in self._ports])

    def _compute_frame(self, items: list[Any]) -> None:
        for live in self._live:
            live.apply()
        last = self._last
        if (
            last is not None
            and self.version.number == self._seen_version
            and not (self._state.buffers and self._state.is_set_anew)
        ):
            # No variable may hold the array: whether the program still does is found by its reference count.
            leaves = [items[0].data if type(items[0]) is Envelope else items[0]]
            graph = last.graph
            if graph is not None and last.matches(leaves[0]):
                self._replay_frame(graph, items, leaves, [])
                if self._replay.findings is not None:
                    self._look_at(self._replay.findings, last, graph)
                return
            leaves.clear()
        if self._is_refused:
            self._compute_eagerly(items)
        else:
            self._compute_any(items)

    def _look_at(self, findings: tuple[str, set[int]], entry: Entry, graph: Graph) -> None:
        """Draw the conclusions from a comparison with a compute."""
        self._replay.findings = None
        difference, changed = findings
        if difference:
            why = (
                "compute depends on something that is not declared (headrace check finds the usual ones), or its "
                "results vary"
            )
            for (operator, name), key in self._parameters_now().items():
                if key != self._cache.parameters.get((operator, name)):
                    why = f"parameter {name!r} of operator {operator!r} was changed in place; assign a new object"
            self._refuse(Refusal(f"a replay differs from a compute of the same frame: {difference}; {why}"))
        elif any(graph.inputs[number].layout.has_gaps for number in changed):
            self._refuse(Refusal(_CHANGES_GAPS))
        else:
            # The operators change arrays in place that they left as they were until now.
            entry.copied_back |= changed
            self._close(entry)
            self._will_record()

    def _compute_any(self, items: list[Any]) -> None:
        """Let a frame pass whose graph has to be looked for, or recorded."""
        self._last = None
        if self.version.number != self._seen_version:
            self._look_at_parameters()
        try:
            frame = Frame(items)
            entry = self._cache.find(frame)
        except Unsupported as error:
            self._compute_eagerly(items)
            self._refuse(error)
            return
        if self._cache.unmet == _CHANGING:
            self._say_what_changes()
        if self._state.unknown:
            self._say_what_is_unknown()
            if entry.graph is not None:  # the program begins anew, as before the first frame
                frame.leaves.clear()
                self._compute_eagerly(items)
                return
        try:
            is_stale = entry.graph is not None and self._replay.begin()
        except Refusal as refusal:
            frame.leaves.clear()
            self._compute_eagerly(items)
            self._refuse(refusal)
            return
        if is_stale:  # the state is in another buffer
            self._cache.clear()
            entry = self._cache.find(frame)
        if self._cache.is_due(entry) and not self._state.unknown and self._may_record():
            self._record(entry, frame, items)
        elif entry.graph is not None:
            self._replay_any(entry, entry.graph, frame, items)
        else:
            self._warm_up(entry, frame, items)

    def _replay_any(self, entry: Entry, graph: Graph, frame: Frame, items: list[Any]) -> None:
        self._is_changing = False
        self.segment.state, self.segment.reason = "captured", ""
        (structure,) = frame.structures if len(frame.structures) == 1 else (None,)
        if type(structure) is Layout:
            self._last = entry
            entry.matches = structure.kind.matching(structure)
        self._replay_frame(graph, items, frame.leaves, frame.values)
        if self._replay.findings is not None:
            self._look_at(self._replay.findings, entry, graph)

    # As without capture.

    def _warm_up(self, entry: Entry, frame: Frame, items: list[Any]) -> None:
        """Let the operators compute a frame of a kind that may be recorded."""
        entry.frames += 1
        if entry.frames == 1:
            self._find_changed(entry, frame, items)
        else:
            frame.leaves.clear()
            self._compute_eagerly(items)
        self._settled_for = frame.kind
        if not self._is_refused and self._cache.is_due(entry):
            self._will_record()

    def _find_changed(self, entry: Entry, frame: Frame, items: list[Any]) -> None:
        """Let the operators compute a frame, and find out which arrays they change in place."""
        own = self._replay.own.handle
        leaves = frame.leaves
        with suppress(Exception):  # it will fail again when a frame is recorded, and be a refusal then
            RecordedCopy.prepare(own.device)  # takes long, and nothing else may compute during a recording
        self._replay.order_after(items)
        try:
            saved = Saved([KeptArray("", leaf) for leaf in leaves], own)
        except Exception as error:
            leaves.clear()
            self._compute_eagerly(items)
            self._refuse(refusal_of(error, ""))
            return
        try:
            self._compute_eagerly(items, is_cold=True)
            self._replay.order_own()
            entry.copied_back = changed_numbers(saved, leaves, own)
            has_gaps = any(layout_of(leaves[number]).has_gaps for number in entry.copied_back)
        finally:
            saved.close()
            leaves.clear()
        if has_gaps:
            self._refuse(Refusal(_CHANGES_GAPS))

    def _compute_eagerly(self, items: list[Any], is_cold: bool = False) -> None:
        self._computed += 1
        self._replay.end()
        began = time.perf_counter_ns()
        try:
            self._group.compute(items)
        finally:
            self._end_compute()
        if not is_cold:  # the first frame of its kind may compile, and is no time to compare with
            self._replay.compute_times.append(time.perf_counter_ns() - began)

    def end(self, op_input: Any, op_output: Any, context: Any) -> Iterator[None]:
        """Let the operators end, each after those that it receives from."""
        self._replay.end()
        for _ in self._group.end([port.take for port in self._ports]):
            self._end_compute()
            yield
        self._end_compute()

    def _end_compute(self) -> None:
        """Take note of what the operators did, and hold the segment back if one is too far ahead of the device."""
        self._state.note_assigned()
        knobs = sum(len(node.operator._headrace.knobs.types) for node in self.members)
        if knobs != self._knob_count:
            self._knob_count, self._seen_version = knobs, -1
        node = self.node
        node.lifetimes = node.streams.lifetimes
        for member in self.members:
            if member.lifetimes is not None and member.lifetimes.is_full:
                node.lifetimes = member.lifetimes
                node.has_extra_work = True
                return

    def _go_on(self) -> None:
        """Go on with messages that an earlier frame left inside, and do not capture any more."""
        waiting = self._group.waiting
        self._computed += 1
        self._replay.end()
        if not self._group.go_on([port.take for port in self._ports]):
            # Nothing can run here any more, as without capture; there it would not be asked again.
            self.members[0].request_stop()
        self._end_compute()
        if not self._is_refused:
            self._refuse(
                Refusal(
                    f"operator {waiting!r} had messages at one input and none at another; captured operators emit "
                    "one message at each output for each frame"
                )
            )

    def _parameters_now(self) -> dict[tuple[str, str], Any]:
        return {
            (operator.name, name): key_of_object(getattr(holder_of(operator), name, None))
            for operator in self._group.operators
            for name in operator.spec.params
            if name not in operator._headrace.knobs.types
        }

    def _look_at_parameters(self) -> bool:
        """Find out what the parameters are now; return whether one is something else."""
        before = self._cache.parameters
        self._seen_version = self.version.number
        self._cache.parameters = self._parameters_now()
        return self._cache.parameters != before

    # Recording, while nothing else computes.

    def _record(self, entry: Entry, frame: Frame, items: list[Any]) -> None:
        try:
            if self._replay.begin():  # the graphs of other frames use another buffer of the state
                self._cache.clear(but=entry)
            self._replay.order_after(items)
            entry, graph = self._record_until_known(entry, frame)
        except (Refusal, Unsupported) as error:
            # First of all the frame: if the operators fail at it as well, that is the error.
            frame.leaves.clear()
            self._compute_eagerly(items)
            self._refuse(error)
            return
        has_changed = self.version.number != self._seen_version and self._look_at_parameters()
        if has_changed or self._state.note_assigned():
            # A parameter has changed meanwhile, or a declared attribute was assigned for the first time.
            graph.close()
            frame.leaves.clear()
            self._compute_eagerly(items)
            self._lost += 1
            if self._lost == _SOON:
                self._refuse(
                    Refusal(
                        "a parameter of its operators is set whenever a frame is recorded; if compute sets it, it "
                        "is no parameter: keep it on the device as state (spec.state)"
                    )
                )
            return
        self._lost = 0
        self._graphs.append(graph)
        if not self.segment.recordings:
            self._advise()
        self.segment.recordings += 1
        entry.graph = graph
        self._replay.begin(has_recorded=True)
        self._settled_for = None  # the first replay is compared, and later ones of any kind
        self._replay_any(entry, graph, frame, items)

    def _record_until_known(self, entry: Entry, frame: Frame) -> tuple[Entry, Graph]:
        """Record a frame, and again as long as that shows that its operators use further values of the host."""
        used = self._cache.used_in(frame)
        every = set(range(len(frame.values)))
        is_settled = frame.kind == self._settled_for
        while True:
            uses: set[int] = set()
            values = frame.standing_for(used, uses)
            own, state = self._replay.own, self._state
            try:
                with suppress(HostValueUsed):
                    graph = record(self._group, own, state, frame, values, entry, self._replays, is_settled)
            except Refusal:
                if used == every:
                    raise
                uses = every  # a function may want the very type of a value, and not what stands for it
            if not uses:
                return entry, graph
            used |= uses  # from now on these values belong to the key
            before, entry = entry, self._cache.find(frame)
            entry.frames, entry.copied_back = before.frames, before.copied_back

    def _advise(self) -> None:
        """Warn once of what looks as if compute depended on something that is not declared."""
        found = [str(one) for node in self.members for one in lint(node.operator)]
        if found:
            logging.getLogger("headrace.capture").warning(
                "segment %r may not fulfil the contract of captured operators:\n%s",
                self.segment.name,
                "\n".join(f"  {one}" for one in found),
            )

    def _may_record(self) -> bool:
        """Return whether a frame can be recorded now; if not, the next one can."""
        if self._alone is None or self._is_alone or self._alone.is_given_up:
            self._alone_left = 0
            return True
        self._will_record()
        return False

    def _will_record(self) -> None:
        """Let nothing else compute from the next frame on until a frame is recorded, which will be soon."""
        if self._alone is not None:
            self._alone_left = _SOON
            self._want_alone()

    def _want_alone(self) -> None:
        self.node.wants_alone = True
        self.node.update_guard()
        self.node.compute = self._compute_alone

    def _compute_alone(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass that may be recorded."""
        node, alone = self.node, self._alone
        assert alone is not None
        node.wants_alone = False
        node.compute = self.compute
        self._is_alone = alone.node is node
        self._alone_left -= 1
        try:
            self.compute(op_input, op_output, context)
        finally:
            if self._is_alone:
                self._is_alone = False
                alone.end()
            if self._alone_left > 0 and not self._is_refused:
                self._want_alone()
            else:
                node.update_guard()

    # What is not captured.

    def _refuse(self, refusal: Exception) -> None:
        """Run as without capture from now on; warn, or raise where the segment has to be captured."""
        self._is_refused = True
        self._last = None
        self._say("is not captured and runs as without capture", str(refusal), refusal)

    def _say_what_changes(self) -> None:
        """Report that no frame is replayed because values keep changing."""
        if not self._is_changing and self._cache.changing:
            self._is_changing = True
            why = (
                f"{self._cache.changing} keeps changing, and each value would need a graph; use a knob, "
                "context.knob(name, dtype), or send an array on the device"
            )
            self._say("runs as without capture while values change", why, None)

    def _say_what_is_unknown(self) -> None:
        """Report that no frame is recorded because declared state refers to nothing."""
        self._unknown += 1
        if self._unknown == _SOON:
            why = (
                f"{self._state.unknown} (spec.state) refers to nothing after {_SOON} frames; assign an array on "
                "the device, in start or in compute, or leave the name out"
            )
            self._say("runs as without capture until its state is known", why, None)

    def _say(self, how: str, why: str, cause: Exception | None) -> None:
        segment = self.segment
        segment.state, segment.reason = "eager", why
        text = f"segment {segment.name!r} {how}: {why}"
        if self._is_strict:
            raise CaptureError(text) from cause
        warnings.warn(CaptureRefused(text), stacklevel=2)

    def _close(self, entry: Entry) -> None:
        """Release the graphs of an entry."""
        self._last = None
        if entry.graph is not None:
            self._replay.own.stream.sync()
            self._count(entry.graph)
            self._graphs.remove(entry.graph)
            self._retired += entry.graph.retire()
            entry.graph.close()
        entry.graph = None

    # At the end.

    def count_messages(self) -> None:
        """Count the messages that replays did not send, as if the operators had computed."""
        for graph in self._graphs:
            self._count(graph)

    def _count(self, graph: Graph) -> None:
        """Count the messages inside the segment, and those of unconnected outputs."""
        for node, steps in graph.flow.steps:
            for is_received, port in steps:
                if is_received:
                    continue
                queues = node.output.ports[port].queues
                for queue, behind in zip(queues, node.output_queues[port], strict=True):
                    is_unconnected = isinstance(behind, UnconnectedQueue)
                    if isinstance(queue, MessageCounter) and (
                        is_unconnected or behind.consumer in self.members
                    ):
                        queue.passed_on += graph.launches
                    if is_unconnected:
                        behind.dropped += graph.launches
        graph.launches = 0

    def finish(self) -> None:
        """Report, and release the graphs; the device has finished."""
        segment = self.segment
        segment.frames, segment.replayed = self.frames, self.replayed
        if self._replay.compute_times:
            segment.eager_ns = statistics.median(self._replay.compute_times)
        if self._replay.times:
            segment.replay_ns = statistics.median(self._replay.times)
        self._group.clear()
        self._last = None
        for node in self.members:
            node.operator._headrace.knobs.version = None
        with ExitStack() as stack:  # all are closed, even if the device has failed
            stack.callback(self._graphs.clear)
            stack.callback(self._retired.clear)
            stack.callback(self._replay.close)
            for graph in self._graphs:
                stack.callback(graph.close)
