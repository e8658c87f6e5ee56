"""Watcher: one use of what a run's observation sees."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.core.outcome import Outcome
    from headrace.observe.events.cupti_activity import Activity
    from headrace.observe.events.observation import Observation
    from headrace.observe.events.records import (
        Computes,
        Drops,
        Flows,
        OperatorInfo,
        OutputInfo,
        QueueInfo,
        RunInfo,
        SegmentInfo,
    )

_log = logging.getLogger("headrace.observe")


class Watcher:
    """The base of trackers, traces and loggers: override the methods of interest.

    A watcher is attached to a fragment (`headrace.observe.watch`) and may watch several runs, one after the other.
    An exception raised by a watcher ends the watching, not the run. It is logged, and `end` is still called when
    the run is over.

    ::

        class Longest(Watcher):
            def begin(self, run):
                self.longest = {}

            def computed(self, computes):
                took = int(np.max(computes.ended - computes.started))
                name = computes.operator.name
                self.longest[name] = max(took, self.longest.get(name, 0))


        watch(app, Longest())

    Attributes
    ----------
    period
        The seconds after which it is shown what has happened, if the run does not compute without a pause;
        the least of all watchers counts. Every time costs the run about a millisecond.
    longest_period
        The seconds after which it is shown what has happened in any case, even if that takes more than a
        small part of the time, as with a hundred operators; the least of all watchers counts. It may change
        during a run.
    wants_threads
        Whether the thread of each compute is noted.
    wants_emissions
        Whether computes are shown with what they emitted (`Computes.emissions`).
    wants_every_gpu_time
        Whether every compute's work on the device is timed, even if an operator computes thousands of times
        a second.
    wants_gpu_times
        Whether work on the device is timed; if no watcher wants it, it is not.
    wants_cpu_times
        Whether it is noted of some computes how long their thread had the processor.
    wants_kernels
        Whether `ran` is called with every kernel and copy: of a simulated device, and of a GPU if the package
        ``cupti-python`` is installed. This slows down every launch there.
    wants_data
        Whether `emitted` and `received` are called with every message; this slows down every message.
    spans_parts
        Whether it watches all parts of a run in several processes together, from the driver. Otherwise each process
        has a watcher of its own, which watches its part.
    observation
        The observation of the run that it watches, or of the last one.
    """

    period = 0.25
    longest_period = 2.0
    wants_threads = False
    wants_emissions = False
    wants_every_gpu_time = False
    wants_gpu_times = True
    wants_cpu_times = False
    wants_kernels = False
    wants_data = False
    spans_parts = False

    observation: Observation | None = None

    def catch_up(self) -> None:
        """Note everything that can be noted now; may be called from any thread."""
        if self.observation is not None:
            self.observation.catch_up()

    def begin(self, run: RunInfo) -> None:
        """Begin to watch a run; called before its operators are started."""

    def around(self, operator: OperatorInfo, compute: Callable[..., None]) -> Callable[..., None]:
        """Return what is called in place of an operator's compute; called when the operators have started.

        The compute itself costs nothing. A function around it runs on the thread that computes, in the time of the
        compute.
        """
        return compute

    def around_replays(self, segment: SegmentInfo, replay: Callable[..., None]) -> Callable[..., None]:
        """Return what is called in place of a captured segment's replays, in which no operator computes."""
        return replay

    def changed(self, run: RunInfo) -> None:
        """Note that `run` has more operators or flows than before; flows that were removed are still there.

        Called on the reader's thread, as are `computed`, `ran`, `flowed` and `resolved`, before anything that new
        operators computed is shown.
        """

    def computed(self, computes: Computes) -> None:
        """Note finished computes of one operator, in their order; their work on the device is complete."""

    def ran(self, kernels: list[Activity]) -> None:
        """Note kernels and copies that the device has completed, in the order in which they began."""

    def messages_dropped(self, drops: list[Drops]) -> None:
        """Note messages that nobody receives: dropped by a full queue, or by a join."""

    def flowed(self, flows: list[Flows]) -> None:
        """Note messages that reached the end of their paths, all at the same operator."""

    def resolved(self) -> None:
        """Do what remains after a round, in which computes of several operators were noted."""

    def end(self, outcome: Outcome | None) -> None:
        """End: the run is over, and every compute was noted."""

    def watches(self, port: OutputInfo | QueueInfo) -> bool:
        """Return whether it wants to see the messages of a port, given that it `wants_data`."""
        return True

    def emitted(self, output: OutputInfo, item: Any, time: int) -> None:
        """Note a message at the moment it is emitted, on the thread that computes.

        `item` is the emitted object, or the envelope in which it travels with fences and metadata.
        """

    def received(self, queue: QueueInfo, item: Any, time: int) -> None:
        """Note a message at the moment it is received, on the thread that computes."""


class WatcherGroup:
    """The watchers of one run, which hear of it together.

    Attributes
    ----------
    begun
        Those that have begun, and have not ended.
    failed
        Those that raised, and are told of nothing but the end.
    """

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers
        self.begun: list[Watcher] = []
        self.failed: list[Watcher] = []

    def begin(self, observation: Any, run: RunInfo) -> None:
        """Let them begin; if one raises, the others end."""
        for watcher in self._watchers:
            watcher.observation = observation
            try:
                watcher.begin(run)
            except BaseException:
                # The run does not take place, so nothing else will end those that have begun.
                self._end(None)
                raise
            self.begun.append(watcher)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method of each."""
        for watcher in [each for each in self.begun if each not in self.failed]:
            try:
                getattr(watcher, method)(*arguments)
            except Exception:
                _log.exception("%s raised, and watches no more", type(watcher).__name__)
                self.failed.append(watcher)

    def show(self, method: str, found: list[Any]) -> bool:
        """Call a method of each with what was found, if anything was; return whether it was."""
        if found:
            self.tell(method, found)
        return bool(found)

    def end(self, outcome: Outcome | None) -> None:
        """End them, each of them whatever the others do, and raise the first error of one that had not failed."""
        error = self._end(outcome)
        if error is not None:
            raise error

    def _end(self, outcome: Outcome | None) -> BaseException | None:
        first: BaseException | None = None
        for watcher in self.begun:
            try:
                watcher.end(outcome)
            except BaseException as error:
                if first is None and not (watcher in self.failed and isinstance(error, Exception)):
                    first = error
                else:
                    _log.exception("%s raised at the end of the run", type(watcher).__name__)
        self.begun = []
        return first
