"""The operations that simulated streams and the nodes of graphs perform.

Every method runs with the timeline's lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Protocol

from headrace.gpu.sim.fences import Fence
from headrace.gpu.sim.processors import Grid, Processors, SMs
from headrace.gpu.sim.timeline import Timeline


class Runner(Protocol):
    """Performs operations: a stream, or a node of a graph that is being replayed."""

    @property
    def timeline(self) -> Timeline:
        """The timeline of the machine."""

    @property
    def priority(self) -> int:
        """The priority of its grids; a lower number means a higher priority."""

    def end(self) -> None:
        """End the operation that was begun last."""

    def run_user_code(self, code: Callable[[], object]) -> None:
        """Run a function of the program as the current operation, then end it."""


class Operation:
    """One operation of a stream or of a graph's node.

    Attributes
    ----------
    submitted : int
        The host's time of the submission, in nanoseconds.
    """

    __slots__ = ("submitted",)
    submitted: int
    takes_time: ClassVar[bool] = False
    """Whether a node of a graph with this operation needs time to begin after the nodes that it depends on."""

    def begin(self, runner: Runner) -> bool:
        """Begin now; return True if the operation has ended, or call ``runner.end`` when it ends."""
        raise NotImplementedError

    def for_replay(self) -> Operation:
        """Return a copy of an operation that has not begun; without the overhead of a launch of its own."""
        return self


class SignalFence(Operation):
    """Signals a fence."""

    __slots__ = ("_fence",)

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def begin(self, runner: Runner) -> bool:
        """Signal the fence."""
        self._fence.signal()
        return True


class WaitForFence(Operation):
    """Waits for a fence, usually one of another stream."""

    __slots__ = ("_fence",)

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def begin(self, runner: Runner) -> bool:
        """End at once if the fence is signaled, otherwise when it is."""
        if self._fence.is_signaled:
            return True
        self._fence.on_signal(runner.end)
        return False


class RunGrid(Operation):
    """Runs a grid of blocks on the SMs, then the kernel's effect."""

    takes_time = True
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

    def begin(self, runner: Runner) -> bool:
        """Submit the grid to the SMs, no sooner than the launch overhead allows."""
        timeline = runner.timeline
        arrival = self.submitted + self._overhead

        def on_end(grid: Grid) -> None:
            # Moved out: the effect may hold the program's objects, which must not be freed with the lock held.
            effect, self._effect = self._effect, None
            if effect is None:
                timeline.call_at(timeline.now, runner.end)
            else:
                runner.run_user_code(partial(effect, grid))

        grid = Grid(
            blocks=self._blocks,
            threads=self._threads,
            period=self._period,
            sms=self._sms,
            priority=runner.priority,
            on_end=on_end,
        )
        timeline.call_at(max(arrival, timeline.now), lambda: self._processors.submit(grid))
        return False

    def for_replay(self) -> RunGrid:
        """Return a copy without the overhead of a launch."""
        return RunGrid(
            self._processors,
            self._sms,
            blocks=self._blocks,
            threads=self._threads,
            period=self._period,
            overhead=0,
            effect=self._effect,
        )


class CopyEngine:
    """A device's path for one kind of copy; it serves one copy at a time."""

    __slots__ = ("bandwidth", "free_at")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth  # bytes per second
        self.free_at = 0

    def period(self, nbytes: int) -> int:
        """Return the nanoseconds that a copy of that many bytes takes."""
        return round(nbytes / self.bandwidth * 1e9)


class Transfer(Operation):
    """Copies or sets memory: occupies a copy engine for a time, then applies its effect."""

    takes_time = True
    __slots__ = ("_effect", "_engine", "_overhead", "_period")

    def __init__(
        self, engine: CopyEngine, *, period: int, overhead: int, effect: Callable[[], object]
    ) -> None:
        self._engine = engine
        self._period = period
        self._overhead = overhead
        self._effect = effect

    def begin(self, runner: Runner) -> bool:
        """Occupy the engine as soon as it is free."""
        timeline = runner.timeline
        start = max(timeline.now, self.submitted + self._overhead, self._engine.free_at)
        self._engine.free_at = start + self._period
        timeline.call_at(self._engine.free_at, lambda: timeline.run_user_code(self._effect, then=runner.end))
        return False

    def for_replay(self) -> Transfer:
        """Return a copy without the overhead of a launch."""
        return Transfer(self._engine, period=self._period, overhead=0, effect=self._effect)


class CallHostFunction(Operation):
    """Calls a function of the program; the stream continues when it returns."""

    takes_time = True
    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    def begin(self, runner: Runner) -> bool:
        """Schedule the call."""
        function, self._function = self._function, None  # moved out, as the effect of a grid is
        assert function is not None
        runner.run_user_code(function)
        return False

    def for_replay(self) -> CallHostFunction:
        """Return a copy."""
        assert self._function is not None
        return CallHostFunction(self._function)


class DoNothing(Operation):
    """Ends at once."""

    __slots__ = ()

    def begin(self, runner: Runner) -> bool:
        """End."""
        return True
