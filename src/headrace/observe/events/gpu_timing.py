"""GPU times of computes, from timed events on the operators' streams.

An operator's time on the device is its own: it begins when its stream has passed the work that it waits for, and
ends with the last work that the compute submitted. So an event is recorded after each wait, and one at the end. If
the operator waits again in the middle of a compute, the time of that wait does not count: the compute then has
several pieces. If its compute waits for nothing, the time begins when it first receives something, or with the
compute if there is nothing to receive.

Operators may share a stream. Work of the others lies before the first event or after the last one, unless they
compute at the same time on other threads. A piece is not alone then, and its time is a bound (`TimedStream`).

Between the first event and the first kernel lies the time in which the host prepares the launch. If the device
reaches the event only after the compute has returned, all of the work was launched by then, and the time is exact.
An idle device reaches it at once and waits for the host. The time is a bound then: too long by some ten
microseconds, or by more if threads compete for the interpreter. The reader of the times tells the two apart from
times that it has anyway. No call of the driver tells when a kernel begins, and libraries have no hook before their
first launch: one before the first allocation would miss kernels that need none. CUPTI knows (`cupti_activity`).
Holding the stream until all is launched would be exact, too, but delays the frames that it times.

Nothing here waits for the device. The times are read when the events are complete, and the events are used again.
The reader reads them, if few wait. Each of its calls to the driver gives up the interpreter, though, and a thread
that launches kernels does, too: both would wait for each other at every call. So where many wait, because an
operator computes often, its own computes read them, a few at a time.

Two events a compute, and reading them, cost some ten microseconds: each of these calls gives up the interpreter. An
operator that computes thousands of times a second therefore has some of its computes timed, and the others pay a
comparison (`Sampling`).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import gpu, waits
from headrace._runtime import Envelope

if TYPE_CHECKING:
    from headrace._runtime import ManagedStream
    from headrace.observe.events.recorder import NodeRecorder, Receiver
    from headrace.observe.events.records import StreamInfo

_log = logging.getLogger("headrace.observe")

Piece: TypeAlias = "tuple[Any, Any, Any, deque[None] | None, bool]"
"""The events at the beginning and the end of work, one that is complete when both are, if they are not free
afterwards the entries of times that were not read, and whether no work of others lies between the events."""


class Sampling:
    """Chooses which computes are timed on the device, evenly in the long run.

    Up to 1,000 computes a second all are timed. If there are more, 1,000 are timed in a second; if there are more
    than 2,000, which are short, 50 are. How often an operator computes is seen from the compute that follows a
    timed one. A burst is timed as a whole.

    Attributes
    ----------
    next
        From when on `takes` has to be asked.
    """

    __slots__ = ("_asked", "_credit", "_follows", "_interval", "next")

    def __init__(self) -> None:
        self.next = _ALWAYS
        self._interval = _INTERVAL_OF_MANY
        # How many may be chosen, when this was counted, and whether the next compute follows one that was chosen.
        self._credit: float = _BURST
        self._asked = 0
        self._follows = False

    def takes(self, now: int) -> bool:
        """Return whether a compute that begins now is chosen."""
        passed = now - self._asked
        self._asked = now
        if self._follows:
            self._interval = _INTERVAL if passed >= _MANY else _INTERVAL_OF_MANY
        self._credit = min(self._credit + passed / self._interval, _BURST)
        self._follows = self._credit >= 1
        if self._follows:
            self._credit -= 1  # and the next compute asks again, whenever it begins
        else:
            self.next = now + int((1 - self._credit) * self._interval) + 1
        return self._follows


class ComputeTimer(Sampling):
    """Times the work of an operator's computes on its streams, or of some of them.

    Attributes
    ----------
    streams
        The timers of all streams that the operator has used, in replays too.
    in_use
        The timers of the streams that its computes use.
    queues
        The queues of the operator's inputs.
    retried
        The receivers of those whose messages may be received by a later attempt.
    """

    __slots__ = ("in_use", "queues", "retried", "streams")

    def __init__(self) -> None:
        super().__init__()
        self.next = sys.maxsize
        self.streams: list[Timer] = []
        self.in_use: list[StreamTimer] = []
        self.queues: Sequence[Any] = ()
        self.retried: Sequence[Receiver] = ()

    def add(self, stream: StreamTimer) -> None:
        """Time the work on another stream."""
        if not self.in_use:
            self.next = _ALWAYS
        self.in_use.append(stream)
        self.streams.append(stream)

    def begin(self, now: int) -> bool:
        """Begin to time a compute; return False if it is not, or if the device is too far behind."""
        if self.in_use[0].time.is_sampled and (
            not self.takes(now) or any(len(stream.pieces) >= _MOST for stream in self.in_use)
        ):
            return False
        # If there is something to receive, the time begins when it is received, or has been waited for. What an
        # earlier attempt has received is there already.
        receives = any(self.queues) and not any(each.is_holding for each in self.retried)
        for stream in self.in_use:
            stream.begin(receives)
        return True

    def receive(self, item: Any, port: Any) -> None:
        """Begin with a message, received at a port."""
        for stream in self.in_use:
            stream.receive(item, port)

    def end(self) -> list[tuple[int, int]]:
        """End to time a compute; return the position of each stream, and the number of pieces on it."""
        return [(self.streams.index(stream), stream.end()) for stream in self.in_use]


class Timer:
    """The times of an operator's work on one stream, or in replays.

    Parameters
    ----------
    stream
        The stream in the observation.
    time
        The clock of the device.

    Attributes
    ----------
    pieces
        The work whose times were not read yet, oldest first.
    times
        When each earlier piece began and ended, and whether it was alone; None if the device has failed.
    is_exact
        Whether all times begin with the work itself. Otherwise an idle device may have waited for the host.
    may_be_exact
        Whether the times of work that was launched in time, and was alone, are exact.
    """

    __slots__ = ("_reading", "is_exact", "may_be_exact", "pieces", "stream", "time", "times")

    def __init__(self, stream: StreamInfo, time: DeviceTime) -> None:
        self.stream = stream
        self.time = time
        self.is_exact = False
        self.may_be_exact = True
        self.pieces: deque[Piece] = deque()
        self.times: deque[tuple[int, int, bool] | None] = deque()
        self._reading = threading.Lock()

    def read(self, is_last: bool = False) -> None:
        """Read the times of work that the device has completed; `is_last` if it is idle or has failed."""
        with self._reading:
            pieces = self.pieces
            # Computes add pieces meanwhile. The last piece that is there now answers for many of them.
            count = len(pieces)
            are_done = is_last or (count > 0 and pieces[count - 1][2].is_done)
            for _ in range(count):
                if not are_done and not pieces[0][2].is_done:
                    return
                self._read_first(is_last)

    @waits.shielded
    def read_some(self) -> None:
        """Read the times of the oldest pieces of work, if they are complete and nobody else reads."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            # One question for all of them: the stream reaches the last one last.
            if len(self.pieces) >= _AT_ONCE and self.pieces[_AT_ONCE - 1][2].is_done:
                for _ in range(_AT_ONCE):
                    self._read_first(is_last=False)
        except Exception:  # the device has failed, or is not current on this thread: the reader finds out
            _log.debug("no GPU times for a compute of %r", self.stream.operator.name, exc_info=True)
        finally:
            self._reading.release()

    def _read_first(self, is_last: bool) -> None:
        began, ended, _, unread, is_alone = self.pieces[0]
        times: tuple[int, int, bool] | None = None
        try:
            times = (*self.time.times(began, ended), is_alone)
        except Exception as error:
            if not is_last:
                raise
            _log.debug("no GPU times for a compute of %r: %s", self.stream.operator.name, error)
        self.pieces.popleft()
        self.times.append(times)
        if unread is None:
            self.time.events.extend((began, ended))
        else:
            unread.popleft()


