"""Record and replay: a run on recorded messages is the run that was recorded."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import IOSpec, PortError
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.observe import (
    Carrier,
    PayloadError,
    PortRecorder,
    RecordedMessage,
    RecordedPort,
    Recording,
    RecordingError,
    encode,
    replay,
    watch,
)
from headrace.observe.recordings.carriers import MessageList, matches
from headrace.observe.recordings.delivery import Delivery
from headrace.observe.recordings.recording_writer import RecordingWriter
from headrace.resources import ManualClock
from headrace.tensor import Tensor, TensorMap, as_tensor
from tests.harness import (
    PATIENCE,
    App,
    Consumer,
    Doubler,
    MakeScheduler,
    Producer,
    Step,
    sink,
    source,
    through,
)

pytestmark = pytest.mark.usefixtures("no_device_yet")  # most of these programs use no device

MILLISECOND = 1_000_000
Compose = Callable[[Any], None]


def record(compose: Compose, path: Path, ports: Any = None, **options: Any) -> App:
    app = App(compose)
    watch(app, PortRecorder(path, ports, **options))
    app.run()
    return app


def play(
    compose: Compose, path: Path, pace: str = "recorded", again: Path | None = None, **options: Any
) -> App:
    app = App(compose)
    replay(app, path, pace, **options)
    if again is not None:
        watch(app, PortRecorder(again, [port.name for port in Recording(path).ports]))
    app.run()
    return app


def without_times(path: Path) -> list[Any]:
    """Return the messages of a file without their times, and the beginning of the file."""
    recording = Recording(path)
    return [recording.ports, recording.run.flows] + [
        (one.port, one.sequence, one.step, one.acq_timestamp, one.metadata, encode(one.data))
        for one in recording
    ]


VALUES = [
    None,
    True,
    17,
    -2.5,
    "text",
    b"bytes",
    (1, [2, {"three": 3}]),
    np.arange(6).reshape(2, 3)[:, ::-1],
    np.array(1.5, ">f4"),
    {"plain": 1, "array": np.zeros((0, 2))},
]


def detailed(app: Any, values: list[Any], name: str = "source") -> Step:
    """Return a source that emits with timestamps and metadata, every 10 ms."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        number = self.ticks - 1
        if number % 2:
            self.metadata["number"] = number
        acq_timestamp = None if number % 3 == 0 else 1000 + number
        op_output.emit(values[number], "out", acq_timestamp=acq_timestamp)

    conditions = (CountCondition(app, len(values)), PeriodicCondition(app, "10ms"))
    return Step(app, *conditions, outputs=["out"], body=body, name=name)


def seeing(app: Any, seen: list[Any], name: str = "sink") -> Step:
    """Return a sink that keeps the time, data, timestamp and metadata of what it receives."""

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        timestamp = op_input.get_acquisition_timestamp("in")
        seen.append((context.timestamp, repr(data), timestamp, dict(self.metadata)))

    return Step(app, inputs=["in"], body=body, name=name)


def test_a_sink_sees_the_same_messages_at_the_same_times(tmp_path: Path) -> None:
    runs: list[list[Any]] = []

    def compose(app: Any) -> None:
        runs.append([])
        app.source = detailed(app, VALUES)
        app.add_flow(app.source, seeing(app, runs[-1]))

    record(compose, tmp_path / "a.mcap", ["source.out"])
    app = play(compose, tmp_path / "a.mcap")
    assert len(runs[0]) == len(VALUES)
    assert runs[1] == runs[0]
    assert app.source.ticks == 0


