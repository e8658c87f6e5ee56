"""What an observation counts, and leaves alone, in unusual programs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import ConditionType, IOSpec, op
from headrace.core.errors import GraphError
from headrace.observe import (
    Computes,
    Flows,
    PortRecorder,
    Recording,
    TraceWriter,
    Watcher,
    watch,
)
from headrace.observe.events.node_log import NodeLog
from headrace.observe.events.records import NO_TIMESTAMP
from tests.harness.application import App
from tests.harness.operators import Step, source


class Ways(Watcher):
    """Collects the computes that each message passed."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def flowed(self, flows: list[Flows]) -> None:
        for each in flows:
            self.rows += map(tuple, each.computes.tolist())


def test_a_function_that_yields_begins_the_next_message_in_the_compute_that_ends_the_last() -> None:
    @op
    def source() -> Any:
        yield from range(3)

    @op
    def twice(value: int) -> Any:
        yield value
        yield value

    received: list[int] = []

    @op
    def sink(value: int) -> None:
        received.append(value)

    def compose(app: Any) -> None:
        first, second, last = source(app), twice(app), sink(app)
        app.add_flow(first, second)
        app.add_flow(second, last)

    app = App(compose)
    ways = Ways()
    watch(app, ways)
    app.run()
    assert received == [0, 0, 1, 1, 2, 2]
    assert [row[0] for row in ways.rows] == received


def test_a_cycle_that_closes_at_a_shared_queue_leaves_the_other_flows_their_paths() -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            PeriodicCondition(app, 1_000_000),
            outputs=["out"],
            body=lambda self, i, o: o.emit(-self.ticks, "out"),
            name="source",
        )
        loop = Step(
            app,
            inputs=[("in", {"size": 4})],
            outputs=["out", "back"],
            setup=lambda spec: spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1),
            body=echo,
            name="loop",
        )
        sink = Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="sink")
        app.add_flow(source, loop)
        app.add_flow(loop, sink, {("out", "in")})
        app.add_flow(loop, loop, {("back", "in")})

    def echo(self: Any, op_input: Any, op_output: Any) -> None:
        for message in op_input.receive("in"):
            op_output.emit(message, "out")
            if message < 0:
                op_output.emit(-message, "back")

    app = App(compose)
    tracker = app.track()
    app.run()
    paths = {path.name: path.count for path in tracker.statistics.paths}
    assert paths == {"source,loop,sink": 3, "loop,sink": 3, "loop,loop": 3}


def test_a_cycle_closes_where_it_comes_back_seen_from_its_source() -> None:
    def compose(app: Any) -> None:
        def go_round(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("back")
            if op_input.receive("in") is not None:
                op_output.emit(1, "out")

        first = Step(app, inputs=["in", "back"], outputs=["out"], body=go_round, name="first")
        for port in first.spec.inputs.values():
            port.condition(ConditionType.NONE)
        second = Step(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda self, i, o: o.emit(i.receive("in"), "out"),
            name="second",
        )
        begin = source(app, range(3), PeriodicCondition(app, 1_000_000))
        app.add_flow(second, first, {("out", "back")})
        app.add_flow(first, second)
        app.add_flow(begin, first, {("out", "in")})
        first.add_arg(CountCondition(app, 20))

    app = App(compose)
    tracker = app.track()
    app.run()
    assert [path.name for path in tracker.statistics.paths] == ["first,second,first"]


@pytest.mark.parametrize("timestamp", [2**70, -(2**70), 2**63, -(2**62), 2**62 - 1])
def test_an_acquisition_timestamp_of_any_size_does_no_harm(timestamp: int) -> None:
    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            outputs=["out"],
            body=lambda self, i, o: o.emit(1, "out", acq_timestamp=timestamp),
            name="source",
        )
        app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="sink"))

    app = App(compose)
    tracker = app.track()
    app.run()
    (path,) = tracker.statistics.paths
    assert (path.count, path.latency.max) == (3, 0)


def plain(app: Any) -> None:
    """Compose a source of three messages and a sink."""
    source = Step(
        app,
        CountCondition(app, 3),
        outputs=["out"],
        body=lambda self, i, o: o.emit(self.ticks, "out"),
        name="source",
    )
    app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="sink"))