class TimedStream:
    """A stream whose work is timed, and the operators that work on it.

    Parameters
    ----------
    managed
        The stream.

    Attributes
    ----------
    timers
        The timers of the operators that use it now; a list that does not change.
    """

    __slots__ = ("_lock", "_timing", "_wait", "managed", "timers")

    def __init__(self, managed: ManagedStream) -> None:
        self.managed = managed
        self.timers: list[StreamTimer] = []
        self._wait = managed.wait
        # The timers of computes that are timed now, by their threads.
        self._timing: dict[int, StreamTimer] = {}
        self._lock = threading.Lock()

    def add(self, timer: StreamTimer) -> None:
        """Note that an operator uses the stream."""
        with self._lock:
            self.timers = [*self.timers, timer]

    def begin(self, timer: StreamTimer) -> None:
        """Leave out the time of waits in a compute on this thread."""
        with self._lock:
            self._timing[get_ident()] = timer
            self.managed.wait = self.wait

    def end(self) -> None:
        """End that; without a timed compute, a wait costs nothing more."""
        with self._lock:
            self._timing.pop(get_ident(), None)
            if not self._timing:
                self.managed.wait = self._wait

    def wait(self, event: Any) -> None:
        """Make the stream wait, for the compute on this thread."""
        timer = self._timing.get(get_ident())
        if timer is None:
            self._wait(event)
        else:
            timer.wait(event, self._wait)

    def others(self, recorder: NodeRecorder) -> list[tuple[bool, int]]:
        """Return whether each other operator computes, and the number of its compute.

        An operator that ends a compute raises the number first, and is asked for it last: what is the same twice,
        with nobody computing, tells that none of them has launched anything in between.
        """
        timers = self.timers
        if len(timers) == 1:
            return []
        return [
            (timer.recorder.is_computing, timer.recorder.number)
            for timer in timers
            if timer.recorder is not recorder
        ]

    def close(self) -> None:
        """Do not time the stream any more."""
        self.managed.wait = self._wait


