"""The operations that a simulated stream performs.

Every method runs with the timeline's lock held.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from penstock.gpu.sim.fences import Fence
from penstock.gpu.sim.processors import Grid, Processors, SMs

if TYPE_CHECKING:
    from penstock.gpu.sim.stream_queues import StreamQueue


class Operation:
    """One operation of a stream.

    Attributes
    ----------
    submitted : int
        The host's time of the submission, in nanoseconds.
    """

    __slots__ = ("submitted",)
    submitted: int

    def begin(self, queue: StreamQueue) -> bool:
        """Begin now; return True if the operation has ended, or call ``queue.end`` when it ends."""
        raise NotImplementedError


class SignalFence(Operation):
    """Signals a fence."""

    __slots__ = ("_fence",)

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def begin(self, queue: StreamQueue) -> bool:
        """Signal the fence."""
        self._fence.signal()
        return True


class WaitForFence(Operation):
    """Waits for a fence, usually one of another stream."""

    __slots__ = ("_fence",)

    def __init__(self, fence: Fence) -> None:
        self._fence = fence

    def begin(self, queue: StreamQueue) -> bool:
        """End at once if the fence is signaled, otherwise when it is."""
        if self._fence.is_signaled:
            return True
        self._fence.on_signal(queue.end)
        return False


class RunGrid(Operation):
    """Runs a grid of blocks on the SMs, then the kernel's effect."""

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

    def begin(self, queue: StreamQueue) -> bool:
        """Submit the grid to the SMs, no sooner than the launch overhead allows."""
        timeline = queue.timeline
        arrival = self.submitted + self._overhead

        def on_end(grid: Grid) -> None:
            # Moved out: the effect may hold the program's objects, which must not be freed with the lock held.
            effect, self._effect = self._effect, None
            if effect is None:
                timeline.call_at(timeline.now, queue.end)
            else:
                queue.run_user_code(partial(effect, grid))

        grid = Grid(
            blocks=self._blocks,
            threads=self._threads,
            period=self._period,
            sms=self._sms,
            priority=queue.priority,
            on_end=on_end,
        )
        timeline.call_at(max(arrival, timeline.now), lambda: self._processors.submit(grid))
        return False


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

    __slots__ = ("_effect", "_engine", "_overhead", "_period")

    def __init__(
        self, engine: CopyEngine, *, period: int, overhead: int, effect: Callable[[], object]
    ) -> None:
        self._engine = engine
        self._period = period
        self._overhead = overhead
        self._effect = effect

    def begin(self, queue: StreamQueue) -> bool:
        """Occupy the engine as soon as it is free."""
        timeline = queue.timeline
        start = max(timeline.now, self.submitted + self._overhead, self._engine.free_at)
        self._engine.free_at = start + self._period
        timeline.call_at(self._engine.free_at, lambda: timeline.run_user_code(self._effect, then=queue.end))
        return False


class CallHostFunction(Operation):
    """Calls a function of the program; the stream continues when it returns."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    def begin(self, queue: StreamQueue) -> bool:
        """Schedule the call."""
        function, self._function = self._function, None  # moved out, as the effect of a grid is
        assert function is not None
        queue.run_user_code(function)
        return False
