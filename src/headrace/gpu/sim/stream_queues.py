"""The queue behind a simulated stream: operations that run in order, each after the previous one has ended.

:class:`~headrace.gpu.sim.stream.Stream` objects are views of a queue. Every method runs with the timeline's
lock held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.gpu.sim.errors import capture_error
from headrace.gpu.sim.fences import Fence
from headrace.gpu.sim.operations import Operation, SignalFence, WaitForFence

if TYPE_CHECKING:
    from headrace.gpu.sim.capture import Capture
    from headrace.gpu.sim.device_state import ContextState


class StreamQueue:
    """The operations submitted to one stream."""

    __slots__ = (
        "__weakref__",
        "_capture",
        "_is_running",
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
        context: ContextState,
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
        self._is_running = False  # whether the operation at the front has begun, or its start is scheduled
        self._capture: Capture | None = None

    @property
    def capture(self) -> Capture | None:
        """The capture that the stream takes part in, or None."""
        capture = self._capture
        if capture is not None and capture.is_over:
            capture = self._capture = None
        return capture

    def join_capture(self, capture: Capture) -> None:
        """Take part in a capture until it is over."""
        self._capture = capture

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has ended."""
        return not self._operations

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

    def run_user_code(self, code: Callable[[], object]) -> None:
        """Run a function of the program as the current operation, with the stream's device current."""
        self.timeline.run_user_code(partial(self.context.device.call, code), then=self.end)

    def end(self) -> None:
        """End the operation at the front and begin the next."""
        self._operations.popleft()
        self._is_running = False
        self._run()

    def _append(self, operation: Operation) -> None:
        operation.submitted = self.timeline.host_now()
        if not self._operations:
            self.context.device.busy_queues.add(self)
        self._operations.append(operation)
        self._run()

    def _run(self) -> None:
        while self._operations and not self._is_running:
            front = self._operations[0]
            self._is_running = True
            if front.submitted > self.timeline.now:  # the simulation runs slightly behind the host
                self.timeline.call_at(front.submitted, self._resume)
            elif front.begin(self):
                self._operations.popleft()
                self._is_running = False
        if not self._operations:
            self.context.device.busy_queues.discard(self)

    def _resume(self) -> None:
        self._is_running = False
        self._run()
