"""The part of an observation that runs in computes: it takes times, and writes rows of ints.

There are three kinds of rows, in lists of their own, from whose fronts the reader's thread takes them. An operator
writes a row for each of its computes. A feed, through which messages come into a queue, writes when each was
emitted, and in which compute. The queue writes in which compute each message left it: it is received when that
compute starts, or when it comes, if that is later. Messages leave a queue in the order in which they came, so the
rows of both ends belong together by their numbers, and nothing travels with a message. Only if several feeds lead
to a queue, their order is written, too. Ints in lists are no work for the garbage collector.

The functions that run in each compute are closures, because Python calls a variable of a function around 25 ns
faster than an attribute, and a compute has ten such calls. They append ints one by one, which takes half as long as
to make a tuple and to extend the list by it. The reader leaves a row that is not complete yet.

They stand around what the runtime calls anyway: the compute of an operator, and what takes a message from a queue
or puts it there. That the runtime writes the rows itself, without these calls, was decided against: it would
receive and emit in two ways, and know what an observer writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from threading import get_ident
from time import process_time_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace._runtime import Envelope
from headrace.core.ports import IOSpec
from headrace.observe.events.records import NO_TIMESTAMP

if TYPE_CHECKING:
    from headrace.core.condition import Ticks
    from headrace.core.error_policy import FaultCounts
    from headrace.observe.events.gpu_timing import ComputeTimer
    from headrace.observe.events.records import OperatorInfo

AT_START = 1 << 62
"""In place of the time at which a message was received: when the compute started."""
DROPPED = NO_TIMESTAMP
"""Added to the time at which a message was dropped, in place of that at which it was received."""

TIMED: Final = 0
"""Its work on the device is timed: the position of the timer, and the number of pieces."""
REPLAYED: Final = 1
"""It did not take place, because it was replayed."""
FAILED: Final = 2
"""It failed for good; it is not tried again."""
DUE: Final = 3
"""It was due: when, and the ticks that were skipped before."""
CPU_TIME: Final = 4
"""How long its thread had the processor, and for how long other threads of the process had one."""

Compute: TypeAlias = Callable[..., None]
_POP = IOSpec.QueuePolicy.POP
_LATEST = IOSpec.QueuePolicy.LATEST
# After as many computes, one of so many is looked at: four calls of the system take some two microseconds.
_CPU_SAMPLE = 16
_popleft: Any = deque.popleft


class NodeRecorder:
    """Records the computes of one operator.

    Attributes
    ----------
    info
        The operator.
    now
        The clock.
    timer
        Takes the times of work on the device, of computes that start at its `next` or later.
    computes
        A row for each compute: its start, its end; during a compute, the last one is not complete.
    threads
        The thread of each compute, if they are noted.
    number
        The number of the current compute, or of the next one.
    is_timing
        Whether the current compute is timed on the device.
    facts
        What is known of some computes besides, in their order: the compute, which fact (`TIMED` and so on), and two
        numbers that belong to it.
    """

    __slots__ = ("computes", "facts", "info", "is_timing", "now", "number", "threads", "timer")

    def __init__(self, info: OperatorInfo, now: Callable[[], int], timer: ComputeTimer) -> None:
        self.info = info
        self.now = now
        self.timer = timer
        # Of any type: compiled code would otherwise convert each int twice.
        self.computes: list[Any] = []
        self.threads: list[Any] = []
        self.facts: list[int] = []
        self.number = 0
        self.is_timing = False

    @property
    def oldest_producer(self) -> int:
        """The first compute from which messages may yet follow; may be read on any thread."""
        return self.number

    @property
    def is_computing(self) -> bool:
        """Whether a compute has begun and not ended; may be read on any thread."""
        return len(self.computes) % 2 == 1  # the reader takes whole rows

    def around(self, compute: Compute, notes_threads: bool = False) -> Compute:
        """Return a compute that records `compute`, with its thread if `notes_threads`."""
        now, computes, threads, timer = self.now, self.computes, self.threads, self.timer

        def run(op_input: Any, op_output: Any, context: Any) -> None:
            started = now()
            computes.append(started)
            try:
                if started >= timer.next:
                    self.is_timing = timer.begin(started)
                compute(op_input, op_output, context)
            except BaseException:
                self.facts += (self.number, FAILED, 0, 0)
                raise
            finally:
                if self.is_timing:
                    self.end_timing()
                # In this order: `TimedStream.others` asks whether there was a compute.
                self.number += 1
                computes.append(now())

        def run_on_thread(op_input: Any, op_output: Any, context: Any) -> None:
            threads.append(get_ident())
            run(op_input, op_output, context)

        return run_on_thread if notes_threads else run

    def note_replay(self, started: int, ended: int, thread: int, timer: int) -> None:
        """Record a compute that was replayed, after its messages.

        Parameters
        ----------
        started, ended
            The times of the compute.
        thread
            The thread; 0 if threads are not recorded.
        timer
            The position of the timer that takes the times on the device; -1 without one.
        """
        if thread:
            self.threads.append(thread)
        if timer >= 0:
            self.facts += (self.number, TIMED, timer, 1)
        self.facts += (self.number, REPLAYED, 0, 0)
        self.computes += (started, ended)
        self.number += 1

    def noting_ticks(self, compute: Compute, ticks: Ticks, offset: int) -> Compute:
        """Return a compute that notes when it was due; `offset` is what the run's clock shows at time 0."""
        skipped = 0

        def run(op_input: Any, op_output: Any, context: Any) -> None:
            nonlocal skipped
            due = self.computes[-1] if ticks.due is None else ticks.due - offset
            self.facts += (self.number, DUE, due, ticks.skipped - skipped)
            skipped = ticks.skipped
            compute(op_input, op_output, context)

        return run

    def noting_cpu_times(self, compute: Compute) -> Compute:
        """Return a compute that notes how long its thread had the processor, at first and now and then."""

        def run(op_input: Any, op_output: Any, context: Any) -> None:
            if self.number % _CPU_SAMPLE and self.number > _CPU_SAMPLE:
                compute(op_input, op_output, context)
                return
            process, began = process_time_ns(), thread_time_ns()
            compute(op_input, op_output, context)
            had = thread_time_ns() - began
            self.facts += (self.number, CPU_TIME, had, max(process_time_ns() - process - had, 0))

        return run

    def noting_failures(self, compute: Compute, counts: FaultCounts) -> Compute:
        """Return a compute that notes whether `compute`, which raises nothing, has given its messages up."""

        def run(op_input: Any, op_output: Any, context: Any) -> None:
            before = counts.given_up
            compute(op_input, op_output, context)
            if counts.given_up != before:
                self.facts += (self.number, FAILED, 0, 0)

        return run

    def end_timing(self) -> None:
        """End to take times on the device."""
        self.is_timing = False
        for position, pieces in self.timer.end():
            self.facts += (self.number, TIMED, position, pieces)


