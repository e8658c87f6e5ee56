"""Data loggers: which messages they are shown, on which thread, and what happens if they are slow or fail."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace.conditions import CountCondition
from headrace.core import IOSpec, QueueFullError
from headrace.gpu import sim
from headrace.observe import ConsoleLogger, DataLogger, LoggedMessage, TensorCopy
from headrace.observe.recordings.delivery import Delivery
from headrace.resources import UnboundedAllocator
from headrace.tensor import TensorMap
from tests.harness import (
    MS,
    App,
    Consumer,
    Producer,
    Step,
    frame,
    launch,
    run,
    sink,
    source,
    through,
    write_frame,
)

pytestmark = pytest.mark.usefixtures("no_device_yet")  # most of these programs use no device


class Listing(DataLogger):
    """Keeps what it is shown, and on which thread."""

    def __init__(self, ports: Any = None, **options: Any) -> None:
        super().__init__(ports, **options)
        self.seen: list[tuple[str, Any]] = []
        self.messages: list[LoggedMessage] = []
        self.threads: set[str] = set()

    def log(self, message: LoggedMessage) -> None:
        self.seen.append((message.port.name, message.data))
        self.messages.append(message)
        self.threads.add(threading.current_thread().name)


class Outputs(Listing):
    """Keeps what is emitted."""

    def wants(self, port: Any) -> bool:
        return bool(port.is_output)


def run_with(logger: DataLogger, compose: Any) -> App:
    app = App(compose)
    app.add_data_logger(logger)
    app.run()
    return app


def two(app: Any) -> None:
    app.add_flow(source(app, [1, 2]), sink(app, []))


@pytest.mark.parametrize("copies", [False, True])
def test_a_logger_sees_every_message(copies: bool) -> None:
    logger = Listing(copies=copies, name="mine")
    run_with(logger, two)
    assert logger.seen == [("source.out", 1), ("sink.in", 1), ("source.out", 2), ("sink.in", 2)]
    assert [one.port.is_output for one in logger.messages] == [True, False] * 2
    assert (logger.threads == {"mine"}) is copies


def test_loggers_of_compose_belong_to_one_run_and_others_to_all() -> None:
    made: list[Listing] = []

    def compose(app: Any) -> None:
        made.append(Outputs())
        app.add_data_logger(made[-1])
        two(app)

    lasting = Outputs()
    app = App(compose)
    app.add_data_logger(lasting)
    app.run()
    app.run()
    assert [len(logger.seen) for logger in made] == [2, 2]
    assert len(lasting.seen) == 4
    assert app.data_loggers == [lasting, made[1]]


def test_what_is_not_a_logger_is_refused() -> None:
    app = App(two)
    with pytest.raises(TypeError, match="takes a headrace.observe.DataLogger, not 'x'"):
        app.add_data_logger("x")
    with pytest.raises(TypeError, match=r"create one first: ConsoleLogger\(\)"):
        app.add_data_logger(ConsoleLogger)


def test_timestamps_and_metadata_are_shown() -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["key"] = 7
        op_output.emit("x", "out", acq_timestamp=123)

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), outputs=["out"], body=body, name="source"))

    logger = Listing(copies=False)
    run_with(logger, compose)
    ((port, time, acquired, metadata, stream, data),) = logger.messages
    assert (port.name, time, acquired, metadata, stream, data) == (
        "source.out",
        0,
        123,
        {"key": 7},
        None,
        "x",
    )


@pytest.mark.parametrize(
    ("ports", "ids"),
    [
        (None, {"source.out", "merge.in:0", "merge.in:1", "other.out"}),
        ("*.out", {"source.out", "other.out"}),
        (["merge", "so*.out"], {"merge.in:0", "merge.in:1", "source.out"}),
        ([], set()),
    ],
)
def test_patterns_choose_ports(ports: Any, ids: set[str]) -> None:
    def compose(app: Any) -> None:
        merge = Step(
            app,
            inputs=[("in", {"size": IOSpec.ANY_SIZE})],
            body=lambda self, i, o: i.receive("in"),
            name="merge",
        )
        app.add_flow(source(app, [1]), merge)
        app.add_flow(source(app, [2], name="other"), merge)

    logger = Listing(ports)
    run_with(logger, compose)
    assert {one[0] for one in logger.seen} == ids


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        ValueError, match="'Listing': when_full must be one of 'wait', 'drop', 'raise', not 'x'"
    ):
        Listing(when_full="x")


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Listing):
        def log(self, message: LoggedMessage) -> None:
            super().log(message)
            raise RuntimeError("full disk")

    here, later, other, taken = Failing(copies=False, name="here"), Failing(name="later"), Listing(), []

    def compose(app: Any) -> None:
        app.add_flow(source(app, [1, 2]), sink(app, taken))

    app = App(compose)
    for logger in (here, later, other):
        app.add_data_logger(logger)
    app.run()
    assert taken == [1, 2]
    assert [len(logger.seen) for logger in (here, later, other)] == [1, 1, 4]
    assert "'here' raised for source.out, and logs no more" in caplog.text
    assert "'later' failed, and logged no more" in caplog.text


# Copies.


def test_a_logger_sees_arrays_as_they_were_emitted() -> None:
    array = np.zeros(2)

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(array, "out")
        array[...] += 1

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 3), outputs=["out"], body=body, name="source"))

    logger = Listing()
    run_with(logger, compose)
    assert [data.tolist() for _, data in logger.seen] == [[0, 0], [1, 1], [2, 2]]


class Held(Outputs):
    """Waits with its first message until it is let go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.began, self.go = threading.Event(), threading.Event()

    def log(self, message: LoggedMessage) -> None:
        self.began.set()
        self.go.wait()
        super().log(message)


