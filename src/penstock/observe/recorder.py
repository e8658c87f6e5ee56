"""The part of an observation that runs in computes: it appends times to a list of ints, and does nothing else.

Each operator has a log, a flat list with three ints for each thing that happened: a kind, a value and a time. One
compute of an operator runs at a time, so everything before an `END` and after the last one belongs to that compute.
Ints in a list cost little and are no work for the garbage collector. The resolver, on its own thread, makes sense
of them: the n-th message that leaves a queue is the n-th one that entered it. Where that does not hold (several
producers share a queue, or a full queue drops its oldest message), a label in the queue tells which message it is.

The functions here are closures: a variable of a closure is found faster than an attribute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock._runtime import Message, Queue, Tally
from penstock.core.ports import IOSpec
from penstock.observe.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from penstock.observe.gpu_timing import StreamTimer
    from penstock.observe.records import OperatorInfo, OutputInfo, QueueInfo
    from penstock.observe.replays import ReplayTimer

__all__ = [
    "CONTINUE",
    "DROP",
    "END",
    "FIRST_PUT",
    "FIRST_TAKE",
    "GPU",
    "KINDS",
    "REPLAY",
    "TAPS",
    "THREAD",
    "NodeRecorder",
    "ObservedQueue",
    "Tap",
    "UnconnectedTap",
]

# The kinds of entries in a log, with their value and time.
END = 0
"""The compute ended: its start, its end."""
THREAD = 1
"""The compute runs on another thread than the one before: the thread, 0."""
GPU = 2
"""The compute's work on a stream was timed: the position of the timer, the number of segments."""
DROP = 3
"""A full queue rejected a message: the position of the tap, the time."""
CONTINUE = 4
"""The compute continues with what an earlier one received: 0, 0."""
REPLAY = 5
"""The compute did not take place: a recording of it was replayed: 0, 0."""
FIRST_TAKE = 6
"""A message was received: its label (0 without labels), the time. Each queue of the operator has its own kind: this
one plus a multiple of `KINDS`."""
FIRST_PUT = 7
"""A message was emitted: its acquisition timestamp, the time. Each tap has its own kind, as each queue has."""
KINDS = 2
"""The distance between the kinds of two queues, and of two taps."""
TAPS = 1 << 12
"""A label is the number of a message times this, plus the position of its tap among those of the queue."""

Show: TypeAlias = Callable[[Any], None]
Attach: TypeAlias = "Callable[[NodeRecorder, int, Any, Show | None], None]"

_popleft = deque.popleft
_POP = IOSpec.QueuePolicy.POP


