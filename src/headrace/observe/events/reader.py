"""Reader: reads what computes recorded, on its own thread, and shows it to the watchers.

In each round it reads the rows that are there. A compute is shown when the device has completed its work, which is
asked for and never waited for, and when the computes whose messages it received were shown.

A round costs half a millisecond, and half a microsecond for each compute. The run may pay more: NumPy
gives up the interpreter for every array of more than 500 elements, and a thread that launches kernels gives it up
at every launch, so both may wait for each other many times in a round. So there are as few rounds as the watchers
allow (`Watcher.period`), and they take a small part of the time: in a run that computes without a pause, most is
read at the end, unless too much would wait.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from headrace import gpu, waits
from headrace.observe.events.flow_tables import FlowTables
from headrace.observe.events.node_log import NodeLog

if TYPE_CHECKING:
    from headrace.observe.events.cupti_activity import CuptiActivity
    from headrace.observe.events.gpu_timing import DeviceTime
    from headrace.observe.events.queues import Feed
    from headrace.observe.events.recorder import NodeRecorder
    from headrace.observe.events.records import RunInfo
    from headrace.observe.events.simulated_activity import SimulatedActivity
    from headrace.observe.events.watchers import WatcherGroup

_PART = 0.01  # of the time that rounds take at most, where their pauses are shorter than
_LONGEST = 2.0  # seconds, where no watcher says how long
_AT_ONCE = 25_000  # computes that are read in a round, of all operators: some 10 ms
_MOST = 250_000  # computes in a log from which on all are read: some 40 MB
_log = logging.getLogger("headrace.observe")


class Change(NamedTuple):
    """What is new in the graph: the recorders of operators, and feeds."""

    recorders: Sequence[NodeRecorder]
    feeds: Sequence[Feed]


class Reader:
    """Reads computes and shows them to watchers.

    Parameters
    ----------
    watchers
        They see every compute, and the messages that reached the end of a path.
    run
        The observed run.
    graph
        The recorders, one for each operator, and the feeds between them.
    times
        The clocks of the devices in use; operators that begin to use a stream add to it.
    kernels
        Where the kernels and copies come from, if a watcher wants them.

    Attributes
    ----------
    changes
        The changes of the graph that it does not know yet; any thread may append one.
    known_until
        The time up to which all computes were shown.
    """

    def __init__(
        self,
        watchers: WatcherGroup,
        run: RunInfo,
        graph: Change,
        times: dict[int, DeviceTime],
        kernels: CuptiActivity | SimulatedActivity | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.changes: deque[Change] = deque()
        self._watchers = watchers
        self._period = min((watcher.period for watcher in watchers.begun), default=_LONGEST)
        self._run = run
        self._times = times
        self._kernels = kernels
        self._now, self.known_until = now, run.started
        emissions = any(watcher.wants_emissions for watcher in watchers.begun)
        self._new_log = partial(NodeLog, shows_emissions=emissions)
        self._logs: list[NodeLog] = []
        self._add(graph)
        self._tables = FlowTables(run)
        self._is_over = threading.Event()
        # Held in a round: by the thread, or by whoever wants recent figures, which may be a signal handler.
        self._lock = threading.RLock()
        self._round_on: int | None = None
        self._thread = threading.Thread(target=self._work, name="headrace observe", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def finish(self) -> None:
        """Read everything that remains; the device is idle."""
        self._is_over.set()
        if self._thread.ident is not None:
            waits.join(self._thread)
        with self._lock:
            while self._round(sys.maxsize, is_last=True):
                pass

    def catch_up(self) -> None:
        """Read what can be read now; may be called from any thread."""
        # A watcher that asks for figures is called in a round, on whichever thread that is.
        if not self._is_over.is_set() and self._round_on != threading.get_ident():
            with self._lock:
                self._round(sys.maxsize)

    def _work(self) -> None:
        pause = self._period
        while not waits.wait(self._is_over, pause):
            began = time.perf_counter()
            try:
                with self._lock:
                    is_long = any(log.length > _MOST for log in self._logs)
                    self._round(sys.maxsize if is_long else _AT_ONCE // max(len(self._logs), 1) + 1)
                    for device_time in tuple(self._times.values()):
                        device_time.refresh()
            except Exception:  # the device has failed, which the run itself raises
                _log.debug("reading was interrupted", exc_info=True)
            took = time.perf_counter() - began
            pause = self._pause_after(took)

    def _pause_after(self, took: float) -> float:
        """Return the pause after a round that took so long."""
        longest = min((watcher.longest_period for watcher in self._watchers.begun), default=_LONGEST)
        return max(self._period, min(took / _PART, longest))

    def _round(self, most: int, is_last: bool = False) -> bool:
        """Read what can be read, and return whether there was anything."""
        self._round_on = threading.get_ident()
        try:
            with ExitStack() as devices:
                for device_id in tuple(self._times):
                    devices.enter_context(gpu.on_device(device_id))
                return self._read(most, is_last)
        finally:
            self._round_on = None

    def _read(self, most: int, is_last: bool) -> bool:
        read_at = self._now()
        # Before their messages are read: no others follow from earlier computes.
        oldest = [(log, log.oldest_producer) for log in self._logs]
        # Consumers first: the producers of what they have received have then recorded that, too.
        for log in reversed(self._logs):
            log.read(most)
        # Only here: a change is announced before anything is written that follows from it.
        if self.changes:
            self._follow()
            return True  # to be shown in the next round, with what is new
        found = False
        if self._kernels is not None:
            self._watchers.show("ran", self._kernels.take(is_last))
        for log in self._logs:
            log.read_gpu_times(is_last)
            batch = log.take_ready()
            if batch is None:
                continue
            found = True
            self._watchers.tell("computed", batch)
            self._watchers.show("flowed", self._tables.add(batch))
        self.known_until = max(
            self.known_until, min((log.known_until(read_at) for log in self._logs), default=read_at)
        )
        flows = self._tables.close_cycles({log.info: log.shown for log in self._logs})
        found |= self._watchers.show("flowed", flows)
        if found:
            for log in self._logs:
                log.forget_received()
            drops = [each for log in self._logs for each in log.take_drops()]
            self._watchers.show("messages_dropped", drops)
            # Where rows are left unread, the last messages that were read were not shown, and keep their ways.
            for log, producer in oldest:
                self._tables.forget(log.info, producer, log.producers)
            self._watchers.tell("resolved")
        return found

    def _follow(self) -> None:
        """Learn how the graph has changed."""
        while self.changes:
            change = self.changes.popleft()
            self._run.join([recorder.info for recorder in change.recorders])
            self._add(change)
        self._watchers.tell("changed", self._run)

    def _add(self, change: Change) -> None:
        """Read what new operators record, and what flows through new feeds."""
        self._logs += [self._new_log(recorder) for recorder in change.recorders]
        logs = {log.info: log for log in self._logs}
        for feed in change.feeds:
            logs[feed.output.operator].add_feed(feed, logs[feed.behind.info.operator])
        order = TopologicalSorter({log: log.producers_before for log in self._logs})
        self._logs = list(order.static_order())
