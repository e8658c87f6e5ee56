"""The part of an observation that runs in computes: it takes times, and appends them to a list of ints.

Each operator has a log, a flat list of rows of four ints. Every compute ends with a row: when it started and ended,
when it received a message from the first queue, and when it emitted one into the first queue behind it. Everything
else has a row of its own, before that of its compute: further messages, other queues, timestamps, work on the
device. One compute of an operator runs at a time, so all rows since the last end belong to the same compute.

Most computes receive one message and emit one. Their two times wait in variables until the row is written at once:
this is the cheapest way found to write them down. The functions that share these variables are made in one
function, `_functions`; a variable of a function around is found faster than an attribute or the item of a list.
Ints in a list are no work for the garbage collector.

The resolver, on its own thread, makes sense of the rows: the n-th message that leaves a queue is the n-th one that
entered it. Where that does not hold (several producers share a queue, or a full queue drops its oldest message), a
label in the queue tells which message it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from headrace._runtime import Message
from headrace.core.ports import IOSpec
from headrace.observe.events.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from headrace.observe.events.gpu_timing import ComputeTimer, StreamTimer
    from headrace.observe.events.records import OperatorInfo
    from headrace.observe.events.taps import ObservedQueue, Tap, UnconnectedTap

__all__ = [
    "COLUMNS",
    "CONTINUE",
    "DROP",
    "FIRST_DISCARD",
    "FIRST_PUT",
    "FIRST_TAKE",
    "GPU",
    "KINDS",
    "REPLAY",
    "TAPS",
    "THREAD",
    "ZERO",
    "NodeRecorder",
]

COLUMNS: Final = 4
"""The ints of a row. The last row of a compute: its start, its end, the time of the message received from the first
queue, the time of the message emitted into the first tap. These two are 0 or less if there is none, or `ZERO`. Any
other row begins with one of the following kinds, which are below 0, and ends with 0."""
ZERO: Final = -1
"""In place of the time 0 of a message, which only a simulated clock shows."""
THREAD: Final = -1
"""The compute runs on another thread than the one before: the thread, 0."""
GPU: Final = -2
"""The compute's work on a stream was timed: the position of the timer, the number of segments."""
DROP: Final = -3
"""A full queue rejected a message: the position of the tap, the time."""
CONTINUE: Final = -4
"""The compute continues with what an earlier one received: 0, 0."""
REPLAY: Final = -5
"""The compute did not take place: a recording of it was replayed: 0, 0."""
FIRST_TAKE: Final = -6
"""A message was received: its label (0 without labels), the time. Each queue of the operator has its own kind: this
one minus a multiple of `KINDS`."""
FIRST_PUT: Final = -7
"""A message was emitted: its acquisition timestamp, the time. Each tap has its own kind, as each queue has."""
FIRST_DISCARD: Final = -8
"""A message was taken because the compute had failed: its label, the time. Each queue has its own kind."""
KINDS: Final = 3
"""The distance between the kinds of two queues, and of two taps."""
TAPS: Final = 1 << 12
"""A label is the number of a message times this, plus the position of its tap among those of the queue."""

Compute: TypeAlias = Callable[..., None]

_ROWS: Final = -2  # in place of a time, if all messages of a compute have rows of their own
_POP = IOSpec.QueuePolicy.POP
_popleft: Any = deque.popleft