def held_run(logger: Held, count: int) -> None:
    """Emit messages while the logger holds the first, and let it go at the end."""

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out")
        if self.ticks == 1:
            logger.began.wait()

    class Source(Step):
        def stop(self) -> None:
            logger.go.set()

    def compose(app: Any) -> None:
        app.add_operator(Source(app, CountCondition(app, count), outputs=["out"], body=body, name="source"))

    run_with(logger, compose)


def test_messages_that_find_no_room_are_counted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    logger = Held(max_waiting=2, when_full="drop", name="slow")
    held_run(logger, 6)
    assert [data for _, data in logger.seen] == [1, 2, 3]
    assert logger.dropped == 3
    assert "'slow' dropped 3 messages: it is slower" in caplog.text


def test_a_full_queue_may_raise_in_the_operator() -> None:
    logger = Held(max_waiting=1, when_full="raise", name="slow")
    with pytest.raises(
        QueueFullError, match="'slow' has 1 messages to log, and another comes from 'source.out'"
    ):
        held_run(logger, 6)


def test_operators_may_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = Held(max_waiting=2)
    wait_until = Delivery.wait_until

    def let_go(self: Delivery, is_so: Any, seconds: Any = None) -> None:
        if len(self) == 2:
            logger.go.set()
        wait_until(self, is_so, seconds)

    monkeypatch.setattr(Delivery, "wait_until", let_go)
    held_run(logger, 6)
    assert [data for _, data in logger.seen] == [1, 2, 3, 4, 5, 6]
    assert logger.dropped == 0


def test_the_end_of_a_run_waits_only_as_long_as_it_should(caplog: pytest.LogCaptureFixture) -> None:
    logger = Held(end_timeout=0, name="slow")

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(self.ticks, "out")
        logger.began.wait()

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 4), outputs=["out"], body=body, name="source"))

    run_with(logger, compose)
    logger.go.set()
    assert logger.dropped == 3
    assert "dropped 3 messages" in caplog.text


# The device.


def numbers(app: Any) -> None:
    app.consumer = Consumer(app, name="consumer")
    app.add_flow(Producer(app, CountCondition(app, 30), name="producer"), app.consumer)


def test_frames_of_a_device_are_copied_when_their_work_is_done(machine: sim.Machine) -> None:
    logger = Listing()
    app = run_with(logger, numbers)
    assert app.consumer.seen == list(range(30))
    for port in ("producer.out", "consumer.in"):
        frames = [data for unique_id, data in logger.seen if unique_id == port]
        assert [int(one.elements().view(np.int64)[0]) for one in frames] == list(range(30))
        assert all(isinstance(one, TensorCopy) for one in frames)


@pytest.mark.filterwarnings("ignore::headrace.core.errors.ResentMemoryWarning")
def test_nobody_overwrites_a_frame_before_it_was_copied(machine: sim.Machine) -> None:
    """A producer uses one buffer for all frames, and a consumer writes to it in place."""

    class Reusing(Producer):
        def start(self) -> None:
            super().start()
            self.data: Any = None

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("mine")
            op_output.set_cuda_stream(stream, "out")
            if self.data is None:
                self.data = frame(stream)
            write_frame(stream, MS, self.data, self.number)
            op_output.emit(self.data, "out")
            self.number += 1

    class Spoiling(Consumer):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            write_frame(stream, 0, data, -1)

    def compose(app: Any) -> None:
        app.add_flow(Reusing(app, CountCondition(app, 10), name="producer"), Spoiling(app, name="consumer"))

    logger = Outputs()
    app = App(compose)
    app.add_data_logger(logger)
    app.run()
    assert [int(data.elements().view(np.int64)[0]) for _, data in logger.seen] == list(range(10))


def test_a_host_array_is_copied_after_the_work_that_fills_it(machine: sim.Machine) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        target, number = np.zeros(1), self.ticks
        launch(stream, MS, lambda: target.fill(number))
        op_output.emit([target], "out")

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 5), outputs=["out"], body=body, name="source"))

    logger = Listing()
    run_with(logger, compose)
    assert [data[0].tolist() for _, data in logger.seen] == [[1], [2], [3], [4], [5]]


