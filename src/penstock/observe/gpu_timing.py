"""GPU times of computes, from timed events on the operators' streams.

An operator's time on the device is its own: it begins when its stream has passed the work that it waits for, and
ends with the last work that the compute submitted. So an event is recorded after each wait, and one at the end. If
the operator waits again in the middle of a compute, the time of that wait does not count: the compute then has
several segments. If its compute waits for nothing, the time begins when it first receives something, or with the
compute if there is nothing to receive.

Between the first event and the first kernel lies the time in which the host prepares the launch. An idle device
waits then, and this counts as time of the operator: some ten microseconds, or more if threads compete for the
interpreter. For a kernel of 100 µs this matters; kernels by themselves are what CUPTI shows (`cupti_activity`).

Nothing here waits for the device. The resolver reads the times when the events are complete, and gives the events
back. Two events a compute, and reading them, cost several microseconds of the processor. An operator that computes
thousands of times a second therefore has some of its computes timed, evenly spread, and the others not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock import gpu
from penstock._runtime import Message

if TYPE_CHECKING:
    from penstock._runtime import ManagedStream
    from penstock.observe.records import StreamInfo

__all__ = ["DeviceTime", "SimulatedTime", "StreamTimer"]


class StreamTimer:
    """Records timed events around an operator's work on one stream.

    Only the thread that runs the operator uses it, except for `segments`, from which the resolver takes.

    Attributes
    ----------
    segments
        The events at the beginning and end of each piece of work, oldest first.
    is_timing
        Whether the current compute is timed.
    """

    __slots__ = (
        "_began",
        "_count",
        "_events",
        "_is_sampled",
        "_next",
        "_queues",
        "_record",
        "_wait",
        "is_timing",
        "managed",
        "segments",
        "stream",
        "time",
    )

    def __init__(
        self, stream: StreamInfo, managed: ManagedStream, time: DeviceTime, queues: tuple[Any, ...]
    ) -> None:
        self.stream = stream
        self.managed = managed
        self.time = time
        self.segments: deque[tuple[Any, Any]] = deque()
        self._record = managed.record
        self._wait = managed.wait
        self._events = time.events
        self._queues = queues
        self._is_sampled = time.is_sampled
        self._began: Any = None
        self._count = 0
        # From when on a compute is timed again.
        self._next = -(1 << 62)
        self.is_timing = False
        managed.wait = self.wait

    def begin_compute(self, now: int) -> None:
        """Begin to time a compute, unless others were timed just before or events are short."""
        if self._is_sampled:
            if now < self._next or len(self._events) < _FEW:
                return
            self._next = max(self._next, now - _BURST) + _INTERVAL
        self.is_timing = True
        for queue in self._queues:
            if queue:
                return  # `receive` or `wait` begins
        self._begin()

    def begin_now(self) -> None:
        """Begin to time in the middle of a compute, in which the stream is first used."""
        self.is_timing = True
        self._begin()

    def receive(self, item: Any, port: Any) -> None:
        """Begin with a received message, unless the stream will wait for it and begin then."""
        if not self.is_timing or self._began is not None:
            return
        if type(item) is Message and port.own is self.managed:
            fences = item.fences
            if item.more_fences is not None or (
                fences is not None and fences.stream is not self.managed and item.number > fences.completed
            ):
                return
        self._begin()

    def wait(self, event: Any) -> None:
        """Make the stream wait, and leave the time of the wait out."""
        if not self.is_timing:
            self._wait(event)
            return
        if self._began is not None:
            self._end()
        self._wait(event)
        self._begin()

    def end_compute(self) -> int:
        """End to time a compute, and return the number of its segments."""
        self.is_timing = False
        if self._began is not None:
            self._end()
        count, self._count = self._count, 0
        return count

    def take(self) -> tuple[int, int]:
        """Return when the oldest piece of work began and ended, and use its events again."""
        events = self.segments.popleft()
        times = self.time.times(*events)
        self.time.events.extend(events)
        return times

    def close(self) -> None:
        """Time no more."""
        self.managed.wait = self._wait

    def _begin(self) -> None:
        event = self._free_event()
        self._record(event)
        self._began = event

    def _end(self) -> None:
        event = self._free_event()
        self._record(event)
        self.segments.append((self._began, event))
        self._began = None
        self._count += 1

    def _free_event(self) -> Any:
        try:
            return self._events.popleft()
        except IndexError:
            return self.time.create_event()


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
    """

    is_sampled = True
    """Whether only some computes of an operator are timed if there are very many."""

    def __init__(self, device_id: int, now: Callable[[], int]) -> None:
        self.device_id = device_id
        self._now = now
        self.error = 0
        self._reference: Any = None
        self._reference_at = 0
        self.events: deque[Any] = deque()
        self._created = 0
        self.add_events()
        with gpu.on_device(device_id):
            self._stream = gpu.Device(device_id).create_stream()
        self.synchronize()

    def create_event(self) -> Any:
        """Create a timed event."""
        with gpu.on_device(self.device_id):
            return gpu.Device(self.device_id).create_event(gpu.EventOptions(timing_enabled=True))

    def add_events(self) -> None:
        """Create more events if few are free: here, not in a compute, where it would take its time."""
        if len(self.events) >= _SPARE or self._created >= _MOST:
            return
        options = gpu.EventOptions(timing_enabled=True)
        with gpu.on_device(self.device_id):
            create = gpu.Device(self.device_id).create_event
            self.events.extend([create(options) for _ in range(_SPARE)])
        self._created += _SPARE

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
        width, self._reference_at, self._reference = tightest
        self.error = width // 2

    def times(self, began: Any, ended: Any) -> tuple[int, int]:
        """Return when two completed events were reached, on the host's time line."""
        at = self._reference_at + round((began - self._reference) * 1e6)
        # Not the distance of `ended` from the reference: a short distance is more exact.
        return at, at + round((ended - began) * 1e6)

    def refresh(self) -> None:
        """Create events if few are free, and make a new reference if the last one is old."""
        self.add_events()
        if self._now() - self._reference_at > _REFRESH:
            self.synchronize()

    def close(self) -> None:
        """Release the stream and the events."""
        self._reference = None
        self.events.clear()
        self._stream.close()


class SimulatedTime(DeviceTime):
    """The clock of a simulated device whose time is the run's: its events tell their times.

    Every compute is timed: that takes no simulated time, and the figures are the same in every run.
    """

    is_sampled = False

    def synchronize(self) -> None:
        """Do nothing: it is one clock."""

    def times(self, began: Any, ended: Any) -> tuple[int, int]:
        """Return when two completed events were reached."""
        return began.reached_at, ended.reached_at

    def refresh(self) -> None:
        """Create events if few are free."""
        self.add_events()


_INTERVAL = 1_000_000  # nanoseconds between two computes that are timed, in the long run
_BURST = 20_000_000  # but in so many nanoseconds, as many as there would be room for
_SPARE = 256  # events that are created at once, when fewer are free
_MOST = 16_384  # events in all
_FEW = 16  # free events with which no compute begins to be timed
_TRIES = 8
_REFRESH = 2_000_000_000  # nanoseconds: 24 bits resolve 2 s to 0.1 µs
