"""What a simulated stream does: operations in order, each begun when the one before it has ended.

A *lane* is the queue behind a stream handle; :class:`~penstock.gpu.sim.stream.Stream` objects are views of
one. A *mark* is a point that a lane passes once: what recording an event leaves behind. Waiting on an event
waits for the mark that its latest record left, so recording it again later disturbs nobody.

Everything here runs with the timeline's lock held.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.gpu.sim.processors import Grid, Processors, SMs
from penstock.gpu.sim.timeline import Timeline

if TYPE_CHECKING:
    from penstock.gpu.sim.machine import ContextState


class Mark:
    """A point in a lane: passed or not, when, and who wants to know."""

    __slots__ = ("_then", "time", "timeline")

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.time = -1
        self._then: list[Callable[[], None]] = []

    @property
    def passed(self) -> bool:
        """Whether the lane is past this point."""
        return self.time >= 0

    def then(self, action: Callable[[], None]) -> None:
        """Carry out an action when this point is passed (soon, if it already is)."""
        if self.passed:
            self.timeline.at(self.timeline.now, action)
        else:
            self._then.append(action)

    def pass_(self) -> None:
        """Pass this point now."""
        self.time = self.timeline.now
        for action in self._then:
            # Not called from here: a chain of lanes waiting for each other would be a chain of calls.
            self.timeline.at(self.time, action)
        self._then.clear()


class Operation:
    """Something a lane does: ``begin`` returns True if that was all, or calls ``lane.end`` later."""

    __slots__ = ("submitted",)
    submitted: int

    def begin(self, lane: "Lane") -> bool:
        """Start, at the timeline's present moment."""
        raise NotImplementedError


class Lane:
    """The operations of one stream."""

    __slots__ = (
        "__weakref__",
        "_busy",
        "_operations",
        "context",
        "handle",
        "is_default",
        "nonblocking",
        "priority",
        "timeline",
    )

    def __init__(
        self,
        context: "ContextState",
        handle: int,
        *,
        priority: int,
        nonblocking: bool,
        is_default: bool = False,
    ) -> None:
        self.context = context
        self.handle = handle
        self.priority = priority
        self.nonblocking = nonblocking
        self.is_default = is_default
        self.timeline = context.device.machine.timeline
        self._operations: deque[Operation] = deque()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether everything submitted has ended."""
        return not self._operations

    def submit(self, operation: Operation) -> None:
        """Add an operation at the end, ordered with the default stream where CUDA orders it."""
        if self.is_default:
            for lane in self.context.blocking_lanes():
                if not lane.idle:
                    self._append(Wait(lane.mark()))
        elif not self.nonblocking:
            default = self.context.default_lane
            if not default.idle:
                # Its mark is put in place directly: asking the default lane would order it after us in turn.
                mark = Mark(self.timeline)
                default._append(Record(mark))
                self._append(Wait(mark))
        self._append(operation)

    def mark(self) -> Mark:
        """Add a mark at the end of what this lane alone does."""
        mark = Mark(self.timeline)
        self._append(Record(mark))
        return mark

    def record(self) -> Mark:
        """Add a mark at the end, ordered with the default stream as any operation is."""
        mark = Mark(self.timeline)
        self.submit(Record(mark))
        return mark

    def run_foreign(self, code: Callable[[], object]) -> None:
        """Have the program's code run, with the lane's device current; then go on."""
        self.timeline.run_foreign(partial(self.context.device.call, code), then=self.end)

    def end(self) -> None:
        """Go on: the operation at the front has ended."""
        self._operations.popleft()
        self._busy = False
        self._go()

    def _append(self, operation: Operation) -> None:
        operation.submitted = self.timeline.host_now()
        if not self._operations:
            self.context.device.busy_lanes.add(self)
        self._operations.append(operation)
        self._go()

    def _go(self) -> None:
        while self._operations and not self._busy:
            front = self._operations[0]
            self._busy = True
            if front.submitted > self.timeline.now:  # the simulation runs a little behind the host
                self.timeline.at(front.submitted, self._resume)
            elif front.begin(self):
                self._operations.popleft()
                self._busy = False
        if not self._operations:
            self.context.device.busy_lanes.discard(self)

    def _resume(self) -> None:
        self._busy = False
        self._go()


class Record(Operation):
    """Passes a mark."""

    __slots__ = ("mark",)

    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def begin(self, lane: Lane) -> bool:
        """Pass the mark."""
        self.mark.pass_()
        return True


class Wait(Operation):
    """Waits for a mark of another lane."""

    __slots__ = ("mark",)

    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def begin(self, lane: Lane) -> bool:
        """Go on at once if the mark has been passed, else when it is."""
        if self.mark.passed:
            return True
        self.mark.then(lane.end)
        return False


class Execute(Operation):
    """Runs a grid of blocks on the SMs, then its effect."""

    __slots__ = ("_blocks", "_effect", "_overhead", "_period", "_processors", "_sms", "_threads")

    def __init__(
        self,
        processors: Processors,
        sms: SMs,
        *,
        blocks: int,
        threads: int,
        period: int,
        overhead: int,
        effect: Callable[[Grid], None] | None,
    ) -> None:
        self._processors = processors
        self._sms = sms
        self._blocks = blocks
        self._threads = threads
        self._period = period
        self._overhead = overhead
        self._effect = effect

    def begin(self, lane: Lane) -> bool:
        """Hand the grid to the SMs, no sooner than the launch takes to get there."""
        timeline = lane.timeline
        arrival = self.submitted + self._overhead

        def ended(grid: Grid) -> None:
            # Taken out: what the effect holds is the program's, and must not be dropped with this operation.
            effect, self._effect = self._effect, None
            if effect is None:
                timeline.at(timeline.now, lane.end)
            else:
                lane.run_foreign(partial(effect, grid))

        grid = Grid(
            blocks=self._blocks,
            threads=self._threads,
            period=self._period,
            sms=self._sms,
            priority=lane.priority,
            on_end=ended,
        )
        timeline.at(max(arrival, timeline.now), lambda: self._processors.submit(grid))
        return False


class Transfer(Operation):
    """Moves or sets memory: takes its turn on a copy engine for a time, then has its effect."""

    __slots__ = ("_effect", "_engine", "_overhead", "_period")

    def __init__(
        self, engine: "CopyEngine", *, period: int, overhead: int, effect: Callable[[], object]
    ) -> None:
        self._engine = engine
        self._period = period
        self._overhead = overhead
        self._effect = effect

    def begin(self, lane: Lane) -> bool:
        """Take the engine's next free time."""
        timeline = lane.timeline
        start = max(timeline.now, self.submitted + self._overhead, self._engine.free_at)
        self._engine.free_at = start + self._period
        timeline.at(self._engine.free_at, lambda: timeline.run_foreign(self._effect, then=lane.end))
        return False


class CopyEngine:
    """A device's path for one kind of copy; it serves one at a time."""

    __slots__ = ("bandwidth", "free_at")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth  # bytes per second
        self.free_at = 0

    def period(self, nbytes: int) -> int:
        """Return how many nanoseconds that many bytes take."""
        return round(nbytes / self.bandwidth * 1e9)


class CallHost(Operation):
    """Runs a function of the program; the lane goes on when it returns."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    def begin(self, lane: Lane) -> bool:
        """Have the function run."""
        function, self._function = self._function, None  # as for an effect: not dropped with the lock held
        assert function is not None
        lane.run_foreign(function)
        return False
