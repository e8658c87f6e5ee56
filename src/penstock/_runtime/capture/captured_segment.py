"""CapturedSegment: a segment in a run; to the scheduler it is one operator."""

from __future__ import annotations

import statistics
import warnings
from typing import TYPE_CHECKING, Any

from penstock.core.segment import CaptureError, CaptureRefused

if TYPE_CHECKING:
    from penstock._runtime.capture.part import Part
    from penstock._runtime.capture.refusal import Refusal
    from penstock._runtime.scheduling.node import Node
    from penstock._runtime.streams.lifetimes import Lifetimes
    from penstock.core.segment import Segment

__all__ = ["CapturedSegment"]


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
    """

    def __init__(self, segment: Segment, node: Node, members: list[Node], is_strict: bool) -> None:
        self.segment = segment
        self.node = node
        self.members = members
        self.part: Part
        self._is_strict = is_strict
        segment.state, segment.reason = "warming up", ""
        segment.frames = segment.replayed = segment.recordings = 0
        segment.eager_ns = segment.replay_ns = None

    def prime(self) -> None:
        """Prepare for the first frame."""
        self.part.prime()
        self.node.compute = self.compute

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        """Let one frame pass; the compute of the segment's node."""
        part = self.part
        replayed = part.replayed
        try:
            part.run()
        finally:
            if part.replayed != replayed:
                lifetimes = part.node.lifetimes
                if lifetimes is not None and lifetimes.full is not None:
                    self._wait_for(lifetimes)
            else:
                self._end_frame()

    def _end_frame(self) -> None:
        """Take note of a frame that was not replayed."""
        self.segment.state = self.part.state
        for inner in (self.part.node, *self.members):
            lifetimes = inner.lifetimes
            if lifetimes is not None and lifetimes.full is not None:
                self._wait_for(lifetimes)
                return

    def _wait_for(self, lifetimes: Lifetimes) -> None:
        """Hold the segment back, because one of its operators is too far ahead of the device."""
        self.node.lifetimes = lifetimes
        self.node.has_extra_work = True

    def refused(self, refusal: Refusal) -> None:
        """Warn, or raise where the segment has to be recorded."""
        segment = self.segment
        segment.state, segment.reason = "eager", str(refusal)
        text = f"segment {segment.name!r} is not recorded and runs as without capture: {refusal}"
        if self._is_strict:
            raise CaptureError(text) from refusal
        warnings.warn(CaptureRefused(text), stacklevel=2)

    def count_replayed(self) -> None:
        """Count the messages that replays did not send, as if the operators had computed."""
        self.part.count_replayed()

    def finish(self) -> None:
        """Take stock, and release the recordings; the device has finished."""
        segment, part = self.segment, self.part
        segment.frames, segment.state = part.frames, part.state
        segment.replayed, segment.recordings = part.replayed, part.recordings
        if part.eager_times:
            segment.eager_ns = statistics.median(part.eager_times)
        if part.replay_times:
            segment.replay_ns = statistics.median(part.replay_times)
        part.close()
