"""The operations of simulated streams and graphs: what they do, and the queue in which a stream performs them.

Operations of a stream run in order, each after the previous one has ended. A fence is a point in that order
that other streams and threads wait for. :class:`~headrace.gpu.sim.stream.Stream` objects are views of a queue.

Every method runs with the timeline's lock held. Who collects the kernels and copies that end is told of each
(`WorkReports`), as by CUPTI on a real device.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.gpu.sim.objects import capture_error
from headrace.gpu.sim.processors import Grid, SMs
from headrace.gpu.sim.timeline import Timeline

if TYPE_CHECKING:
    from headrace.gpu.sim.capture import Capture
    from headrace.gpu.sim.machine import ContextState, DeviceState


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel or a copy that has ended.

    Attributes
    ----------
    device, stream
        The number of the device, and the handle of the stream.
    started, ended
        The machine's time, in nanoseconds.
    ended_wall
        When it ended, by the host's monotonic clock.
    arguments
        What was launched.
    launcher
        What the launching thread was doing (`WorkReports.launcher`); of a graph, the thread that launched it.
    """

    name: str
    device: int
    stream: int
    started: int
    ended: int
    ended_wall: int
    arguments: dict[str, Any]
    launcher: object


class WorkReports(threading.local):
    """Where simulated devices report their work.

    Attributes
    ----------
    collectors
        Who is told of each kernel and copy that has ended; a timeline's lock is held then.
    launcher
        What the current thread is doing while it launches work.
    """

    collectors: ClassVar[list[Callable[[Work], None]]] = []
    launcher: object = None


REPORTS = WorkReports()


@dataclass(slots=True, eq=False)
class Fence:
    """A point in a stream's work, signaled once when the stream reaches it.

    Recording an event inserts a fence. Waiting on the event waits for the fence of its latest record, so recording
    the event again later does not affect earlier waits.
    """

    timeline: Timeline
    signaled_at: int = -1  # nanoseconds; -1 until the stream reaches the fence
    signaled_at_wall: int = -1  # the same by the host's monotonic clock
    _actions: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_signaled(self) -> bool:
        """Whether the stream has reached this point."""
        return self.signaled_at >= 0

    def on_signal(self, action: Callable[[], None]) -> None:
        """Schedule an action for when the fence is signaled; for now, if it already is."""
        if self.is_signaled:
            self.timeline.call_at(self.timeline.now, action)
        else:
            self._actions.append(action)

    def signal(self) -> None:
        """Signal the fence now."""
        self.signaled_at = self.timeline.now
        self.signaled_at_wall = self.timeline.wall_now()
        for action in self._actions:
            # Scheduled rather than called: a chain of waiting streams would become a chain of nested calls.
            self.timeline.call_at(self.signaled_at, action)
        self._actions.clear()


@dataclass(slots=True, eq=False, kw_only=True)
class Operation:
    """One operation of a stream or of a graph's node; without more, it ends at once.

    Attributes
    ----------
    overhead : int
        The nanoseconds from its submission to a stream until it can begin; a node of a graph has none of its own.
    submitted : int
        The host's time of the submission, in nanoseconds.
    origin : tuple of int and object
        The handle of the stream that it was submitted to, and what the thread was doing, if somebody collects work.
    takes_time : bool
        Whether a node of a graph with this operation needs time to begin after the nodes that it depends on.
    """

    takes_time: ClassVar[bool] = False
    overhead: int = 0
    submitted: int = field(init=False)
    origin: tuple[int, object] = field(init=False, default=(0, None))

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Begin now; return True if the operation has ended, or call ``end`` when it ends."""
        return True

    def report(self, device: DeviceState, name: str, started: int, arguments: dict[str, Any]) -> None:
        """Tell who collects work of a kernel or a copy that ends now."""
        timeline = device.machine.timeline
        stream, launcher = self.origin
        work = Work(
            name, device.index, stream, started, timeline.now, timeline.wall_now(), arguments, launcher
        )
        for collect in REPORTS.collectors:
            collect(work)

    def for_replay(self) -> Operation:
        """Return a copy of an operation that has not begun, for one launch of its graph."""
        return copy(self)


@dataclass(slots=True, eq=False)
class SignalFence(Operation):
    """Signals a fence."""

    fence: Fence

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Signal the fence."""
        self.fence.signal()
        return True


@dataclass(slots=True, eq=False)
class WaitForFence(Operation):
    """Waits for a fence, usually one of another stream."""

    fence: Fence

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """End at once if the fence is signaled, otherwise when it is."""
        if self.fence.is_signaled:
            return True
        self.fence.on_signal(end)
        return False