def test_nothing_is_made_up_for_after_a_pause(tmp_path: Path) -> None:
    seen: list[int] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            seen.append(context.timestamp)
            if self.ticks == 3 and pauses:
                app.pause()

        app.add_flow(detailed(app, VALUES), Step(app, inputs=["in"], body=body, name="sink"))

    pauses = False
    record(compose, tmp_path / "a.mcap", ["source.out"])
    pauses = True
    seen.clear()
    app = App(compose, clock=ManualClock())
    replay(app, tmp_path / "a.mcap")
    future = app.run_async()
    assert app.wait_until_paused()
    app.scheduler().clock.sleep_for(1000 * MILLISECOND)
    app.resume()
    future.result()
    distances = [(later - earlier) // MILLISECOND for earlier, later in pairwise(seen)]
    assert distances == [10, 10, 1000, 10, 10, 10, 10, 10, 10]


def test_a_fast_replay_has_the_same_messages_at_once(tmp_path: Path) -> None:
    runs: list[list[Any]] = []

    def compose(app: Any) -> None:
        runs.append([])
        app.add_flow(detailed(app, VALUES), seeing(app, runs[-1]))

    record(compose, tmp_path / "a.mcap")
    play(compose, tmp_path / "a.mcap", "fast")
    assert [one[1:] for one in runs[1]] == [one[1:] for one in runs[0]]
    assert runs[1][-1][0] == runs[1][0][0]
    assert runs[0][-1][0] - runs[0][0][0] == 10 * MILLISECOND * (len(VALUES) - 1)


def test_a_replay_that_is_recorded_gives_the_same_file(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        app.add_flow(detailed(app, VALUES), sink(app, []))

    record(compose, tmp_path / "a.mcap", ["source.out", "sink.in"])
    for pace in ("recorded", "fast"):
        play(compose, tmp_path / "a.mcap", pace, tmp_path / "b.mcap")
        assert without_times(tmp_path / "b.mcap") == without_times(tmp_path / "a.mcap")
    assert len(Recording(tmp_path / "a.mcap")) == 2 * len(VALUES)


def test_operators_that_only_feed_replaced_ones_do_not_run(tmp_path: Path) -> None:
    taken: list[int] = []

    class Life(Step):
        started = 0

        def start(self) -> None:
            self.started += 1

    def compose(app: Any) -> None:
        app.camera = Life(app, CountCondition(app, 3), outputs=["out"], name="camera")
        app.camera._body = lambda self, i, o: o.emit(self.ticks, "out")
        app.blur = Life(app, inputs=["in"], outputs=["out"], name="blur")
        app.blur._body = lambda self, i, o: o.emit(10 * i.receive("in"), "out")
        app.other = source(app, "abc", name="other")
        app.beside = sink(app, [], name="beside")
        app.add_flow(app.camera, app.blur)
        app.add_flow(app.blur, sink(app, taken))
        app.add_flow(app.other, app.beside)

    record(compose, tmp_path / "a.mcap", ["blur.out"])
    app = play(compose, tmp_path / "a.mcap")
    assert taken == [10, 20, 30] * 2
    assert (app.camera.ticks, app.camera.started, app.blur.ticks, app.blur.started) == (0, 0, 0, 0)
    assert (app.other.ticks, app.beside.ticks) == (3, 3)


def test_messages_of_one_compute_are_played_in_one(tmp_path: Path) -> None:
    pairs: list[tuple[int, int]] = []

    def both(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "right")
        if self.ticks != 2:
            op_output.emit(-self.ticks, "left")
        else:
            op_output.emit(0, "left")

    def compose(app: Any) -> None:
        split = Step(app, CountCondition(app, 3), outputs=["left", "right"], body=both, name="split")
        join = Step(
            app,
            inputs=["left", "right"],
            body=lambda self, i, o: pairs.append((i.receive("left"), i.receive("right"))),
            name="join",
        )
        app.add_flow(split, join, {("left", "left"), ("right", "right")})

    record(compose, tmp_path / "a.mcap", ["split"])
    play(compose, tmp_path / "a.mcap", again=tmp_path / "b.mcap")
    assert pairs == [(-1, 1), (0, 2), (-3, 3)] * 2
    assert without_times(tmp_path / "b.mcap") == without_times(tmp_path / "a.mcap")


def test_what_runs_after_a_played_operator_runs_as_often(tmp_path: Path) -> None:
    """After an end there is no such turn."""
    turns: list[str] = []

    class Ending(Step):
        def end(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit("end", "out")

    def compose(app: Any) -> None:
        first = Ending(
            app,
            CountCondition(app, 4),
            outputs=["out"],
            body=lambda self, i, o: o.emit(self.ticks, "out") if self.ticks % 2 else None,
            name="first",
        )
        app.add_flow(first, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="last"))
        first.then(Step(app, body=lambda self, i, o: turns.append("after"), name="after"))

    record(compose, tmp_path / "a.mcap")
    play(compose, tmp_path / "a.mcap", again=tmp_path / "b.mcap")
    assert turns == ["after"] * 8
    assert without_times(tmp_path / "b.mcap") == without_times(tmp_path / "a.mcap")


def test_an_operator_that_chooses_its_flows_is_not_played(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        first = source(app, [1, 2], name="first")
        left, right = sink(app, [], name="left"), sink(app, [], name="right")
        app.add_flow(first, left)
        app.add_flow(first, right)
        app.set_dynamic_flows(first, lambda operator: operator.add_dynamic_flow(left))

    record(compose, tmp_path / "a.mcap")
    with pytest.raises(GraphError, match="'first' cannot be replaced .*: it chooses in the run which flows"):
        play(compose, tmp_path / "a.mcap")


def test_an_input_of_any_size_keeps_the_order_of_its_connections(tmp_path: Path) -> None:
    seen: list[Any] = []

    def compose(app: Any) -> None:
        merge = Step(
            app,
            inputs=[("in", {"size": IOSpec.ANY_SIZE})],
            body=lambda self, i, o: seen.append(i.receive("in")),
            name="merge",
        )
        app.add_flow(source(app, "abc", name="one"), merge)
        app.add_flow(source(app, "xyz", name="two"), merge)

    record(compose, tmp_path / "a.mcap", ["one", "merge.in"])
    names = [port.name for port in Recording(tmp_path / "a.mcap").ports]
    assert names == ["merge.in:0", "merge.in:1", "one.out"] or names == [
        "one.out",
        "merge.in:0",
        "merge.in:1",
    ]
    play(compose, tmp_path / "a.mcap")
    assert seen == [("a", "x"), ("b", "y"), ("c", "z")] * 2


def test_only_chosen_ports_are_played(tmp_path: Path) -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        app.first = source(app, [1, 2], name="first")
        app.second = through(app, name="second", change=lambda value: value + 1)
        app.add_flow(app.first, app.second)
        app.add_flow(app.second, sink(app, taken))

    record(compose, tmp_path / "a.mcap")
    app = play(compose, tmp_path / "a.mcap", ports=["first.out"])
    assert (app.first.ticks, app.second.ticks) == (0, 2)
    app = play(compose, tmp_path / "a.mcap")
    assert (app.first.ticks, app.second.ticks) == (0, 0)
    assert taken == [2, 3] * 3


# The device.


def test_frames_of_a_device_are_played_on_the_device(tmp_path: Path, machine: sim.Machine) -> None:
    def compose(app: Any) -> None:
        app.producer = Producer(app, CountCondition(app, 20), name="producer")
        app.doubler = Doubler(app, name="doubler")
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(app.producer, app.doubler)
        app.add_flow(app.doubler, app.consumer)

    first = record(compose, tmp_path / "a.mcap", ["producer.out", "doubler.out", "consumer.in"])
    assert first.consumer.seen == [2 * number for number in range(20)]
    recording = Recording(tmp_path / "a.mcap")
    for port, factor in (("producer.out", 1), ("doubler.out", 2), ("consumer.in", 2)):
        found = [int(one.data.elements().view(np.int64)[0]) for one in recording.messages(port)]
        assert found == [factor * number for number in range(20)]
    again = play(compose, tmp_path / "a.mcap", ports=["producer.out"])
    assert again.consumer.seen == first.consumer.seen
    assert not hasattr(again.producer, "number")  # it was not started
    assert again.doubler._headrace.node is not None


def test_tensors_come_back_as_tensors_and_a_dict_as_a_dict(tmp_path: Path) -> None:
    seen: list[Any] = []
    values = [
        TensorMap(frame=np.arange(4, dtype=np.float32), mask=np.ones((2, 2), bool)),
        {"array": np.arange(2), "tensor": as_tensor(np.arange(3)), "n": 4},
    ]

    def compose(app: Any) -> None:
        app.add_flow(source(app, values), sink(app, seen))

    record(compose, tmp_path / "a.mcap", ["source.out"])
    play(compose, tmp_path / "a.mcap")
    for tensors, mixed in (seen[:2], seen[2:]):
        assert type(tensors) is TensorMap
        assert {key: type(value) for key, value in mixed.items()} == {
            "array": np.ndarray,
            "tensor": Tensor,
            "n": int,
        }
        assert list(tensors) == ["frame", "mask"]
        assert np.asarray(tensors["frame"]).tolist() == [0, 1, 2, 3]
        assert np.asarray(tensors["mask"]).dtype == bool
        assert np.asarray(mixed["tensor"]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("pattern", "ports"),
    [
        ("work[results].out", {"work[results].out"}),
        ("work[results]", {"work[results].out"}),
        ("work[[]*", {"work[results].out"}),
        ("wor[k].out", {"work.out"}),
        ("wor?", {"work.out"}),
        ("work*.out", {"work.out", "work[results].out"}),
    ],
)
def test_brackets_in_a_pattern_are_those_of_a_name_or_several_characters(
    pattern: str, ports: set[str]
) -> None:
    names = [("work", "out"), ("work[results]", "out"), ("workr", "in")]
    found = {f"{operator}.{port}" for operator, port in names if matches(pattern, operator, port)}
    assert found - {"workr.in"} == ports


@pytest.mark.parametrize("played", [["m"], ["m[0]"], ["m*"], None])
def test_any_part_of_a_replicated_operator_stands_for_what_it_sent(played: Any, tmp_path: Path) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        def body(self: Any, i: Any, o: Any) -> None:
            o.emit(i.receive("in"), "out")

        middle = Step(app, inputs=["in"], outputs=["out"], body=body, name="m", workers=2)
        app.add_flow(source(app, range(8)), middle)
        app.add_flow(middle, sink(app, taken))
        app.add_flow(
            middle, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="end", workers=2)
        )

    record(compose, tmp_path / "a.mcap")
    play(compose, tmp_path / "a.mcap", "fast", ports=played)
    assert taken == [*range(8)] * 2
    with pytest.raises(GraphError, match="nothing to play: 'end' has no output"):
        play(compose, tmp_path / "a.mcap", ports=["end"])


# What a recorder refuses, and what happens to what it cannot finish.


def test_a_source_of_messages_is_closed_at_the_end_of_each_run() -> None:
    class Source(MessageList):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    messages = Source([RecordedMessage(RecordedPort("source", "out"), 0, 0, 0, None, None, 5)])
    taken: list[int] = []
    app = App(lambda app: app.add_flow(source(app, [1]), sink(app, taken)))
    replay(app, messages, "fast")
    app.run()
    app.run()
    assert (taken, messages.closed) == ([5, 5], 2)


def test_an_unknown_port_is_an_error_that_lists_the_ports(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1]), sink(app, []))

    with pytest.raises(PortError, match="no port is named 'cam.out'; 'App' has source.out, sink.in"):
        record(compose, tmp_path / "a.mcap", ["cam.out"])
    assert not (tmp_path / "a.mcap").exists()


