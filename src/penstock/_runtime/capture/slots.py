"""Slots: recordings whose own memory is sent, and the wait for one that nobody uses.

With ``outputs="ring"`` a segment has several recordings of the same frame, each with memory of its own for what it
emits. A recording that was replayed is in use until the last array on its memory is gone. The runtime keeps a
received frame until the streams that read it have passed, so nothing reads the memory any more then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.core.condition import Condition, SchedulingStatusType

if TYPE_CHECKING:
    from penstock._runtime.capture.recording import Recording

__all__ = ["Lease", "SlotAvailable", "Slots"]

_PATIENCE_NS = 1_000_000_000
_READY = (SchedulingStatusType.READY, None)


class Lease:
    """The use of a recording's memory; it ends with the last array that refers to it."""

    __slots__ = ("_recording", "_slots")

    def __init__(self, slots: Slots, recording: Recording) -> None:
        self._slots = slots
        self._recording = recording

    def __del__(self) -> None:
        # At any line of any thread, so without a lock.
        self._slots.give_back(self._recording)


class Slots:
    """The recordings of one signature that send their own memory.

    Attributes
    ----------
    made
        The number of recordings.
    free
        Those that nobody uses. Any thread appends; the thread that runs the segment takes.
    """

    __slots__ = ("_condition", "free", "made")

    def __init__(self, condition: SlotAvailable | None) -> None:
        self.made = 0
        self.free: deque[Recording] = deque()
        self._condition = condition
        if condition is not None:
            condition.slots.append(self)

    def lend(self, recording: Recording) -> Lease:
        """Return the lease of a recording that is about to be replayed."""
        return Lease(self, recording)

    def give_back(self, recording: Recording) -> None:
        """Take back a recording; called from a finalizer."""
        self.free.append(recording)
        if self._condition is not None:
            self._condition.slot_returned()


class SlotAvailable(Condition):
    """Lets a segment run when a recording of each signature is free; before they are made, it always may.

    Attributes
    ----------
    slots
        The slots to wait for.
    """

    polled = False
    matters_while_blocked = False

    def __init__(self, fragment: Any, most: int, *, name: str) -> None:
        super().__init__(fragment, name=name)
        self.slots: list[Slots] = []
        self._most = most
        self._since: int | None = None
        self._is_told = False
        self._has_warned = False

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        """Return READY when there is a slot; else wait to be told, for a second at least."""
        is_told, self._is_told = self._is_told, False
        if self._is_there() or (self._is_told and self._is_there()):
            self._since = None
            return _READY
        if self._since is None or is_told:
            self._since = timestamp
        until = self._since + _PATIENCE_NS
        if timestamp < until:
            return SchedulingStatusType.WAIT_TIME, until
        self._warn()
        return SchedulingStatusType.WAIT, None

    def slot_returned(self) -> None:
        """Ask again; called from any thread, in finalizers too."""
        self._is_told = True
        self.notify_scheduler()

    @property
    def starving(self) -> str:
        """What there is too little of."""
        return f"a free slot ({self._most} are in use)"

    def _is_there(self) -> bool:
        return all(slots.free or slots.made < self._most for slots in self.slots)

    def _warn(self) -> None:
        if not self._has_warned and self._node is not None:
            self._has_warned = True
            import logging  # needed only here

            logging.getLogger("penstock.capture").warning(
                "segment %r has waited a second for %s; who holds its messages? It needs a slot for each message "
                "that may wait in a queue, for each operator that works on one or keeps one, and for the next one",
                self._node.name,
                self.starving,
            )

    def detach(self) -> None:
        """Leave the run."""
        self.slots.clear()
        self._since = None
        self._has_warned = False
        super().detach()