class GeneratorRecorder(NodeRecorder):
    """Records a function that yields: its computes go on with the message that an earlier one received.

    Parameters
    ----------
    find_base
        Returns the compute from which messages of the next compute follow, given its number and the one before.

    Attributes
    ----------
    base
        The compute from which messages that are emitted now follow.
    """

    __slots__ = ("_find_base", "base")

    def __init__(
        self,
        info: OperatorInfo,
        now: Callable[[], int],
        timer: ComputeTimer,
        find_base: Callable[[int, int], int],
    ) -> None:
        super().__init__(info, now, timer)
        self.base = 0
        self._find_base = find_base

    @property
    def oldest_producer(self) -> int:
        """The first compute from which messages may yet follow; may be read on any thread."""
        return self.base

    def around(self, compute: Compute, notes_threads: bool = False) -> Compute:
        """Return a compute that records `compute`, with its thread if `notes_threads`."""
        run = super().around(compute, notes_threads)

        def go_on(op_input: Any, op_output: Any, context: Any) -> None:
            self.base = self._find_base(self.number, self.base)
            run(op_input, op_output, context)

        return go_on


class Receiver:
    """Takes messages from a queue of an operator, and records them.

    The time in a row is `AT_START`, or a time if no compute took the message. Of a message that was discarded,
    because the compute had failed, it is the inverse of the time (``~time``); of one that was dropped, the time and
    `DROPPED`.

    Parameters
    ----------
    recorder
        The recorder of the operator.
    queue
        The queue.

    Attributes
    ----------
    port
        The port of the queue.
    order
        The position of the feed that each message came through, if there are several.
    places
        The number of the message of each row, of a queue from which a join takes: they leave it in any order.
    take_item
        Takes a message, and writes nothing.
    receipts
        A row for each message: when it was received, the compute.
    """

    __slots__ = ("_drops", "_held", "_queue", "_recorder", "order", "places", "port", "receipts", "take_item")

    def __init__(self, recorder: NodeRecorder, queue: Any) -> None:
        self.take_item: Callable[[], Any] = _popleft.__get__(queue)
        self.receipts: list[Any] = []
        self.port: Any = None
        self.order: list[int] = []
        self.places: list[int] | None = None
        self._recorder = recorder
        self._queue = queue
        # The number of messages that were taken and whose row was put off, and when others were dropped since.
        self._held = 0
        self._drops: list[int] = []

    @property
    def is_holding(self) -> bool:
        """Whether messages were taken by an attempt that failed, and are to be received by a later one."""
        return self._held > 0

    def putting_off(self, take: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that takes a message by `take`, of which `receive_held` says when it is received."""

        def take_and_hold() -> Any:
            item = take()
            self._held += 1
            self.begin_with(item)
            return item

        return take_and_hold

    def receive_held(self) -> None:
        """Record that the messages whose row was put off are received in this compute."""
        held, drops, self._held, self._drops = self._held, self._drops, 0, []
        for _ in range(held):
            self.note(AT_START)
        for time in drops:
            self.note(DROPPED + time)

    def drop(self, time: int) -> None:
        """Record that the full queue has dropped a message; the rows are in the order of the messages."""
        if self._held:
            self._drops.append(time)
        else:
            self.note(DROPPED + time)

    def taking(self, take_item: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that takes a message by `take_item` and records that it is received."""
        recorder, receipts = self._recorder, self.receipts

        def take() -> Any:
            item = take_item()
            receipts.append(AT_START)
            receipts.append(recorder.number)
            if recorder.is_timing:
                recorder.timer.receive(item, self.port)
            return item

        def take_of_generator() -> Any:
            item = take()
            assert isinstance(recorder, GeneratorRecorder)
            # Also if the compute began with an earlier message.
            recorder.base = recorder.number
            return item

        return take_of_generator if isinstance(recorder, GeneratorRecorder) else take

    def begin_with(self, item: Any) -> None:
        """Let the compute begin with a message, for the times on the device and for what follows from it."""
        recorder = self._recorder
        if recorder.is_timing:
            recorder.timer.receive(item, self.port)
        if isinstance(recorder, GeneratorRecorder):
            recorder.base = recorder.number

    def note(self, received: int, number: int | None = None) -> None:
        """Record a message that was received elsewhere: the oldest in the queue, or one that a join has taken."""
        if self.places is not None:
            if number is None:
                number = self._queue.absorbed
                self._queue.absorbed += 1
            self.places.append(number)
        self.receipts += (received, self._recorder.number)

    def note_drop(self, number: int) -> None:
        """Record that a join drops a message now."""
        self.note(DROPPED + self._recorder.now(), number)

    def drop_oldest(self) -> Any:
        """Take a message that is dropped now, and return it."""
        self.drop(self._recorder.now())
        return _popleft(self._queue)

    def discard(self) -> Any:
        """Take a message that is not received, and return it."""
        item = _popleft(self._queue)
        self.note(~self._recorder.now())
        return item


class Emitter:
    """Offers the messages of an output to one queue behind it, and records them.

    Parameters
    ----------
    recorder
        The recorder of the operator that emits.
    queue
        The queue.

    Attributes
    ----------
    numbers
        The compute that emitted each message, if it may be another one (`GeneratorRecorder`).
    timestamps
        A row for each message that has an acquisition timestamp: its number, the timestamp.
    rejections
        A row for each message that the full queue rejected: when, the compute.
    rejected
        The number of messages that were rejected.
    most
        The largest number of messages that waited at once.
    queue
        The queue.
    emissions
        A row for each message: when it was emitted, the compute that it follows from.
    number
        The number of messages that came into the queue.
    room
        Up to this length of the queue, there is nothing to note but the emission of a message without details.
    """

    __slots__ = (
        *("_add", "_lock", "_position", "_recorder", "emissions", "most", "number", "numbers"),
        *("queue", "rejected", "rejections", "room", "timestamps"),
    )

    def __init__(self, recorder: NodeRecorder, queue: Any) -> None:
        self.queue = queue
        self.emissions: list[Any] = []
        self.number = self.room = 0
        self.numbers: list[int] | None = [] if isinstance(recorder, GeneratorRecorder) else None
        self.timestamps: list[int] = []
        self.rejections: list[int] = []
        self.rejected = self.most = 0
        self._recorder = recorder
        self._position = len(queue.info.feeds)
        # `Queue.add` records when messages arrive, for those who ask.
        self._add: Callable[[Any], None] = queue.append if queue.arrivals is None else queue.add
        self._lock: Any = nullcontext()
        self.follow()

    def follow(self) -> None:
        """Follow a queue that others emit into, too, from now on, or that has another size."""
        self._lock = self.queue.lock or self._lock
        self.room = 0

    def offering(self) -> Callable[[Any], None]:
        """Return a function that offers a message."""
        recorder, queue, now = self._recorder, self.queue, self._recorder.now
        add, emissions = self._add, self.emissions

        def offer(item: Any) -> None:
            if len(queue) >= self.room or (type(item) is Envelope and item.extra is not None):
                self._offer_and_note(item)
                return
            # Before the message is added: otherwise it could be received before it was emitted.
            emissions.append(now())
            emissions.append(recorder.number)
            self.number += 1
            add(item)

        return offer

    def _offer_and_note(self, item: Any) -> None:
        """Offer a message that has details, or to a queue that is shared, full, or longer than before."""
        queue, oldest, recorder = self.queue, None, self._recorder
        with self._lock:
            now = recorder.now()
            if len(queue) < queue.limit or queue.policy is _POP or queue.policy is _LATEST:
                details = item.details if type(item) is Envelope else None
                if details is not None and details.acq_timestamp is not None:
                    self._note_timestamp(details.acq_timestamp)
                self.note(now)
                self._add(item)
                if len(queue) > queue.limit:
                    queue.dropped += 1
                    queue.receiver.drop(now)
                    oldest = _popleft(queue)
                self.most = max(self.most, len(queue))
                # Two outputs of one operator may lead to a queue, which has no lock then.
                if queue.lock is None and self.numbers is None and len(queue.info.feeds) == 1:
                    self.room = min(self.most, queue.limit)  # which may be less now
            else:
                # Not `Queue.offer`: it would add the message if there were room again, and nobody would know.
                self.rejected += 1
                self.rejections += (now, recorder.number)
                queue.refuse()
        del oldest  # only here, without the lock: its finalizer may run any code

    def _note_timestamp(self, timestamp: int) -> None:
        # An array of NumPy cannot hold every int. A timestamp that it cannot hold is of no clock.
        if NO_TIMESTAMP < timestamp < -NO_TIMESTAMP:
            self.timestamps += (self.number, timestamp)

    def note(self, emitted: int) -> None:
        """Record a message; by itself, one that does not come through the queue."""
        if self.numbers is not None:
            self.numbers.append(self._recorder.number)
        if len(self.queue.info.feeds) > 1:
            self.queue.receiver.order.append(self._position)
        self.emissions += (emitted, self._recorder.oldest_producer)
        self.most = self.most or 1
        self.number += 1