def test_an_object_that_needs_pickle_ends_the_run_with_its_port_and_type(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1, {2}]), sink(app, []))

    with pytest.raises(PayloadError, match="operator 'source', output 'out': an object of the type set"):
        record(compose, tmp_path / "a.mcap", ["source.out"])
    assert [one.data for one in Recording(tmp_path / "a.mcap")] == [1]


def test_pickled_objects_are_played_only_on_request(tmp_path: Path) -> None:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.add_flow(source(app, [{1, 2}]), sink(app, taken))

    record(compose, tmp_path / "a.mcap", ["source.out"], pickle=True)
    with pytest.raises(RecordingError, match="message 0 of 'source.out': it holds a pickled 'set'"):
        play(compose, tmp_path / "a.mcap")
    play(compose, tmp_path / "a.mcap", pickle=True)
    assert taken == [{1, 2}] * 2


def test_what_is_changed_after_it_was_emitted_is_recorded_as_it_was(tmp_path: Path) -> None:
    array = np.zeros(3)
    shared: dict[str, Any] = {"list": [1]}

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(array, "out")
        op_output.emit((shared,), "other")
        array[...] += 1
        shared["list"].append(2)

    def compose(app: Any) -> None:
        app.add_operator(
            Step(app, CountCondition(app, 2), outputs=["out", "other"], body=body, name="source")
        )

    record(compose, tmp_path / "a.mcap", ["source"])
    recording = Recording(tmp_path / "a.mcap")
    assert [one.data.tolist() for one in recording.messages("source.out")] == [[0, 0, 0], [1, 1, 1]]
    assert [one.data for one in recording.messages("source.other")] == [({"list": [1]},), ({"list": [1, 2]},)]