@pytest.mark.parametrize("kind", [IndexError, KeyError])
def test_an_error_of_a_watcher_is_not_taken_for_an_empty_queue(kind: type[Exception]) -> None:
    class Broken(Watcher):
        wants_data = True

        def received(self, queue: Any, item: Any, time: int) -> None:
            raise kind("on purpose")

    app = App(plain)
    watch(app, Broken())
    with pytest.raises(RuntimeError, match=r"a watcher raised for 'sink.in': .*on purpose"):
        app.run()


class Ends(Watcher):
    """Notes its end."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ended = 0
        self._error = error

    def end(self, outcome: Any) -> None:
        self.ended += 1
        if self._error is not None:
            raise self._error


def test_watchers_end_although_a_later_one_cannot_begin(tmp_path: Path) -> None:
    class Broken(Watcher):
        def begin(self, run: Any) -> None:
            raise GraphError("on purpose")

    app = App(plain)
    ends = Ends()
    watch(app, ends)
    watch(app, PortRecorder(tmp_path / "recording"))
    watch(app, Broken())
    with pytest.raises(GraphError, match="on purpose"):
        app.run()
    assert ends.ended == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace record"]


def test_watchers_end_although_another_one_raises_at_its_end() -> None:
    app = App(plain)
    broken, good = Ends(OSError("on purpose")), Ends()
    watch(app, broken)
    watch(app, good)
    with pytest.raises(OSError, match="on purpose"):
        app.run()
    assert (broken.ended, good.ended) == (1, 1)


def test_a_watcher_may_ask_for_figures_while_another_thread_reads_them() -> None:
    seen: list[int] = []

    def compose(app: Any) -> None:
        source = Step(
            app,
            CountCondition(app, 3),
            outputs=["out"],
            body=lambda self, i, o: o.emit(self.ticks, "out"),
            name="source",
        )

        def read(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            if self.ticks == 3:
                # The misses of the first two messages are noted here, on the thread that computes.
                tracker.catch_up()

        app.add_flow(source, Step(app, inputs=["in"], body=read, name="sink"))

    app = App(compose)
    tracker = app.track()

    class Asks(Watcher):
        def flowed(self, flows: list[Flows]) -> None:
            seen.append(tracker.statistics.operator("source").count)

    watch(app, Asks())
    app.run()
    assert seen[-1] == 3


def test_metadata_that_no_text_holds_is_shown_in_a_trace(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            self.metadata.update(name="\udcff", number=10**5000)
            op_output.emit(1, "out")

        source = Step(app, CountCondition(app, 2), outputs=["out"], body=emit, name="source\udcfe")
        app.add_flow(source, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="sink"))

    app = App(compose)
    watch(app, TraceWriter(tmp_path / "trace.json", metadata=True))
    app.run()
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    shown = [event["args"]["metadata"] for event in events if "metadata" in event.get("args", {})]
    assert shown == [{"name": "\udcff", "number": "<int>"}] * 2
    assert "source\udcfe" in {event["name"] for event in events}


def test_two_applications_at_once_have_their_own_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_RECORD", str(tmp_path / "recording"))
    inner = App(plain)

    def compose(app: Any) -> None:
        plain(app)
        outer = Step(
            app,
            CountCondition(app, 2),
            outputs=["out"],
            body=lambda self, i, o: inner.run() if self.ticks == 1 else None,
            name="runs_another",
        )
        app.add_operator(outer)

    App(compose).run()
    for name in ("", "-2"):
        with Recording(tmp_path / f"recording{name}") as recording:
            assert recording.is_complete
            assert [message.data for message in recording] == [1, 2, 3]
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace record"]


@pytest.mark.parametrize("policy", [IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT])
@pytest.mark.parametrize("producers", [1, 2])
def test_what_is_remembered_does_not_grow_with_the_messages_that_are_dropped(
    policy: IOSpec.QueuePolicy, producers: int
) -> None:
    remembered: list[int] = []

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out")
        if self.name == "source0" and not self.ticks % 2000:
            tracker.catch_up()
            tables = tracker.observation._reader._tables
            remembered.append(
                sum(len(way.computes) for ways in tables._ways.values() for way in ways.values())
            )

    def compose(app: Any) -> None:
        sink = Step(
            app,
            CountCondition(app, 3),
            inputs=[("in", {"policy": policy})],
            body=lambda self, i, o: i.receive("in"),
            name="sink",
        )
        for number in range(producers):
            source = Step(
                app, CountCondition(app, 10_000), outputs=["out"], body=emit, name=f"source{number}"
            )
            app.add_flow(source, sink)

    app = App(compose)
    tracker = app.track()
    app.run()
    assert len(remembered) == 5
    assert max(remembered) <= 2 * producers
    (queue,) = tracker.statistics.queues
    assert (queue.received, queue.dropped) == (3, 10_000 * producers - 4)
    assert sum(path.count for path in tracker.statistics.paths) == 3


def test_a_queue_that_drops_much_still_tells_which_message_was_received() -> None:
    received: list[int] = []

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(self.ticks - 1, "out")
            if not self.ticks % 1500:
                op_output.emit(self.ticks, "trigger")
                ways.catch_up()

        def read(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("trigger")
            received.extend(op_input.receive("in"))
            ways.catch_up()

        source = Step(app, CountCondition(app, 9000), outputs=["out", "trigger"], body=emit, name="source")
        sink = Step(
            app,
            inputs=[("in", {"size": 3, "policy": IOSpec.QueuePolicy.POP}), "trigger"],
            body=read,
            name="sink",
        )
        app.add_flow(source, sink, {("out", "in"), ("trigger", "trigger")})

    app = App(compose)
    ways = Ways()
    watch(app, ways)
    app.run()
    assert len(received) == 18
    triggers = [1500 * number - 1 for number in range(1, 7)]
    assert sorted(row[0] for row in ways.rows) == sorted([*received, *triggers])


@pytest.mark.parametrize("policy", [IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT])
def test_messages_that_are_never_received_count_in_the_largest_depth(policy: IOSpec.QueuePolicy) -> None:
    def compose(app: Any) -> None:
        def take_one(self: Any, op_input: Any, op_output: Any) -> None:
            op_input.receive("in")
            app.stop_execution()

        burst = Step(
            app,
            CountCondition(app, 1),
            outputs=[("out", {"size": 5})],
            body=lambda self, i, o: [o.emit(n, "out") for n in range(5)],
            name="burst",
        )
        app.add_flow(burst, Step(app, inputs=["in"], body=take_one, name="sink"), size=4, policy=policy)

    app = App(compose)
    tracker = app.track()
    app.run()
    (queue,) = tracker.statistics.queues
    assert (queue.received, queue.depth, queue.most, queue.dropped) == (1, 3, 4, 1)


class Arriving(Watcher):
    """Collects what each compute received: the compute, the producer and the timestamp of every message."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int]] = []

    def computed(self, computes: Computes) -> None:
        for arrivals in computes.arrivals:
            columns = (arrivals.compute, arrivals.producer, arrivals.acq_timestamp)
            self.rows += zip(*(column.tolist() for column in columns), strict=True)


