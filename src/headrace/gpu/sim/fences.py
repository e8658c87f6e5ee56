"""Fences: the points in a stream's work that other streams and threads wait for."""

from __future__ import annotations

from collections.abc import Callable

from headrace.gpu.sim.timeline import Timeline


class Fence:
    """A point in a stream's work, signaled once when the stream reaches it.

    Recording an event inserts a fence. Waiting on the event waits for the fence of its latest record, so recording
    the event again later does not affect earlier waits.

    The timeline's lock is held during every call.
    """

    __slots__ = ("_actions", "signaled_at", "signaled_at_wall", "timeline")

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.signaled_at = -1  # nanoseconds; -1 until the stream reaches the fence
        self.signaled_at_wall = -1  # the same by the host's monotonic clock
        self._actions: list[Callable[[], None]] = []

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