@dataclass(slots=True, eq=False)
class RunGrid(Operation):
    """Runs a grid of blocks on the SMs, then the kernel's effect."""

    takes_time: ClassVar[bool] = True
    name: str
    device: DeviceState
    sms: SMs
    blocks: int
    threads: int
    period: int
    effect: Callable[[Grid], None] | None

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Submit the grid to the SMs."""

        def on_end(grid: Grid) -> None:
            if REPORTS.collectors:
                about = {"blocks": self.blocks, "threads": self.threads}
                self.report(self.device, self.name, grid.first_block, about)
            # Moved out: the effect may hold the program's objects, which must not be freed with the lock held.
            effect, self.effect = self.effect, None
            if effect is None:
                timeline = self.device.machine.timeline
                timeline.call_at(timeline.now, end)
            else:
                self.device.run_user_code(partial(effect, grid), end)

        grid = Grid(self.blocks, self.threads, self.period, self.sms, (priority, 0), on_end)
        self.device.processors.submit(grid)
        return False


@dataclass(slots=True)
class CopyEngine:
    """A device's path for one kind of copy; it serves one copy at a time."""

    device: DeviceState
    bandwidth: float  # bytes per second
    free_at: int = 0


@dataclass(slots=True, eq=False)
class Transfer(Operation):
    """Copies or sets memory: occupies a copy engine for a time, then applies its effect."""

    takes_time: ClassVar[bool] = True
    engine: CopyEngine
    nbytes: int
    effect: Callable[[], object]

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Occupy the engine as soon as it is free."""
        engine, timeline = self.engine, self.engine.device.machine.timeline
        started = max(timeline.now, engine.free_at)
        engine.free_at = started + round(self.nbytes / engine.bandwidth * 1e9)

        def on_end() -> None:
            if REPORTS.collectors:
                self.report(engine.device, "copy", started, {"bytes": self.nbytes})
            timeline.run_user_code(self.effect, then=end)

        timeline.call_at(engine.free_at, on_end)
        return False


@dataclass(slots=True, eq=False)
class CallHostFunction(Operation):
    """Calls a function of the program; the stream continues when it returns."""

    takes_time: ClassVar[bool] = True
    device: DeviceState
    function: Callable[[], object] | None

    def begin(self, priority: int, end: Callable[[], None]) -> bool:
        """Schedule the call."""
        function, self.function = self.function, None  # moved out, as the effect of a grid is
        assert function is not None
        self.device.run_user_code(function, end)
        return False


@dataclass(slots=True, eq=False, weakref_slot=True)
class StreamQueue:
    """The operations submitted to one stream."""

    context: ContextState
    handle: int
    priority: int
    nonblocking: bool
    is_default: bool = False
    timeline: Timeline = field(init=False)
    joined: Capture | None = None  # the capture that it joined last, which may be over
    _operations: deque[Operation] = field(default_factory=deque)
    _is_running: bool = False  # whether the operation at the front has begun, or its start is scheduled

    def __post_init__(self) -> None:
        self.timeline = self.context.device.machine.timeline

    @property
    def capture(self) -> Capture | None:
        """The capture that the stream takes part in, or None."""
        if self.joined is not None and self.joined.is_over:
            self.joined = None
        return self.joined

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has ended."""
        return not self._operations

    def add(self, kind: Any, operation: Operation, memory: Any = (), name: str = "") -> None:
        """Submit an operation; in a capture record it, as a node of that kind and name that uses that memory."""
        if self.capture is None:
            self.submit(operation)
        else:
            self.capture.add(self, kind, operation, memory, name)

    def submit(self, operation: Operation) -> None:
        """Append an operation, ordered with the default stream where CUDA orders it."""
        self.timeline.reset_polls()
        if self.is_default:
            for queue in self.context.blocking_queues():
                if queue.capture is not None:
                    raise queue.capture.invalidate(
                        capture_error(
                            "IMPLICIT", "work on the default stream would wait for a capturing stream"
                        )
                    )
                if not queue.is_idle:
                    self._append(WaitForFence(queue.append_fence()))
        elif not self.nonblocking:
            default = self.context.default_queue
            if not default.is_idle:
                # Appended, not submitted: submitting would in turn order the default stream after this one.
                self._append(WaitForFence(default.append_fence()))
        self._append(operation)

    def append_fence(self) -> Fence:
        """Append a fence that waits for this queue's operations only."""
        fence = Fence(self.timeline)
        self._append(SignalFence(fence))
        return fence

    def submit_fence(self) -> Fence:
        """Submit a fence; like any operation, it is ordered with the default stream."""
        fence = Fence(self.timeline)
        self.submit(SignalFence(fence))
        return fence

    def end(self) -> None:
        """End the operation at the front and begin the next."""
        self._operations.popleft()
        self._resume()

    def _append(self, operation: Operation) -> None:
        operation.submitted = self.timeline.host_now()
        if REPORTS.collectors:
            operation.origin = (self.handle, REPORTS.launcher)
        if not self._operations:
            self.context.device.busy_queues.add(self)
        self._operations.append(operation)
        self._run()

    def _run(self) -> None:
        while self._operations and not self._is_running:
            front = self._operations[0]
            self._is_running = True
            ready_at = front.submitted + front.overhead
            if ready_at > self.timeline.now:
                self.timeline.call_at(ready_at, self._resume)
            elif front.begin(self.priority, self.end):
                self._operations.popleft()
                self._is_running = False
        if not self._operations:
            self.context.device.busy_queues.discard(self)

    def _resume(self) -> None:
        self._is_running = False
        self._run()
