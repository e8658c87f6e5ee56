"""What a trace shows."""

from __future__ import annotations

import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    CountCondition,
    PeriodicCondition,
)
from headrace.core import IOSpec
from headrace.gpu import sim
from headrace.gpu.backend import is_in_use
from headrace.observe import TraceWriter, Watcher, watch
from headrace.observe.traces.trace_file import TraceFile
from headrace.observe.traces.trace_writer import Level
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool, RealtimeClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import (
    PATIENCE,
    App,
    Consumer,
    Doubler,
    Producer,
    Step,
    launch,
    run,
    sink,
    source,
    through,
)
from tests.observe.traces.traces import load, traced

pytestmark = pytest.mark.usefixtures("no_device_yet")  # most of these programs use no device

LAUNCH = 7.5  # microseconds until an idle simulated H200 begins with a kernel


def two_slices(app: Any) -> None:
    """A producer on 16 SMs, a doubler on the rest, and a consumer on all SMs; each kernel takes 1 ms."""
    slices = CudaGreenContextPool(app, 0, sms_per_partition={"camera": 16})
    pools = [
        CudaStreamPool(
            app, 0, 1, cuda_green_context=CudaGreenContext(app, slices, part, name=part), name=f"{part} pool"
        )
        for part in ("camera", "leftover")
    ]
    period = PeriodicCondition(app, 10e-3)
    producer = Producer(app, pools[0], CountCondition(app, 3), period, name="producer")
    doubler = Doubler(app, pools[1], name="doubler")
    app.add_flow(producer, doubler)
    app.add_flow(doubler, Consumer(app, CudaStreamPool(app, 0, 1, name="all"), name="consumer"))


def test_work_on_the_device_is_on_the_track_of_its_stream_grouped_by_slice(
    machine: sim.Machine, tmp_path: Path
) -> None:
    trace = traced(two_slices, tmp_path / "out.json")
    shown = {
        event["name"]: (trace.track_of(event), event["ts"] % 10_000, event["dur"])
        for event in trace.of("X", cat="gpu")
        if event["args"]["frame"] == 2
    }
    assert shown == {
        "producer": ("GPU 0: slice camera, 16 of 132 SMs / stream of producer", 0, 1000 + LAUNCH),
        "doubler": ("GPU 0: slice leftover, 116 of 132 SMs / stream of doubler", 1000 + LAUNCH, 1000),
        "consumer": ("GPU 0: all 132 SMs / stream of consumer", 2000 + LAUNCH, 1000),
    }


def test_arrows_follow_a_frame_from_compute_to_compute_and_to_the_device(
    machine: sim.Machine, tmp_path: Path
) -> None:
    trace = traced(two_slices, tmp_path / "out.json")
    arrows = [
        (begin["name"], begin["cat"], end["name"], end["cat"])
        for begin, end in trace.arrows
        if begin["args"]["frame"] == 1
    ]
    assert sorted(arrows) == [
        ("consumer", "compute", "consumer", "gpu"),
        ("doubler", "compute", "consumer", "compute"),
        ("doubler", "compute", "doubler", "gpu"),
        ("producer", "compute", "doubler", "compute"),
        ("producer", "compute", "producer", "gpu"),
    ]
    for begin, end in trace.arrows:
        assert begin["args"]["frame"] == end["args"]["frame"]


def test_a_compute_that_waits_twice_has_an_arrow_to_its_first_work(
    machine: sim.Machine, tmp_path: Path
) -> None:
    def read(self: Step, op_input: Any, op_output: Any) -> None:
        for port in ("left", "right"):
            op_input.receive(port)
            launch(op_input.receive_cuda_stream(port), 1e-3, lambda: None)

    def compose(app: Any) -> None:
        both = Step(app, inputs=["left", "right"], body=read, name="both")
        for side in ("left", "right"):
            app.add_flow(Producer(app, CountCondition(app, 1), name=side), both, {("out", side)})

    trace = traced(compose, tmp_path / "out.json")
    first, second = trace.of("X", cat="gpu", name="both")
    assert first["ts"] + first["dur"] <= second["ts"]
    ((_, end),) = (arrow for arrow in trace.arrows if arrow[0]["name"] == arrow[1]["name"] == "both")
    assert end is first