def test_frames_are_let_go_after_they_were_logged(machine: sim.Machine) -> None:
    allocations: list[weakref.ref[Any]] = []

    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("mine")
        op_output.set_cuda_stream(stream, "out")
        tensor = self.pool.allocate_tensor((4,), np.float32, "device", stream=stream)
        allocations.append(weakref.ref(tensor.owner))
        op_output.emit({"frame": tensor}, "out")

    def compose(app: Any) -> None:
        producer = Step(app, CountCondition(app, 5), outputs=["out"], body=body, name="producer")
        producer.pool = UnboundedAllocator(app)
        app.add_flow(producer, sink(app, [], name="other"))

    def dropping(app: Any) -> None:
        compose(app)
        app.graph.find("other")._body = lambda self, i, o: i.receive("in") and None

    logger = Listing()
    run_with(logger, dropping)
    assert len(logger.seen) == 10
    gc.collect()
    assert [ref() for ref in allocations] == [None] * 5


# Console loggers.


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    level = logging.getLogger("headrace.data").level
    yield lambda: [record.getMessage() for record in caplog.records if record.name == "headrace.data"]
    logging.getLogger("headrace.data").setLevel(level)


def test_a_console_logger_prints_a_line_for_each_message(lines: Any) -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["k"] = 1
        message = TensorMap(t=np.arange(6, dtype=np.float32).reshape(2, 3))
        op_output.emit(message, "out", acq_timestamp=55)

    def compose(app: Any) -> None:
        tx = Step(app, CountCondition(app, 1), outputs=["out"], body=body, name="tx")
        app.add_flow(tx, sink(app, [], name="rx"))

    run_with(ConsoleLogger(), compose)
    text = "at 0 ns, acquired at 55 ns, metadata {'k': 1}: {'t': float32 (2, 3) on cpu: [0., 1., 2., 3., 4., 5.]}"
    assert lines() == [f"tx.out emits {text}", f"rx.in receives {text}"]


def test_console_lines_are_in_order_with_frames_of_a_device(machine: sim.Machine, lines: Any) -> None:
    def compose(app: Any) -> None:
        producer = Producer(app, CountCondition(app, 5), name="producer")
        app.add_flow(producer, Consumer(app, name="consumer"))
        app.add_flow(source(app, range(5), name="plain"), sink(app, []))

    run_with(ConsoleLogger("*.out"), compose)
    produced = [
        line.partition(" on cuda:0: ") for line in lines() if line.startswith("producer.out emits at ")
    ]
    assert [int(elements.strip("[").partition(",")[0].strip("]")) for _, _, elements in produced] == list(
        range(5)
    )
    assert len([line for line in lines() if line.startswith("plain.out")]) == 5


def test_contents_may_be_left_out(machine: sim.Machine, lines: Any) -> None:
    def compose(app: Any) -> None:
        app.add_flow(
            source(app, [{"x": np.zeros(3)}, TensorMap(x=np.zeros(3)), [np.zeros(3)]]), sink(app, [])
        )

    run_with(ConsoleLogger(contents=False), compose)
    texts = {line.partition("ns: ")[2] for line in lines()}
    assert texts == {"{'x': float64 (3,) on cpu}", "[float64 (3,) on cpu]"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("x", "'x'"),
        ([1, 2, 3], "[1, 2, ...]"),
        ({"a": 1, "b": (2, 3), "c": 4}, "{'a': 1, 'b': (2, 3), ...}"),
        (np.arange(3), "int64 (3,) on cpu: [0, 1, ...]"),
        (np.float32(1.5), repr(np.float32(1.5))),
        (np.array(7), "int64 () on cpu: [7]"),
        (np.zeros((0, 2), bool), "bool (0, 2) on cpu: []"),
    ],
)
def test_objects_are_written_as_text(lines: Any, value: Any, text: str) -> None:
    run_with(ConsoleLogger(most=2), lambda app: app.add_flow(source(app, [value]), sink(app, [])))
    assert {line.partition("ns: ")[2] for line in lines()} == {text}


# The environment.


def test_the_environment_prints_the_messages_of_ports(monkeypatch: pytest.MonkeyPatch, lines: Any) -> None:
    monkeypatch.setenv("HEADRACE_LOG", "middle.out, si*")
    middle: list[int] = []

    def compose(app: Any) -> None:
        through_ = through(app, name="middle", change=lambda value: 10 * value)
        app.add_flow(source(app, [1, 2]), through_)
        app.add_flow(through_, sink(app, middle))

    run(compose)
    assert middle == [10, 20]
    assert [line.partition(" at")[0] for line in lines()] == ["middle.out emits", "sink.in receives"] * 2


def test_a_pattern_of_the_environment_that_names_no_port_is_reported(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setenv("HEADRACE_LOG", "camera.out")
    run(two)
    assert lines() == ["HEADRACE_LOG=camera.out names no port of the application"]