class StreamTimer(Timer):
    """Records timed events around an operator's work on one stream.

    Only the thread that runs the operator uses it, except for `read`.

    Parameters
    ----------
    stream
        The stream in the observation.
    timed
        The stream, with the others who use it.
    recorder
        The recorder of the operator.
    time
        The clock of the device.

    Attributes
    ----------
    managed
        The stream.
    """

    __slots__ = ("_began", "_count", "_others", "_timed", "managed", "recorder")

    def __init__(
        self,
        stream: StreamInfo,
        timed: TimedStream,
        recorder: NodeRecorder,
        time: DeviceTime,
    ) -> None:
        super().__init__(stream, time)
        self.managed = timed.managed
        self.recorder = recorder
        self._timed = timed
        self._began: Any = None
        self._count = 0
        # What the other operators on the stream did when the compute began; None if one of them computed.
        self._others: list[tuple[bool, int]] | None = None
        timed.add(self)

    def begin(self, receives: bool = False) -> None:
        """Begin to time a compute; if it receives something, `receive` or `wait` begins."""
        self._timed.begin(self)
        others = self._timed.others(self.recorder)
        self._others = None if others and any(computes for computes, _ in others) else others
        if not receives:
            self._began = self._mark()

    def receive(self, item: Any, port: Any) -> None:
        """Begin with a received message, unless the stream will wait for it and begin then."""
        if self._began is not None:
            return
        if type(item) is Envelope and port.own is self.managed:
            fences = item.fences
            if item.more_fences is not None or (
                fences is not None and fences.stream is not self.managed and item.number > fences.completed
            ):
                return
        self._began = self._mark()

    def wait(self, event: Any, wait: Callable[[Any], None]) -> None:
        """Make the stream wait, and leave the time of the wait out."""
        self._end()
        wait(event)
        self._began = self._mark()

    def end(self) -> int:
        """End to time a compute, and return the number of its pieces."""
        self._timed.end()
        self._end()
        if len(self.pieces) > self.time.most_unread:
            self.read_some()
        count, self._count = self._count, 0
        return count

    def _end(self) -> None:
        if self._began is not None:
            ended = self._mark()
            is_alone = self._timed.others(self.recorder) == self._others
            self.pieces.append((self._began, ended, ended, None, is_alone))
            self._began = None
            self._count += 1

    def _mark(self) -> Any:
        """Record an event on the stream, and return it."""
        try:
            event = self.time.events.popleft()
        except IndexError:
            event = self.time.create_event()
        self.managed.record(event)
        return event