def test_a_path_is_divided_by_what_its_messages_waited_for(machine: sim.Machine, tmp_path: Path) -> None:
    trace = traced(two_slices, tmp_path / "out.json")
    paths = trace.of("b", cat="path")
    assert [path["name"] for path in paths] == ["producer → doubler → consumer"] * 3
    for frame, path in enumerate(paths):
        assert path["args"]["frame"] == frame
        assert path["args"]["latency_us"] == 3000 + LAUNCH
        assert path["args"]["parts_us"] == {
            "gpu producer": 1000 + LAUNCH,
            "gpu doubler": 1000,
            "gpu consumer": 1000,
        }


def test_messages_in_use_are_those_that_the_device_still_works_on(
    machine: sim.Machine, tmp_path: Path
) -> None:
    trace = traced(two_slices, tmp_path / "out.json")
    assert trace.levels("consumer")[:4] == [
        (0, 1),
        (3000 + LAUNCH, 0),
        (10_000, 1),
        (13_000 + LAUNCH, 0),
    ]


def test_a_branch_and_a_join_have_an_arrow_for_each_message(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        first, left, right = source(app, range(4)), through(app, name="left"), through(app, name="right")
        join = Step(
            app,
            inputs=["a", "b"],
            body=lambda self, i, o: (i.receive("a"), i.receive("b")),
            name="join",
        )
        app.add_flow(first, left)
        app.add_flow(first, right)
        app.add_flow(left, join, {("out", "a")})
        app.add_flow(right, join, {("out", "b")})

    trace = traced(compose, tmp_path / "out.json")
    arrows = {
        (begin["name"], begin["args"]["compute"], end["name"], end["args"]["compute"])
        for begin, end in trace.arrows
    }
    ways = [("source", "left"), ("source", "right"), ("left", "join"), ("right", "join")]
    assert arrows == {(begin, number, end, number) for begin, end in ways for number in range(4)}
    assert len(trace.arrows) == 16


def test_a_compute_of_no_time_comes_before_a_longer_one_at_the_same_time(tmp_path: Path) -> None:
    """In simulated time; a viewer would show it inside of the longer one, and bind arrows wrongly."""

    def compose(app: Any) -> None:
        def encode(self: Step, i: Any, o: Any) -> None:
            i.receive("in")
            app.scheduler().clock.sleep_for(1e-3)

        first = source(app, range(3), PeriodicCondition(app, 5e-3))
        app.add_flow(first, Step(app, inputs=["in"], body=encode, name="encode"))
        app.add_flow(first, sink(app, [], name="display"))

    trace = traced(compose, tmp_path / "out.json")
    assert [event["ts"] for event in trace.of("X", name="encode")] == [0, 5000, 10_000]
    assert [event["ts"] for event in trace.of("X", name="display")] == [0, 5000, 10_000]


def test_counters_show_how_many_messages_wait(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        first = source(app, range(3), PeriodicCondition(app, 1e-3))
        app.add_flow(first, sink(app, [], PeriodicCondition(app, 10e-3)))

    # At 10 ms the second message is received, and the third one is emitted into the queue that has room again.
    levels = traced(compose, tmp_path / "out.json").levels("sink.in")
    assert levels == [(0, 0), (1000, 1), (10_000, 1), (20_000, 0)]


@pytest.mark.parametrize("policy", [IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT])
def test_a_dropped_message_is_an_instant_at_the_time_it_was_dropped(policy: Any, tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        first = Step(
            app,
            CountCondition(app, 5),
            PeriodicCondition(app, 1e-3),
            outputs=["out"],
            body=lambda self, i, o: o.emit(self.ticks, "out"),
            name="first",
        )
        last = Step(
            app,
            PeriodicCondition(app, 10e-3),
            inputs=[("in", {"size": 1, "policy": policy})],
            body=lambda self, i, o: i.receive("in"),
            name="last",
        )
        app.add_flow(first, last)

    trace = traced(compose, tmp_path / "out.json")
    drops = trace.of("i", name="dropped: last.in")
    # The first message is received at once. The second one fills the queue, and each further one drops a message.
    emitted = [event["ts"] for event in trace.of("X", name="first")]
    assert [drop["ts"] for drop in drops] == emitted[2:]
    assert max(value for _, value in trace.levels("last.in")) == 1


def test_a_program_that_uses_no_device_uses_none_because_it_is_traced(tmp_path: Path) -> None:
    trace = traced(lambda app: app.add_flow(source(app, [1, 2]), sink(app, [])), tmp_path / "out.json")
    assert not is_in_use()
    assert not trace.of("X", cat="gpu")


def test_times_are_exact_and_the_epoch_is_in_the_header(tmp_path: Path) -> None:
    class Seen(Watcher):
        def begin(self, run: Any) -> None:
            self.run = run
            self.started: list[int] = []

        def computed(self, computes: Any) -> None:
            self.started += computes.started.tolist()

    seen = Seen()
    app = App(
        lambda app: app.add_flow(source(app, range(20)), sink(app, [])),
        lambda app: GreedyScheduler(app, clock=RealtimeClock(app)),
    )
    watch(app, seen)
    watch(app, TraceWriter(tmp_path / "out.json"))
    app.run()
    trace = load(tmp_path / "out.json")
    assert trace.header["epoch_ns"] == seen.run.epoch > 1e18
    assert trace.header["started_ns"] == seen.run.started
    shown = [round(event["ts"] * 1000) for event in trace.of("X")]
    assert sorted(shown) == sorted(time - seen.run.started for time in seen.started)
    assert trace.header["kernels"] == "shown"


def test_metadata_of_a_message_is_shown_with_the_compute_that_received_it(tmp_path: Path) -> None:
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError("must not be asked for")

    def compose(app: Any) -> None:
        app.enable_metadata(True)

        def emit(self: Step, i: Any, o: Any) -> None:
            self.metadata["number"] = self.ticks
            self.metadata["text"] = "x" * 1000
            self.metadata["object"] = Unprintable()
            self.metadata["odd"] = float("nan")
            o.emit(self.ticks, "out")

        app.add_flow(
            Step(app, CountCondition(app, 2), outputs=["out"], body=emit, name="first"), sink(app, [])
        )

    trace = traced(compose, tmp_path / "out.json", metadata=True)
    shown = [event["args"]["metadata"] for event in trace.of("X", name="sink")]
    assert shown == [
        {"number": number, "text": "x" * 200, "object": "<Unprintable>", "odd": "nan"} for number in (1, 2)
    ]


def test_a_name_that_ends_with_gz_is_compressed_and_a_second_run_has_its_own_file(tmp_path: Path) -> None:
    app = App(lambda app: app.add_flow(source(app, range(3)), sink(app, [])))
    watch(app, TraceWriter(tmp_path / "out.json.gz"))
    app.run()
    app.run()
    for name in ("out.json.gz", "out-2.json.gz"):
        assert len(load(tmp_path / name).of("X")) == 6


def test_nothing_is_written_without_a_watcher(tmp_path: Path) -> None:
    run(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    assert not list(tmp_path.iterdir())


def test_the_arrow_of_a_message_that_comes_during_a_compute_ends_after_it_begins(tmp_path: Path) -> None:
    """The compute that receives it began before the one that emits it, and is written before it."""
    has_come = threading.Event()

    def compose(app: Any) -> None:
        begun = AsynchronousCondition(app)
        begun.event_state = AsynchronousEventState.EVENT_WAITING

        def receive(op: Step, i: Any, o: Any) -> None:
            begun.event_state = AsynchronousEventState.EVENT_DONE
            assert has_come.wait(PATIENCE)
            i.receive("in")

        def emit(op: Step, i: Any, o: Any) -> None:
            o.emit(2, "out")
            has_come.set()

        port = ("in", {"size": 1, "policy": IOSpec.QueuePolicy.POP})
        receiver = Step(app, CountCondition(app, 1), inputs=[port], body=receive, name="receiver")
        late = Step(app, begun, CountCondition(app, 1), outputs=["out"], body=emit, name="late")
        app.add_flow(source(app, [1]), receiver)
        app.add_flow(late, receiver)

    def two_threads(app: Any) -> Any:
        return EventBasedScheduler(app, worker_thread_number=2, clock=RealtimeClock(app))

    trace = traced(compose, tmp_path / "out.json", two_threads)
    assert [(begin["name"], end["name"]) for begin, end in trace.arrows] == [("late", "receiver")]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_what_is_written_is_in_the_file_before_it_is_closed(name: str, tmp_path: Path) -> None:
    file = TraceFile(tmp_path / name)
    file.add('"one"', '"t\udcffo"')
    file.write()
    data = (tmp_path / name).read_bytes()
    text = zlib.decompressobj(31).decompress(data) if name.endswith(".gz") else data
    assert text == b'[\n"one",\n"t\\udcffo"'
    file.close()


def test_changes_of_a_queue_wait_until_all_of_its_time_is_known() -> None:
    level = Level()
    level.change(range(100), 1)
    assert level.tell(-1) == []
    level.change([2], -1)
    assert level.tell(2) == [(0, 1), (1, 2), (2, 2)]
