"""Observation: how a run is watched. The runtime calls it through the one hook that it has (`Observer` in core)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from headrace import gpu
from headrace._runtime import UnconnectedQueue, is_default, source_of
from headrace.core.condition import ticks_of
from headrace.core.errors import choices
from headrace.core.function import FunctionOperator
from headrace.gpu.backend import active, expected
from headrace.observe.events.cupti_activity import CuptiActivity
from headrace.observe.events.flow_tables import mark_cycles
from headrace.observe.events.gpu_timing import (
    ComputeTimer,
    DeviceTime,
    SimulatedTime,
    StreamTimer,
    TimedStream,
)
from headrace.observe.events.queues import Feed, ObservedQueue, UnconnectedFeed
from headrace.observe.events.reader import Change, Reader
from headrace.observe.events.recorder import GeneratorRecorder, NodeRecorder
from headrace.observe.events.records import (
    SHARED_WORKERS,
    OperatorInfo,
    OutputInfo,
    QueueInfo,
    RunInfo,
    SegmentInfo,
    StreamInfo,
    WorkersInfo,
)
from headrace.observe.events.replays import ReplayWatch
from headrace.observe.events.simulated_activity import SimulatedActivity
from headrace.observe.events.watchers import WatcherGroup
from headrace.observe.figures.run_figures import with_figures

if TYPE_CHECKING:
    from headrace._runtime import Engine, ManagedStream, Node
    from headrace.core.composition import Composition
    from headrace.core.outcome import Outcome
    from headrace.observe.events.watchers import Watcher

_log = logging.getLogger("headrace.observe")


class Observation:
    """The observation of one run, shared by all its watchers.

    Parameters
    ----------
    fragment
        What runs.
    watchers
        Those who watch.
    left_out
        The names of the operators that do not run, because a recording is played.

    Attributes
    ----------
    now
        Returns the time of the time line.
    """

    def __init__(
        self,
        fragment: Composition,
        watchers: Sequence[Watcher],
        left_out: Collection[str] = (),
    ) -> None:
        self.fragment = fragment
        self._left_out = frozenset(left_out)
        self.watchers = with_figures(watchers)
        self._group = WatcherGroup(self.watchers)
        self.gpu_times = any(watcher.wants_gpu_times for watcher in watchers)
        self.sees_messages = any(watcher.wants_data for watcher in watchers)
        self.run: RunInfo
        self._recorders: dict[Node, NodeRecorder] = {}
        self._node_count = 0
        self._queue_count = 0
        self._times: dict[int, DeviceTime] = {}
        self._streams: dict[ManagedStream, TimedStream] = {}
        self._reader: Reader | None = None
        self._lock = threading.Lock()
        self.now: Callable[[], int] = time.perf_counter_ns
        self._machine: Any = None
        # Whether computes never run at the same time.
        self._is_serial = False
        self._kernels: CuptiActivity | SimulatedActivity | None = None

    # Called by the runtime.

    def make_queue(self, consumer: Node, port: str, limit: int, policy: Any) -> ObservedQueue:
        """Return a queue whose messages are recorded."""
        recorder = self._recorder_of(consumer)
        operator = recorder.info
        info = QueueInfo(operator, port, limit, self._queue_count)
        self._queue_count += 1
        queue = info.queue = ObservedQueue(
            consumer,
            port,
            limit,
            policy,
            recorder=recorder,
            info=info,
            show=self._showing("received", info),
        )
        operator.inputs.append(info)
        return queue

    def attach(self, engine: Engine) -> None:
        """Put feeds and recorders in place, and show the graph to the watchers."""
        self._engine = engine
        operators = [self._recorder_of(node).info for node in engine.operator_nodes]
        self._is_serial = engine.scheduler.workers <= 1 and not self.fragment._headrace.thread_pools
        started = self.now()
        epoch = time.time_ns() - time.perf_counter_ns() if self.now is time.perf_counter_ns else 0
        self.run = RunInfo(
            self.fragment.name,
            operators,
            started,
            epoch,
            is_virtual=self.now is not time.perf_counter_ns,
            left_out=self._left_out,
        )
        self._node_count = len(operators)
        infos = dict(zip(engine.operator_nodes, operators, strict=True))
        self.run.segments = self._describe_segments(engine)
        self.run.workers = self._describe_workers(engine)
        for node, info in infos.items():
            self._describe(node, info)
        feeds = [feed for node in engine.operator_nodes for feed in self._put_feeds(node, infos[node])]
        mark_cycles(operators)
        if any(watcher.wants_kernels for watcher in self.watchers):
            kernels = self._activity()
            self._kernels = kernels if kernels.start() else None
            self.run.kernels = kernels.state
        try:
            self._group.begin(self, self.run)
        except BaseException:
            self._stop_kernels()
            raise
        recorders = [self._recorders[node] for node in engine.operator_nodes]
        self._reader = Reader(
            self._group, self.run, Change(recorders, feeds), self._times, self._kernels, self.now
        )
        self._reader.start()

    def follow(self, changed: Collection[Node]) -> None:
        """Record what flows through a graph that has changed; nothing computes meanwhile.

        The reader's thread learns of it later (`Reader.changes`). It is not waited for: a watcher may be called
        there, and ask the run for something.
        """
        engine = self._engine
        joined = engine.operator_nodes[self._node_count :]
        for index, node in enumerate(joined, self._node_count):
            self._recorder_of(node).info.index = index
        self._node_count = len(engine.operator_nodes)
        feeds = []
        for node in engine.operator_nodes:
            recorder = self._recorders[node]
            if node.scheduled is node:  # the flows of a segment stay
                self._describe(node, recorder.info)
                feeds += self._put_feeds(node, recorder.info)
            for queue in recorder.info.inputs:
                queue.size = queue.queue.limit
                for feed in queue.feeds:
                    feed.emitter.follow()
        assert self._reader is not None
        self._reader.changes.append(Change([self._recorders[node] for node in joined], feeds))

    def around(self, node: Node, compute: Callable[..., None]) -> Callable[..., None]:
        """Return a compute that takes the times of `compute`; called when the operators have started."""
        self._compare_clocks(node.engine)
        recorder = self._recorder_of(node)
        for watcher in self.watchers:
            try:
                compute = watcher.around(recorder.info, compute)
            except Exception:
                _log.exception("%s raised, and is not called around computes", type(watcher).__name__)
        if self._kernels is not None:
            compute = self._kernels.around(recorder.info, lambda: recorder.number, compute)
        if any(watcher.wants_cpu_times for watcher in self.watchers) and not self.run.is_virtual:
            compute = recorder.noting_cpu_times(compute)
        ticks = ticks_of(node.operator.conditions.values())
        if ticks is not None:
            compute = recorder.noting_ticks(compute, ticks, self.run.clock_offset)
        if node.faults is not None:
            compute = recorder.noting_failures(compute, node.counts)
        threads = any(watcher.wants_threads for watcher in self.watchers)
        return recorder.around(compute, threads)

    def uses_stream(self, node: Node, managed: ManagedStream) -> None:
        """Time a node's work on a stream."""
        recorder = self._recorders.get(node)
        if not self.gpu_times or recorder is None:  # of the node of a segment, whose replays are timed
            return
        # A compute that is about to begin times itself. Not one whose work on an earlier stream is not timed: half
        # of the time would be missing.
        is_timed = recorder.is_timing or (recorder.is_computing and not recorder.timer.in_use)
        timer = self._add_timer(recorder, managed)
        if is_timed:
            recorder.is_timing = True
            timer.begin()

    def watch_replays(self, captured: Any) -> ReplayWatch:
        """Return what records the replays of a captured segment."""
        segment = next(each for each in self.run.segments if each.captured is captured)
        self._warn_of_unseen(segment)
        return ReplayWatch(
            segment,
            [self._recorders[node] for node in captured.members],
            self.now,
            self._device_time if self.gpu_times else None,
            self.watchers,
        )

    def finish(self) -> None:
        """Read every compute; the device is idle."""
        try:
            if self._reader is not None:
                self._reader.finish()
        finally:
            self._stop_kernels()
            for timed in self._streams.values():
                timed.close()
            for device_time in self._times.values():
                self.run.clock_errors[device_time.device_id] = device_time.error
                device_time.close()

    def close(self, outcome: Outcome | None) -> None:
        """Tell the watchers that the run is over."""
        self._group.end(outcome)

    # For watchers.

    @property
    def known_until(self) -> int:
        """The time up to which all that happened was shown to the watchers."""
        return self.now() if self._reader is None else self._reader.known_until

    def catch_up(self) -> None:
        """Read what can be read now, so that the watchers' figures are recent; from any thread."""
        if self._reader is not None:
            self._reader.catch_up()

    # Inside.

    def _stop_kernels(self) -> None:
        if self._kernels is not None:
            self._kernels.stop()
            self.run.kernels = self._kernels.state

    def _choose_clock(self, engine: Engine) -> None:
        """Choose the time line: the run's clock, unless that is the host's."""
        clock = engine.clock
        self._machine = getattr(clock, "machine", None)
        if self._machine is not None or not clock.passes:
            self.now = clock.timestamp
        if self._machine is None and not clock.passes:
            self.gpu_times = False  # the device's time has nothing to do with that of the program

    def _activity(self) -> CuptiActivity | SimulatedActivity:
        """Return what collects kernels and copies. Asking for the device would give one to a program without."""
        reports = expected().work_reports()
        if reports is None:
            return CuptiActivity()
        return SimulatedActivity(
            reports, self._machine is None, self.run.is_virtual and self._machine is None
        )

    def _compare_clocks(self, engine: Engine) -> None:
        """Note what the run's clock shows; not in `attach`, because it begins anew in between."""
        now = self.now()
        self.run.clock_offset = engine.clock.timestamp() - now
        if self.run.is_virtual:
            self.run.started = min(self.run.started, now)

    def _warn_of_unseen(self, segment: SegmentInfo) -> None:
        """Warn of messages that somebody wants to see, and that are not there in replays."""
        ports: list[OutputInfo | QueueInfo] = []
        for operator in segment.operators:
            ports += (*operator.outputs, *operator.inputs)
        unseen = [
            port.name
            for port in ports
            if port.is_inner and any(each.wants_data and each.watches(port) for each in self.watchers)
        ]
        if unseen:
            _log.warning(
                "segment %r: messages at %s are seen only in frames that are not replayed; to see them all, leave "
                "one of the operators out of the segment, or set HEADRACE_CAPTURE=off",
                segment.name,
                choices(unseen),
            )

    def _describe_segments(self, engine: Engine) -> list[SegmentInfo]:
        """Return the captured segments; also those that are not recorded."""
        runners: list[Any] = [group.runner for group in engine.groups]
        captured = {runner.segment: runner for runner in runners}
        found = []
        for segment in self.fragment._headrace.segments:
            members = [info for info in self.run.operators if info.node.operator in segment.operators]
            described = SegmentInfo(segment.name, members, segment, captured.get(segment))
            for info in members:
                info.segment = described
            found.append(described)
        return found

    def _describe_workers(self, engine: Engine) -> list[WorkersInfo]:
        """Return the threads that compute, by the operators that they share."""
        left = {info.node.operator: info for info in self.run.operators}
        found = []
        count = engine.scheduler.workers
        for pool in self.fragment._headrace.thread_pools if count else ():
            shared = WorkersInfo(pool.name, pool.initial_size, [])
            for assignment in pool.assignments:
                info = left.pop(assignment.operator, None)
                if info is not None and assignment.pinned:
                    found.append(WorkersInfo(f"{pool.name}, {info.name}", 1, [info]))
                elif info is not None:
                    shared.operators.append(info)
            if shared.operators:
                found.append(shared)
        return [WorkersInfo(SHARED_WORKERS, max(count, 1), list(left.values())), *found] if left else found

    def _recorder_of(self, node: Node) -> NodeRecorder:
        """Return the recorder of a node, made when it is first asked for."""
        if not self._recorders:
            self._choose_clock(node.engine)
        recorder = self._recorders.get(node)
        if recorder is None:
            nodes = node.engine.operator_nodes
            # One that joins the run has its place when it is part of the graph (`follow`).
            info = OperatorInfo(node.name, nodes.index(node) if node in nodes else -1, node=node)
            operator, timer = node.operator, ComputeTimer()
            info.is_parallel = node.is_parallel
            if isinstance(operator, FunctionOperator) and operator.goes_on:
                info.goes_on = True
                recorder = GeneratorRecorder(info, self.now, timer, operator.base_of)
            else:
                recorder = NodeRecorder(info, self.now, timer)
            self._recorders[node] = recorder
        return recorder

    def _describe(self, node: Node, info: OperatorInfo) -> None:
        timer, operator = self._recorders[node].timer, node.operator
        timer.queues = [queue for port in node.input.ports for queue in port.queues]
        timer.retried = [each.queue.receiver for each in info.inputs if each.queue.is_put_off]
        ports = {port.name: port for port in node.input.ports}
        for each in info.inputs:
            queue, port = each.queue, ports[each.port]
            queue.receiver.port = port
        for port in node.input.ports:
            if port.queues != node.input_queues[port.name]:
                _time_from(self._recorders[node], port)
        source: Any = source_of(operator) or operator.fragment.get_default_green_context_pool()
        try:
            share = None if source is None else source.slice
        except gpu.PartitionError:  # the run will raise it
            share = None
        if share is not None:
            info.slice, info.sm_count = share.name, share.sm_count

    def _put_feeds(self, node: Node, info: OperatorInfo) -> list[Feed]:
        """Put feeds between the outputs of a node and the queues behind them, and return those that are new."""
        recorder, made = self._recorders[node], []
        known = {output.port: output for output in info.outputs}
        for name in node.output_queues:
            output = known.get(name)
            if output is None:
                output = OutputInfo(info, name)
                info.outputs.append(output)
            feeds: list[Any] = []
            for queue in node.output.ports[name].queues:
                if isinstance(queue, (Feed, UnconnectedFeed)):
                    feeds.append(queue)
                elif isinstance(queue, UnconnectedQueue):
                    feeds.append(UnconnectedFeed(queue))
                else:
                    assert isinstance(queue, ObservedQueue)
                    # A flow that was removed, and is there again, has a feed.
                    feed = next((each for each in queue.info.feeds if each.output is output), None)
                    if feed is None:
                        feed = Feed(queue, output, recorder)
                        made.append(feed)
                    feeds.append(feed)
            output.feed(feeds, [feed.behind.info for feed in feeds if isinstance(feed, Feed)])
            show = self._showing("emitted", output)
            # A message is shown once, however many queues there are; not by one that replays pass by.
            shown = next((feed for feed in feeds if not _is_inside(node, feed.behind)), feeds[0])
            for feed in feeds:
                feed.show_by(show if feed is shown else None)
            node.output.ports[name].connect(tuple(feeds))
        return made

    def _showing(self, what: str, where: Any) -> Callable[[Any], None] | None:
        """Return a function that shows a message to those who watch data; None if nobody does.

        What a watcher raises is raised in the compute.
        """
        calls = [getattr(watcher, what) for watcher in self.watchers if watcher.wants_data]
        if not calls:
            return None
        now = self.now

        def show(item: Any) -> None:
            at = now()
            for call in calls:
                try:
                    call(where, item, at)
                except LookupError as error:
                    # `receive` would take these for an empty queue or an unknown port.
                    raise RuntimeError(f"a watcher raised for {where.name!r}: {error!r}") from error

        return show

    def _add_timer(self, recorder: NodeRecorder, managed: ManagedStream) -> StreamTimer:
        info = recorder.info
        stream = StreamInfo(info, managed.device_id, int(managed.handle), len(info.streams))
        info.streams.append(stream)
        time = self._device_time(managed.device_id)
        time.add_events()
        with self._lock:
            timed = self._streams.get(managed)
            if timed is None:
                timed = self._streams[managed] = TimedStream(managed)
            timer = StreamTimer(stream, timed, recorder, time)
            # Operators that nobody knows of may use the default stream, too.
            if is_default(managed.handle) and len(timed.timers) > 1 and not self._is_serial:
                for each in timed.timers:
                    each.may_be_exact = False
        recorder.timer.add(timer)
        return timer

    def _device_time(self, device_id: int) -> DeviceTime:
        with self._lock:
            found = self._times.get(device_id)
            if found is None:
                if active().models_time:
                    found = SimulatedTime(device_id, self.now, self._machine is None)
                else:
                    found = DeviceTime(device_id, self.now)
                if any(watcher.wants_every_gpu_time for watcher in self.watchers):
                    found.is_sampled = False
                self._times[device_id] = found
                self.run.device_sm_counts[device_id] = gpu.Device(device_id).resources.sm.sm_count
            return found


def _time_from(recorder: NodeRecorder, port: Any) -> None:
    """Begin to time work on the device with what is received at a port of a segment's operator.

    The segment takes the messages from the queues, before the operator computes.
    """
    take = port.take

    def take_and_begin() -> Any:
        item = take()
        if recorder.is_timing:
            recorder.timer.receive(item, port)
        return item

    port.take = take_and_begin


def _is_inside(node: Node, queue: Any) -> bool:
    """Return whether a queue behind a node is inside the segment of the node."""
    consumer = getattr(queue, "consumer", None)
    return consumer is not None and consumer is not node.scheduled and consumer.scheduled is node.scheduled