class DeviceTime:
    """The clock of a device beside the host's.

    The driver tells the time of an event only as its distance from another one, as a float of milliseconds with 24
    bits. So there is a reference event, renewed every few seconds to keep distances short. When it is made, the
    host's time is read before its record and after its completion, on a stream without other work; the tightest of
    several tries counts.

    Parameters
    ----------
    device_id
        The number of the device.
    now
        The host's clock.

    Attributes
    ----------
    events
        Timed events that are free.
    error
        The largest possible error of the last reference, in nanoseconds.
    is_sampled
        Whether only some computes of an operator are timed if there are very many.
    most_unread
        The number of pieces of work on a stream whose times the reader reads; if there are more, computes
        do.
    """

    is_sampled = True
    most_unread = 8

    def __init__(self, device_id: int, now: Callable[[], int]) -> None:
        self.device_id = device_id
        self._now = now
        self.error = 0
        # An event, and the host's time when it was reached: together, because any thread may read it.
        self._reference: tuple[Any, int]
        self.events: deque[Any] = deque()
        with gpu.on_device(device_id):
            self._stream = gpu.Device(device_id).create_stream()
        self.synchronize()

    @property
    def margin(self) -> int:
        """By how much later the device must reach a point than the host left it for all to be launched by then."""
        return self.error + _LATENCY

    def create_event(self) -> Any:
        """Create a timed event."""
        with gpu.on_device(self.device_id):
            return gpu.Device(self.device_id).create_event(gpu.EventOptions(timing_enabled=True))

    def add_events(self) -> None:
        """Create events for another stream, at once: later this would take time of its computes."""
        self.events.extend([self.create_event() for _ in range(_EVENTS)])

    def synchronize(self) -> None:
        """Make a new reference: read both clocks at the same moment."""
        tightest: tuple[int, int, Any] | None = None
        for _ in range(_TRIES):
            event = self.create_event()
            before = self._now()
            self._stream.record(event)
            event.sync()
            after = self._now()
            if tightest is None or after - before < tightest[0]:
                tightest = (after - before, (before + after) // 2, event)
        assert tightest is not None
        width, at, event = tightest
        self._reference = event, at
        self.error = width // 2

    def times(self, began: Any, ended: Any) -> tuple[int, int]:
        """Return when two completed events were reached, on the host's time line."""
        reference, reference_at = self._reference
        at = reference_at + round((began - reference) * 1e6)
        # Not the distance of `ended` from the reference: a short distance is more exact.
        return at, at + round((ended - began) * 1e6)

    def refresh(self) -> None:
        """Make a new reference if the last one is old."""
        if self._now() - self._reference[1] > _REFRESH:
            self.synchronize()

    def close(self) -> None:
        """Release the stream and the events."""
        del self._reference
        self.events.clear()
        self._stream.close()


class SimulatedTime(DeviceTime):
    """The clock of a simulated device, whose events tell when they were reached.

    If its time is the run's, it is one clock. Every compute is timed then: that takes no simulated time, and the
    figures are the same in every run. Beside the host's clock, the device's time may stand still while the program
    works, so a reference would be wrong soon. But its events also tell the host's time.

    Parameters
    ----------
    is_beside_host
        Whether the run's clock is the host's.
    """

    def __init__(self, device_id: int, now: Callable[[], int], is_beside_host: bool) -> None:
        self._is_beside_host = is_beside_host
        self.is_sampled = is_beside_host
        self.most_unread = DeviceTime.most_unread if is_beside_host else sys.maxsize
        super().__init__(device_id, now)

    def synchronize(self) -> None:
        """Compare the two clocks of the host; many systems have only one."""
        self._reference = None, time.perf_counter_ns() - time.monotonic_ns()

    def times(self, began: Any, ended: Any) -> tuple[int, int]:
        """Return when two completed events were reached."""
        if not self._is_beside_host:
            return began.reached_at, ended.reached_at
        end = ended.reached_at_wall + self._reference[1]
        return end - (ended.reached_at - began.reached_at), end

    def refresh(self) -> None:
        """Do nothing: the distance of the clocks does not change."""


_MANY = 500_000  # nanoseconds from one compute to the next; if there are less, there are many
_INTERVAL = 1_000_000  # nanoseconds between two computes that are timed, in the long run
_INTERVAL_OF_MANY = 20_000_000
_BURST = 20  # computes that are timed at once, if none was for a while
_EVENTS = 32  # events that are created for a stream at once
_MOST = 512  # pieces of work of which the device is behind with which no compute is timed
_AT_ONCE = 4  # pieces of work whose times a compute reads
_LATENCY = 10_000  # nanoseconds from a launch until an idle device begins with it
_TRIES = 8
_REFRESH = 2_000_000_000  # nanoseconds: 24 bits resolve 2 s to 0.1 µs
_ALWAYS = -(1 << 62)  # before every time