class NodeRecorder:
    """Takes the times of one operator's computes.

    Attributes
    ----------
    info
        The operator.
    log
        What happened in its computes, in rows of `COLUMNS` ints.
    timer
        What times its work on the device.
    taps
        The taps behind all its outputs, in order.
    taking, offering
        Return a function that takes a message from a queue of the operator and records it, and one that records a
        message and offers it to the queue behind a tap.
    begin_timing, begin_with
        Begin to time the current compute on a stream, which it is the first to use. Begin with a message that was
        received at a port, if the current compute is timed.
    """

    __slots__ = (
        "_around",
        "_end_replay",
        "_last_thread",
        "begin_timing",
        "begin_with",
        "info",
        "log",
        "now",
        "offering",
        "taking",
        "taps",
        "timer",
    )

    def __init__(self, info: OperatorInfo, now: Callable[[], int], timer: ComputeTimer) -> None:
        self.info = info
        self.now = now
        self.log: list[int] = []
        self.timer = timer
        self.taps: list[Tap | UnconnectedTap] = []
        # The thread that was recorded last.
        self._last_thread = 0
        functions = _functions(self)
        self._around, self._end_replay = functions.around, functions.end_replay
        self.taking, self.offering = functions.taking, functions.offering
        self.begin_timing, self.begin_with = functions.begin_timing, functions.begin_with

    def around(
        self, compute: Compute, notes_threads: bool = False, goes_on: Callable[[], bool] | None = None
    ) -> Compute:
        """Return a compute that takes the times of `compute`.

        Parameters
        ----------
        compute
            The compute.
        notes_threads
            Whether the thread of each compute is recorded.
        goes_on
            Returns whether the next compute continues with what an earlier one received.
        """
        observed = self._around(compute)
        if not notes_threads and goes_on is None:
            return observed
        extend = self.log.extend

        def noting(op_input: Any, op_output: Any, context: Any) -> None:
            if goes_on is not None and goes_on():
                extend((CONTINUE, 0, 0, 0))
            if notes_threads and self._last_thread != get_ident():
                self._last_thread = get_ident()
                extend((THREAD, self._last_thread, 0, 0))
            observed(op_input, op_output, context)

        return noting

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
        rows = [REPLAY, 0, 0, 0]
        if thread and thread != self._last_thread:
            self._last_thread = thread
            rows += (THREAD, thread, 0, 0)
        for position in takes:
            rows += (FIRST_TAKE - KINDS * position, 0, started, 0)
        for position in puts:
            rows += (FIRST_PUT - KINDS * position, NO_TIMESTAMP, ended, 0)
        if timer >= 0:
            rows += (GPU, timer, 1, 0)
        self._end_replay(started, ended, rows)


class _Functions(NamedTuple):
    around: Callable[[Compute], Compute]
    taking: Callable[[ObservedQueue, int], Callable[[], Any]]
    offering: Callable[[Tap, int], _Offering]
    begin_timing: Callable[[StreamTimer], None]
    begin_with: Callable[[Any, Any], None]
    end_replay: Callable[[int, int, list[int]], None]


class _Offering(NamedTuple):
    """Offers a message; returns the number of messages so far, and the largest number that waited."""

    offer: Callable[[Any], None]
    passed_on: Callable[[], int]
    most: Callable[[], int]