class NodeRecorder:
    """Takes the times of one operator's computes.

    Attributes
    ----------
    log
        What happened in its computes, three ints for each.
    timers
        The streams on which its work on the device is timed.
    taps
        The taps behind all its outputs, in order.
    """

    __slots__ = ("goes_on", "info", "log", "notes_threads", "now", "taps", "thread", "timers")

    def __init__(self, info: OperatorInfo, now: Callable[[], int], notes_threads: bool) -> None:
        self.info = info
        self.now = now
        self.log: list[int] = []
        self.timers: list[StreamTimer | ReplayTimer] = []
        self.taps: list[Tap | UnconnectedTap] = []
        self.notes_threads = notes_threads
        # The thread that was recorded last.
        self.thread = 0
        # Returns whether the next compute continues with what an earlier one received.
        self.goes_on: Callable[[], bool] | None = None

    def around(self, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that takes the times of `compute`."""
        now, extend, timers, goes_on = self.now, self.log.extend, self.timers, self.goes_on
        notes_threads = self.notes_threads
        is_special = notes_threads or goes_on is not None

        def observed(op_input: Any, op_output: Any, context: Any) -> None:
            if is_special:
                if goes_on is not None and goes_on():
                    extend((CONTINUE, 0, 0))
                if notes_threads and self.thread != get_ident():
                    self.thread = get_ident()
                    extend((THREAD, self.thread, 0))
            started = now()
            if timers:
                for timer in timers:
                    timer.begin_compute(started)
            try:
                compute(op_input, op_output, context)
            finally:
                if timers:
                    for position, timer in enumerate(timers):
                        if timer.is_timing:
                            extend((GPU, position, timer.end_compute()))
                extend((END, started, now()))

        return observed

    def note_replay(
        self,
        started: int,
        ended: int,
        thread: int,
        takes: Sequence[int],
        puts: Sequence[int],
        timer: int,
    ) -> None:
        """Record a compute that was replayed.

        Messages that came through queues and taps were recorded before.

        Parameters
        ----------
        started, ended
            The times of the compute.
        thread
            The thread; 0 if threads are not recorded.
        takes, puts
            The positions of the queues and taps whose messages did not come through them: one of each.
        timer
            The position of the timer that takes the times on the device; -1 without one.
        """
        rows = [REPLAY, 0, 0]
        if thread and thread != self.thread:
            self.thread = thread
            rows += (THREAD, thread, 0)
        for position in takes:
            rows += (FIRST_TAKE + KINDS * position, 0, started)
        for position in puts:
            rows += (FIRST_PUT + KINDS * position, NO_TIMESTAMP, ended)
        if timer >= 0:
            rows += (GPU, timer, 1)
        rows += (END, started, ended)
        self.log.extend(rows)


class ObservedQueue(Queue):
    """A queue whose messages are counted and timed as they are received.

    Attributes
    ----------
    info
        The queue in the observation.
    labels
        The labels of the waiting messages, if they need any. A label is added before its message and taken after
        it, so a thread that finds a message finds its label.
    popleft, attach
        Take a message and record it. Begin to record: for a recorder, with the position among its queues, the input
        port, and a function to show every message to, if somebody watches the data.
    """

    __slots__ = ("attach", "info", "labels", "popleft")

    info: QueueInfo
    popleft: Callable[[], Any]
    attach: Attach

    def __init__(self, consumer: Any, port: str, limit: int, policy: Any) -> None:
        super().__init__(consumer, port, limit, policy)
        self.labels: deque[int] | None = None
        self.popleft, self.attach = self._make_popleft()

    def _make_popleft(self) -> tuple[Callable[[], Any], Attach]:
        # The input port fetches `popleft` when it is created, before there is a recorder.
        take = super().popleft
        kind = 0
        extend: Callable[[tuple[int, ...]], None]
        now: Callable[[], int]
        timers: list[StreamTimer | ReplayTimer]
        labels: deque[int] | None = None
        input_port: Any = None
        show: Show | None = None

        def popleft() -> Any:
            item = take()
            extend((kind, 0 if labels is None else labels.popleft(), now()))
            if timers:
                for timer in timers:
                    timer.receive(item, input_port)
            if show is not None:
                show(item)
            return item

        def attach(recorder: NodeRecorder, position: int, port: Any, show_to: Show | None) -> None:
            nonlocal kind, extend, now, timers, labels, input_port, show
            show = show_to
            kind = FIRST_TAKE + KINDS * position
            extend, now, timers, input_port = recorder.log.extend, recorder.now, recorder.timers, port
            if self.lock is not None:
                labels = self.labels = deque()

        return popleft, attach

    def clear(self) -> None:
        """Remove all messages."""
        super().clear()
        if self.labels is not None:
            self.labels.clear()


class Tap(Tally):
    """Stands between an output and one queue behind it: times and passes on every message.

    Parameters
    ----------
    behind
        The queue.
    output
        The output in the observation.
    recorder
        The recorder of the operator that emits.
    show
        Called with every message, if somebody watches the data; given to the first tap of an output.

    Attributes
    ----------
    offer
        Passes on a message; made for the kind of queue behind.
    replayed
        The number of messages that a captured segment passed on in replays, and that came through no queue.
    """

    __slots__ = ("_count", "_most", "offer", "output", "replayed")

    behind: ObservedQueue
    offer: Callable[[Any], None]  # type: ignore[assignment]

    def __init__(
        self, behind: ObservedQueue, output: OutputInfo, recorder: NodeRecorder, show: Show | None
    ) -> None:
        self._count: Callable[[], int] = int
        self._most: Callable[[], int]
        self.replayed = 0
        super().__init__(behind)
        self.output = output
        position = len(recorder.taps)
        recorder.taps.append(self)
        behind.info.taps.append(self)
        behind.info.outputs.append(output)
        # A queue has a lock if producers share it or if it drops its oldest message.
        make = self._offer_alone if behind.lock is None else self._offer_labelled
        self.offer, self._count, self._most = make(recorder, position, show)

    @property
    def passed_on(self) -> int:
        """The number of messages so far."""
        return self._count() + self.replayed

    @passed_on.setter
    def passed_on(self, count: int) -> None:
        """Do nothing: `offer` counts."""

    @property
    def most(self) -> int:
        """The largest number of messages that waited once one of these had been added."""
        return self._most() or int(self.replayed > 0)

    def _offer_alone(
        self, recorder: NodeRecorder, position: int, show: Show | None
    ) -> tuple[Callable[[Any], None], Callable[[], int], Callable[[], int]]:
        kind = FIRST_PUT + KINDS * position
        behind = self.behind
        append, limit, extend, now = behind.append, behind.limit, recorder.log.extend, recorder.now
        count = most = 0

        def offer(item: Any) -> None:
            nonlocal count, most
            count += 1
            if show is not None:
                show(item)
            before = len(behind)
            if before < limit:
                if before >= most:
                    most = before + 1
                # Before the message: whoever reads the logs finds what was received among what was emitted.
                extend((kind, NO_TIMESTAMP if type(item) is not Message else _timestamp_of(item), now()))
                append(item)
            else:
                # Not `Queue.offer`: it would add the message if there were room again, and nobody would know.
                extend((DROP, position, now()))
                behind.refuse()

        return offer, lambda: count, lambda: most

    def _offer_labelled(
        self, recorder: NodeRecorder, position: int, show: Show | None
    ) -> tuple[Callable[[Any], None], Callable[[], int], Callable[[], int]]:
        kind = FIRST_PUT + KINDS * position
        behind, lock, labels = self.behind, self.behind.lock, self.behind.labels
        assert lock is not None
        assert labels is not None
        extend, now, limit, pops = recorder.log.extend, recorder.now, behind.limit, behind.policy is _POP
        label = behind.info.taps.index(self)
        count = most = 0

        def offer(item: Any) -> None:
            nonlocal count, label, most
            count += 1
            if show is not None:
                show(item)
            timestamp = NO_TIMESTAMP if type(item) is not Message else _timestamp_of(item)
            oldest = None
            with lock:
                if pops or len(behind) < limit:
                    extend((kind, timestamp, now()))
                    labels.append(label)
                    label += TAPS
                    behind.append(item)
                    if len(behind) > limit:
                        behind.dropped += 1
                        labels.popleft()
                        oldest = _popleft(behind)
                    most = max(most, len(behind))
                else:
                    extend((DROP, position, now()))
                    behind.refuse()
            del oldest  # only here, without the lock: its finalizer may run any code

        return offer, lambda: count, lambda: most


class UnconnectedTap(Tally):
    """Stands before the queue of an unconnected output, which drops everything."""

    __slots__ = ("_show",)

    def __init__(self, behind: Queue, show: Show | None) -> None:
        super().__init__(behind)
        self._show = show

    def offer(self, item: Any) -> None:
        """Show a message, if somebody watches the data, and drop it."""
        if self._show is not None:
            self._show(item)
        super().offer(item)


def _timestamp_of(message: Message) -> int:
    details = message.details
    if details is None or details.acq_timestamp is None:
        return NO_TIMESTAMP
    timestamp = details.acq_timestamp
    # One that an array of NumPy cannot hold is of no clock.
    return timestamp if NO_TIMESTAMP < timestamp < -NO_TIMESTAMP else NO_TIMESTAMP
