"""CapturedSegment: a segment in a run; to the scheduler it is one operator.

A segment is recorded as a whole, in one part. One that `capture_chains` found is divided where an operator cannot
be recorded: the operators before and behind it are recorded by themselves, and one frame passes all parts one after
the other. The queue between two parts is that between their operators. A part that is not recorded, such as the
single operator in between, runs as without capture.
"""

from __future__ import annotations

import statistics
import warnings
from typing import TYPE_CHECKING, Any

from headrace.core.segment import CaptureError, CaptureRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace._runtime.capture.part import Part
    from headrace._runtime.capture.refusal import Refusal
    from headrace._runtime.scheduling.node import Node
    from headrace._runtime.streams.lifetimes import Lifetimes
    from headrace.core.segment import Segment

__all__ = ["CapturedSegment"]

_SOON = 16  # frames within which a frame of the same kind comes again
_STATES = ("warming up", "verifying", "captured", "eager")


class CapturedSegment:
    """A segment in a run.

    Parameters
    ----------
    segment
        What compose declared.
    node
        The node that is scheduled.
    members
        The nodes of its operators.
    is_strict
        Whether a refusal is an error.
    make_part
        Makes a part of some of the nodes.

    Attributes
    ----------
    parts
        Its parts, in the order in which a frame passes them.
    """

    def __init__(
        self,
        segment: Segment,
        node: Node,
        members: list[Node],
        is_strict: bool,
        make_part: Callable[[list[Node], CapturedSegment], Part],
    ) -> None:
        self.segment = segment
        self.node = node
        self.members = members
        self._is_strict = is_strict
        self._make_part = make_part
        # What lets frames be recorded while nothing else computes; None if there is one worker. And whether nothing
        # else computes in this frame.
        self._alone = node.engine.alone if node.engine.scheduler.workers else None
        self._is_alone = False
        # The number of frames in which nothing else is to compute, until one of them is recorded.
        self._alone_left = 0
        self._compute: Callable[..., None] = self._compute_whole
        # The parts of before it was divided, and what has been refused but not divided yet.
        self._former: list[Part] = []
        self._refused: list[tuple[Part, list[list[Node]]]] = []
        self._reasons: list[str] = []
        segment.state, segment.reason = "warming up", ""
        segment.frames = segment.replayed = segment.recordings = 0
        segment.eager_ns = segment.replay_ns = None
        self.parts = [make_part(members, self)]

    @property
    def part_nodes(self) -> list[Node]:
        """The nodes of its parts, also of those of before it was divided."""
        return [part.node for part in (*self._former, *self.parts)]

    @property
    def frames(self) -> int:
        """The number of frames so far."""
        return sum(part.frames for part in self._former_of(self.members[0])) + self.parts[0].frames

    @property
    def replayed(self) -> int:
        """The number of frames that were replayed so far, as a whole or in parts."""
        return max(
            sum(part.replayed for part in self._former_of(part.members[0])) + part.replayed
            for part in self.parts
        )

    @property
    def state(self) -> str:
        """Its state: that of its parts which is furthest from the end."""
        return min((part.state for part in self.parts), key=_STATES.index)

    def prime(self) -> None:
        """Prepare for the first frame."""
        for part in self.parts:
            part.prime()
        self.node.compute = self._compute

    def _compute_whole(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass; the compute of the segment's node."""
        (part,) = self.parts
        is_replayed = False
        try:
            is_replayed = part.run()
        finally:
            if is_replayed:
                lifetimes = part.node.lifetimes
                if lifetimes is not None and lifetimes.full is not None:
                    self._wait_for(lifetimes)
            else:
                self._end_frame()

    def _compute_parts(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass the parts of a divided segment."""
        try:
            has_run = False
            for part in self.parts:
                if part.is_ready:
                    part.run()
                    has_run = True
            if not has_run:
                # Nothing can run here any more, as without capture; there it would not be asked again.
                self.members[0].request_stop()
        finally:
            self._end_frame()

    def _end_frame(self) -> None:
        """Take note of a frame that was not replayed, and divide the segment if a part was refused."""
        while self._refused:
            self._divide(*self._refused.pop())
        self.segment.state = self.state
        for inner in (*[part.node for part in self.parts], *self.members):
            lifetimes = inner.lifetimes
            if lifetimes is not None and lifetimes.full is not None:
                self._wait_for(lifetimes)
                return

    def _wait_for(self, lifetimes: Lifetimes) -> None:
        """Hold the segment back, because one of its operators is too far ahead of the device."""
        self.node.lifetimes = lifetimes
        self.node.has_extra_work = True

    # Recording, while nothing else computes.

    def may_record(self) -> bool:
        """Return whether a frame can be recorded now; if not, the next one can. It is recorded then."""
        if self._alone is None or self._is_alone or self._alone.is_given_up:
            self._alone_left = 0
            return True
        self.will_record()
        return False

    def will_record(self) -> None:
        """Let nothing else compute from the next frame on until a frame is recorded, which will be soon."""
        if self._alone is not None and not self._alone.is_given_up:
            self._alone_left = _SOON
            self._want_alone()

    def _want_alone(self) -> None:
        node = self.node
        node.wants_alone = True
        node.update_guard()
        node.compute = self._compute_alone

    def _compute_alone(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass that may be recorded."""
        node, alone = self.node, self._alone
        assert alone is not None
        node.wants_alone = False
        node.compute = self._compute
        self._is_alone = alone.node is node
        self._alone_left -= 1
        try:
            self._compute(op_input, op_output, context)
        finally:
            if self._is_alone:
                self._is_alone = False
                alone.end()
            if self._alone_left > 0 and self.state != "eager":
                self._want_alone()
            else:
                node.update_guard()

    # What cannot be recorded.

    def refused(self, part: Part, refusal: Refusal) -> None:
        """Warn, or raise where the segment has to be recorded."""
        segment = self.segment
        groups = _divided(part.members, refusal.operator)
        is_divided = segment.is_found and any(len(group) > 1 for group in groups)
        self._reasons.append(str(refusal))
        segment.reason = "; ".join(self._reasons)
        if is_divided:
            self._refused.append((part, groups))
        else:
            segment.state = self.state
        if not self._is_strict and len(self._reasons) > 1:
            return
        how = "is recorded in parts" if is_divided else "is not recorded and runs as without capture"
        text = f"segment {segment.name!r} {how}: {refusal}"
        if self._is_strict:
            raise CaptureError(text) from refusal
        warnings.warn(CaptureRefused(text), stacklevel=2)

    def _divide(self, part: Part, groups: list[list[Node]]) -> None:
        """Replace a part by others, which are recorded by themselves; one operator alone is not recorded."""
        made = [self._make_part(group, self) for group in groups]
        place = self.parts.index(part)
        self.parts[place : place + 1] = made
        self._former.append(part)
        for new in made:
            new.prime()
            if len(new.members) == 1:
                new.state = "eager"
        self._compute = self._compute_parts
        if not self.node.wants_alone:
            self.node.compute = self._compute

    def _former_of(self, member: Node) -> list[Part]:
        return [part for part in self._former if member in part.members]

    # At the end.

    def count_replayed(self) -> None:
        """Count the messages that replays did not send, as if the operators had computed."""
        for part in (*self._former, *self.parts):
            part.count_replayed()

    def finish(self) -> None:
        """Take stock, and release the recordings; the device has finished."""
        segment = self.segment
        every = [*self._former, *self.parts]
        segment.frames, segment.state, segment.replayed = self.frames, self.state, self.replayed
        segment.recordings = sum(part.recordings for part in every)
        timed = [part for part in self.parts if part.replay_times and part.eager_times]
        if timed:
            segment.replay_ns = sum(statistics.median(part.replay_times) for part in timed)
        if timed or self.parts[0].eager_times:
            segment.eager_ns = sum(statistics.median(part.eager_times) for part in timed or self.parts[:1])
        errors: list[BaseException] = []
        for part in every:
            try:
                part.close()
            except BaseException as error:  # of a device that failed: the others are closed all the same
                errors.append(error)
        if errors:
            raise errors[0]


def _divided(members: list[Node], refused: str) -> list[list[Node]]:
    """Return the operators in groups: those before and behind the refused one; without a name, two halves."""
    names = [member.name for member in members]
    if refused not in names:
        middle = len(members) // 2
        groups = [members[:middle], members[middle:]]
    else:
        place = names.index(refused)
        groups = [members[:place], [members[place]], members[place + 1 :]]
    return [group for group in groups if group]