def test_a_run_that_fails_leaves_its_recording(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        def fail(self: Any, op_input: Any, op_output: Any) -> None:
            if op_input.receive("in") == 2:
                raise RuntimeError("broken")

        app.add_flow(source(app, [1, 2, 3]), Step(app, inputs=["in"], body=fail, name="sink"))

    with pytest.raises(RuntimeError, match="broken"):
        record(compose, tmp_path / "a.mcap", ["source.out", "sink.in"])
    recording = Recording(tmp_path / "a.mcap")
    assert recording.is_complete
    assert [one.data for one in recording.messages("sink.in")] == [1, 2]


def test_the_runs_of_one_recorder_have_files_of_their_own(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        app.add_flow(source(app, [1]), sink(app, []))

    app = App(compose)
    watch(app, PortRecorder(tmp_path / "a.mcap"))
    app.run()
    app.run()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-2.mcap", "a.mcap"]


# What a replay refuses.


def test_a_replay_names_what_does_not_fit_the_graph(tmp_path: Path) -> None:
    def recorded(app: Any) -> None:
        app.add_flow(source(app, [1], name="camera"), sink(app, []))

    def renamed(app: Any) -> None:
        app.add_flow(source(app, [1], name="webcam"), sink(app, []))

    record(recorded, tmp_path / "a.mcap", ["camera.out"])
    with pytest.raises(GraphError, match="there is no operator 'camera'; there are.*'webcam'"):
        play(renamed, tmp_path / "a.mcap")
    record(recorded, tmp_path / "b.mcap", ["sink.in"])
    with pytest.raises(GraphError, match="has nothing to play: it has no outputs"):
        play(recorded, tmp_path / "b.mcap")
    with pytest.raises(GraphError, match="has nothing named x to play: it has the outputs 'camera.out'"):
        play(recorded, tmp_path / "a.mcap", ports=["x"])
    with pytest.raises(ValueError, match="pace of a replay must be one of 'recorded', 'fast', not 'slow'"):
        play(recorded, tmp_path / "a.mcap", "slow")


def test_a_connected_output_that_was_not_recorded_is_an_error(tmp_path: Path) -> None:
    def compose(app: Any) -> None:
        split = Step(
            app,
            CountCondition(app, 1),
            outputs=["left", "right"],
            body=lambda self, i, o: (o.emit(1, "left"), o.emit(2, "right")),
            name="split",
        )
        app.add_flow(split, sink(app, [], name="a"), {("left", "in")})
        app.add_flow(split, sink(app, [], name="b"), {("right", "in")})

    record(compose, tmp_path / "a.mcap", ["split.left"])
    with pytest.raises(
        GraphError, match="'split' cannot be replaced.*output 'right' is connected and was not"
    ):
        play(compose, tmp_path / "a.mcap")


def test_an_operator_in_a_thread_pool_is_replaced_there(tmp_path: Path, scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        camera = source(app, [1, 2], name="camera")
        blur = through(app, name="blur")
        app.make_thread_pool("pool", 1).add([camera, blur], False)
        app.add_flow(camera, blur)
        app.add_flow(blur, sink(app, taken))

    first = App(compose, scheduler)
    watch(first, PortRecorder(tmp_path / "a.mcap", ["blur.out"]))
    first.run()
    second = App(compose, scheduler)
    replay(second, tmp_path / "a.mcap")
    second.run()
    assert taken == [1, 2] * 2


def test_a_disk_that_is_full_leaves_the_messages_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry = RecordingWriter.carry

    def carry_two(self: RecordingWriter, message: Any) -> None:
        if message.sequence == 2:
            raise OSError(28, "No space left on device")
        carry(self, message)

    monkeypatch.setattr(RecordingWriter, "carry", carry_two)
    with pytest.raises(OSError, match="No space left on device"):
        record(
            lambda app: app.add_flow(detailed(app, VALUES), sink(app, [])),
            tmp_path / "a.mcap",
            ["source.out"],
        )
    recording = Recording(tmp_path / "a.mcap")
    assert (len(recording), recording.is_complete) == (2, False)


def test_operators_wait_while_more_is_to_be_written_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    waits: list[tuple[int, int]] = []
    carry, wait_until = RecordingWriter.carry, Delivery.wait_until

    def held_carry(*arguments: Any) -> None:
        may_write.wait(PATIENCE)
        carry(*arguments)

    def noted_wait(self: Delivery, is_so: Any, seconds: Any = None) -> None:
        before = self.nbytes
        may_write.set()
        wait_until(self, is_so, seconds)
        waits.append((before, self.nbytes))

    monkeypatch.setattr(RecordingWriter, "carry", held_carry)
    monkeypatch.setattr(Delivery, "wait_until", noted_wait)
    arrays = [np.zeros(1000, np.uint8) for _ in range(3)]
    app = App(lambda app: app.add_flow(source(app, arrays), sink(app, [])))
    watch(app, PortRecorder(tmp_path / "a.mcap", max_pending=2500))
    app.run()
    assert waits[0][0] == 3000
    assert waits[0][1] <= 2500
    assert len(Recording(tmp_path / "a.mcap")) == 3


def test_without_mcap_a_recorder_says_how_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("recording_format", "recording_writer", "recording"):
        monkeypatch.delitem(sys.modules, f"headrace.observe.recordings.{name}", raising=False)
        monkeypatch.delattr(f"headrace.observe.recordings.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "mcap", None)
    with pytest.raises(
        ImportError, match=r"mcap is needed for recordings: pip install '(\.|headrace)\[record\]'"
    ):
        PortRecorder(tmp_path / "a.mcap")
    app = App(lambda app: app.add_flow(source(app, [1]), sink(app, [])))
    with pytest.raises(
        ImportError, match=r"mcap is needed for recordings: pip install '(\.|headrace)\[record\]'"
    ):
        replay(app, tmp_path / "a.mcap")
    PortRecorder(Carrier())  # which needs no files