def _functions(recorder: NodeRecorder) -> _Functions:
    """Return the functions that run in the computes of an operator.

    Each variable that a function uses from around it costs a little in every call, so what is rare is in functions
    of its own.
    """
    now, extend, timer = recorder.now, recorder.log.extend, recorder.timer
    # When the current compute received and emitted the first message.
    received = emitted = 0
    # Whether the operator uses streams, and whether the current compute is timed on them.
    has_streams = is_timing = False

    def around(compute: Compute) -> Compute:
        def observed(op_input: Any, op_output: Any, context: Any) -> None:
            nonlocal received, emitted, is_timing
            started = now()
            if has_streams and started >= timer.next:
                is_timing = timer.begin(started)
            try:
                compute(op_input, op_output, context)
            finally:
                if is_timing:
                    end_timing()
                extend((started, now(), received, emitted))
                received = emitted = 0

        return observed

    def begin_timing(stream: StreamTimer) -> None:
        nonlocal has_streams, is_timing
        # Not if its work on an earlier stream is not timed: half of the time would be missing.
        if is_timing or not has_streams:
            has_streams = is_timing = True
            stream.begin()

    def end_timing() -> None:
        nonlocal is_timing
        is_timing = False
        for position, segments in enumerate(timer.end()):
            extend((GPU, position, segments, 0))

    def begin_with(item: Any, port: Any) -> None:
        if is_timing:
            for stream in timer.streams:
                stream.receive(item, port)

    def end_replay(started: int, ended: int, rows: list[int]) -> None:
        nonlocal received, emitted
        rows += (started, ended, received, emitted)
        extend(rows)
        received = emitted = 0

    def taking(queue: ObservedQueue, position: int) -> Callable[[], Any]:
        take, labels = _popleft.__get__(queue), queue.labels
        kind = FIRST_TAKE - KINDS * position
        is_first = not position and labels is None

        def popleft_first() -> Any:
            nonlocal received
            item = take()
            if received or is_timing:
                note(item)
            else:
                received = now() or ZERO
            return item

        def popleft() -> Any:
            item = take()
            note(item)
            return item

        def note(item: Any) -> None:
            nonlocal received
            if received or not is_first:
                extend((kind, 0 if labels is None else labels.popleft(), now(), 0))
            else:
                received = now() or ZERO
            if is_timing:
                timer.receive(item, position)

        return popleft_first if is_first else popleft

    def offering(tap: Tap, position: int) -> _Offering:
        behind, is_first = tap.behind, not position
        kind = FIRST_PUT - KINDS * position
        # `Queue.add` records when messages arrive, for those who ask.
        append, limit = (behind.append if behind.arrivals is None else behind.add), behind.limit
        count = most = 0

        def offer_first(item: Any) -> None:
            nonlocal count, emitted
            if emitted or len(behind) >= most or (type(item) is Message and item.details is not None):
                offer(item)
            else:
                count += 1
                # Before the message is added: otherwise it could be received before it was emitted.
                emitted = now() or ZERO
                append(item)

        def offer(item: Any) -> None:
            nonlocal count, most
            count += 1
            waiting = len(behind)
            if waiting < limit:
                most = max(most, waiting + 1)
                note(item)
                append(item)
            else:
                # Not `Queue.offer`: it would add the message if there were room again, and nobody would know.
                extend((DROP, position, now(), 0))
                behind.refuse()

        def note(item: Any) -> None:
            nonlocal emitted
            if is_first and not emitted:
                # All messages of this compute have rows, so that they stay in order.
                emitted = _ROWS
            extend((kind, _timestamp_of(item), now(), 0))

        if behind.lock is None:
            return _Offering(offer_first if is_first else offer, lambda: count, lambda: most)

        lock, labels, pops = behind.lock, behind.labels, behind.policy is _POP
        assert labels is not None
        label = behind.info.taps.index(tap)

        def offer_labelled(item: Any) -> None:
            nonlocal count, label, most
            count += 1
            oldest = None
            with lock:
                if pops or len(behind) < limit:
                    note(item)
                    labels.append(label)
                    label += TAPS
                    append(item)
                    if len(behind) > limit:
                        behind.dropped += 1
                        labels.popleft()
                        oldest = _popleft(behind)
                    most = max(most, len(behind))
                else:
                    extend((DROP, position, now(), 0))
                    behind.refuse()
            del oldest  # only here, without the lock: its finalizer may run any code

        return _Offering(offer_labelled, lambda: count, lambda: most)

    return _Functions(around, taking, offering, begin_timing, begin_with, end_replay)


def _timestamp_of(item: Any) -> int:
    """Return the acquisition timestamp of a message, or `NO_TIMESTAMP`."""
    details = item.details if type(item) is Message else None
    if details is None or details.acq_timestamp is None:
        return NO_TIMESTAMP
    timestamp: int = details.acq_timestamp
    # One that an array of NumPy cannot hold is of no clock.
    return timestamp if NO_TIMESTAMP < timestamp < -NO_TIMESTAMP else NO_TIMESTAMP
