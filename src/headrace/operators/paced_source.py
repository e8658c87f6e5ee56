"""PacedSource: the base of operators that emit frames from a thread, each at its time.

A generator makes the frames on a thread of its own (:class:`headrace.video.ReadAhead`). A condition lets the
operator run when the next frame is there and its time has come; nothing sleeps in `compute`. Times are those of the
run's clock. The first tick comes at once, and every frame keeps its distance from the first one, so a late frame
does not delay those after it.

In real time, a frame that is not ready yet is an event that the run waits for. Virtual time would go on without it:
there, `compute` waits for the next frame before it returns, so that each frame is emitted at exactly its time.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any, Generic, TypeVar

from headrace.core.composition import Composition
from headrace.core.condition import Condition
from headrace.core.construction import needs_fragment
from headrace.core.contexts import ExecutionContext, OutputContext
from headrace.core.operator import Operator
from headrace.core.ports import SchedulingStatusType
from headrace.operators.tensor_operator import set_default_allocator
from headrace.resources import MachineClock, RealtimeClock
from headrace.video import ReadAhead

_logger = logging.getLogger("headrace.video")

Frame = TypeVar("Frame")


class PacedSource(Operator, Generic[Frame]):
    """The base of sources that are paced by the clock; a subclass writes `frames`, `time_of`, `emit_frame`."""

    parallel = True  # it may wait for the thread that makes the frames, and copies them

    @needs_fragment
    def __init__(self, fragment: Composition, *args: Any, name: str = "", **kwargs: Any) -> None:
        super().__init__(fragment, *args, name=name, **kwargs)
        set_default_allocator(self)
        self._ahead: ReadAhead[Frame] | None = None
        self._origin: int | None = None
        self._last_due: int | None = None
        self._waits = False
        self.frames_emitted = 0
        """The number of frames that were emitted in this run, or in the last one."""
        self.frames_late = 0
        """The number of those that were late by more than the distance to the frame before."""
        self._pace = _Pace(fragment, self)
        self.add_arg(self._pace)

    # A subclass writes these.

    is_live: bool = False
    """Whether frames come from outside, at no time that a virtual clock could know."""

    read_ahead: int = 4
    """The number of frames that are made ahead."""

    def frames(self) -> Generator[Frame, None, None]:
        """Make the frames, on a thread of their own."""
        raise NotImplementedError

    def time_of(self, number: int, frame: Frame) -> int | None:
        """Return when a frame is due, in nanoseconds of any origin; None for as soon as there is room."""
        raise NotImplementedError

    def emit_frame(self, frame: Frame, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit a frame."""
        raise NotImplementedError

    def batch(self) -> int:
        """Return the number of frames of one compute."""
        return 1

    def restart_time(self) -> int | None:
        """Return when to begin again after the end of the frames, by the run's clock; None for never."""
        return None

    # A run calls these.

    def start(self) -> None:
        """Begin to make frames."""
        self._origin = self._last_due = None
        self.frames_emitted = self.frames_late = 0
        clock = self.fragment.scheduler().clock
        # The clock of a simulated machine knows no events from outside, so a live source has to wait there, too.
        self._waits = (
            isinstance(clock, MachineClock) if self.is_live else not isinstance(clock, RealtimeClock)
        )
        self.begin_frames()

    def begin_frames(self) -> None:
        """Begin to make frames, on a new thread."""
        if self._ahead is not None:
            self._ahead.close()
        depth = max(self.read_ahead, self.batch())
        self._ahead = ReadAhead(self.frames(), depth, self._pace.notify_scheduler, f"{self.name} frames")
        self._settle()

    def compute(self, op_input: Any, op_output: OutputContext, context: ExecutionContext) -> None:
        """Emit the frames whose time has come."""
        assert self._ahead is not None
        due = self._due()
        frames = self._ahead.take(self.batch())
        if not frames:
            return
        now = context.timestamp
        if self._origin is None:
            time = self.time_of(self.frames_emitted + len(frames) - 1, frames[-1])
            self._origin = None if time is None else now - time
            self._last_due = now
        elif due is not None:
            self._note_lateness(now, due, len(frames))
        for frame in frames:
            self.emit_frame(frame, op_output, context)
            self.frames_emitted += 1
        del frames, frame  # so that the memory of what was emitted is not held until the next tick
        self._settle()

    def stop(self) -> None:
        """End the thread, wherever it is."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()
        if self.frames_late:
            _logger.warning(
                "operator %r: %d of %d frames were late", self.name, self.frames_late, self.frames_emitted
            )

    def _settle(self) -> None:
        """Wait for the next frame where time would otherwise go on without it."""
        if self._waits and self._ahead is not None:
            self._ahead.wait(self.batch())

    def _due(self) -> int | None:
        """Return when the next frames are due; None for now, or if that is not known."""
        if self._origin is None or self._ahead is None:
            return None
        frames = self._ahead.peek(self.batch())
        if not frames:
            return None
        return self.due_of(self.frames_emitted + len(frames) - 1, frames[-1])

    def due_of(self, number: int, frame: Frame) -> int | None:
        """Return when a frame is due by the run's clock; None where nothing is paced, or before the first frame."""
        time = self.time_of(number, frame)
        return None if time is None or self._origin is None else self._origin + time

    def _go_on(self, now: int) -> None:
        """Move all frames that are still to come by the time that the next one is overdue, after a pause."""
        due = self._due()
        if due is not None and self._origin is not None and now > due:
            self._origin += now - due
            if self._last_due is not None:
                self._last_due += now - due

    def _note_lateness(self, now: int, due: int, count: int) -> None:
        late = now - due
        if self._last_due is not None and late > max(due - self._last_due, 0) and late > 0:
            if not self.frames_late:
                _logger.warning(
                    "operator %r is lagging behind: frame %d was due %.1f ms ago",
                    self.name,
                    self.frames_emitted,
                    late / 1e6,
                )
            self.frames_late += count
        self._last_due = due

    def _status(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        ahead = self._ahead
        if ahead is None or ahead.is_finished:
            again = None if ahead is None else self.restart_time()
            if again is None:
                return SchedulingStatusType.NEVER, None
            is_due = timestamp >= again
            return (SchedulingStatusType.READY if is_due else SchedulingStatusType.WAIT_TIME), again
        if not ahead.has(self.batch()):
            return SchedulingStatusType.WAIT_EVENT, None
        due = self._due()
        if due is None or timestamp >= due:
            return SchedulingStatusType.READY, due
        return SchedulingStatusType.WAIT_TIME, due


class _Pace(Condition):
    """Lets a source run when its next frame is there and due, and never again after the last."""

    polled = False

    def __init__(self, fragment: Composition, source: PacedSource[Any]) -> None:
        super().__init__(fragment, name="pace")
        self._source = source

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return the status of the next frame."""
        return self._source._status(timestamp)

    def on_resume(self, timestamp: int) -> None:
        """Go on with the next frame as if no time had passed."""
        self._source._go_on(timestamp)
