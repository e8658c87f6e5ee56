"""What computes write down for an observer: their times, and the messages that they receive and emit.

The observer's classes are subclasses of these (`headrace.observe.events.recorder`). The runtime writes the usual
rows itself, because a call of Python would cost more than the row. These classes are compiled with the rest of the
hot path, which then reads and writes their fields directly.

Rows are lists of ints, whose items are declared `Any`: compiled code would otherwise convert each int twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ComputeLog:
    """What the computes of one operator write to.

    Attributes
    ----------
    compute
        What `Observer.around` was given.
    now
        The clock.
    computes
        A row for each compute: its start, its end; during a compute, the last one is not complete.
    number
        The number of the current compute, or of the next one.
    failed
        The computes that failed for good; not those that are tried again.
    timer
        Takes the times of work on the device, of computes that start at its `next` or later.
    is_timing
        Whether the current compute is timed on the device.
    threads
        The thread of each compute, if `notes_threads`.
    """

    __slots__ = (
        *("compute", "computes", "failed", "is_timing", "notes_threads", "now", "number", "threads"),
        "timer",
    )

    def __init__(self, now: Callable[[], Any], timer: Any) -> None:
        self.compute: Callable[..., None]
        self.now = now
        self.timer = timer
        self.computes: list[Any] = []
        self.threads: list[Any] = []
        self.failed: list[Any] = []
        self.number = 0
        self.is_timing = False
        self.notes_threads = False

    def end_timing(self) -> None:
        """End to take times on the device."""
        raise NotImplementedError


class ReceiptLog:
    """What the messages that are taken from one queue are written to.

    Attributes
    ----------
    log
        The log of the operator's computes.
    take_item, noted
        Takes a message, and writes nothing; and the `take` of the port that does the same and writes it down.
    receipts
        A row for each message: when it was received, the compute.
    """

    __slots__ = ("log", "noted", "receipts", "take_item")

    def __init__(self, log: ComputeLog, take_item: Callable[[], Any]) -> None:
        self.log = log
        self.take_item = take_item
        self.noted: Any = None
        self.receipts: list[Any] = []


class EmissionLog:
    """What the messages that an output sends into one queue are written to.

    Attributes
    ----------
    log
        The log of the operator's computes.
    queue
        The queue.
    emissions
        A row for each message: when it was emitted, the compute that it follows from.
    number
        The number of messages that came into the queue.
    room
        Up to this length of the queue, there is nothing to note but the emission of a message without details.
    """

    __slots__ = ("emissions", "log", "number", "queue", "room")

    def __init__(self, log: ComputeLog, queue: Any) -> None:
        self.log = log
        self.queue = queue
        self.emissions: list[Any] = []
        self.number = 0
        self.room = 0