def test_messages_with_and_without_a_timestamp_stay_in_order() -> None:
    stamps = [[-1, -1, 10], [11, -1, -1], [-1], [12, 13], [], [-1, 14, -1]]

    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        for stamp in stamps[self.ticks - 1]:
            op_output.emit("frame", "out", acq_timestamp=stamp)

    def compose(app: Any) -> None:
        source = Step(app, CountCondition(app, len(stamps)), outputs=["out"], body=emit, name="source")
        sink = Step(
            app,
            inputs=[("in", {"size": 20})],
            setup=lambda spec: spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1),
            body=lambda self, i, o: i.receive("in"),
            name="sink",
        )
        app.add_flow(source, sink)

    app = App(compose)
    arriving = Arriving()
    watch(app, arriving)
    app.run()
    sent = [
        (producer, NO_TIMESTAMP if stamp < 0 else stamp)
        for producer, several in enumerate(stamps)
        for stamp in several
    ]
    assert [row[1:] for row in arriving.rows] == sent


def test_a_watcher_is_shown_what_happened_after_its_period_although_a_round_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run goes on until the watcher has seen a compute, which only the resolver's thread can show it."""

    class Stops(Watcher):
        period = 0.01

        def computed(self, computes: Computes) -> None:
            seen.set()
            app.stop_execution()

    def fail_once(log: NodeLog, is_last: bool) -> None:
        if not failures:
            failures.append(log)
            raise RuntimeError("an event could not be read")
        resolve(log, is_last)

    def compose(app: Any) -> None:
        # The first compute returns at once, so that there is one to see.
        app.add_operator(Step(app, body=lambda self, i, o: self.ticks > 1 and seen.wait(), name="endless"))

    seen, failures, resolve = threading.Event(), [], NodeLog.read_gpu_times
    monkeypatch.setattr(NodeLog, "read_gpu_times", fail_once)
    app = App(compose)
    watch(app, Stops())
    app.run()
    assert failures
