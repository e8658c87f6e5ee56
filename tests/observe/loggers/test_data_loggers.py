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
from headrace.observe import (
    AsyncDataLoggerResource,
    AsyncQueuePolicy,
    ConsoleLogger,
    DataLogger,
    DataLoggerResource,
    SimpleTextSerializer,
    TensorCopy,
)
from headrace.observe.recordings.delivery import Delivery
from headrace.resources import UnboundedAllocator
from headrace.tensor import Tensor, TensorMap
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

INPUT, OUTPUT = IOSpec.IOType.INPUT, IOSpec.IOType.OUTPUT


class Listing(DataLoggerResource):
    """Keeps what it is shown."""

    def __init__(self, fragment: Any = None, **options: Any) -> None:
        super().__init__(fragment, **options)
        self.seen: list[Any] = []

    def log_data(
        self,
        data: Any,
        unique_id: str,
        acquisition_timestamp: int = -1,
        metadata: Any = None,
        io_type: Any = OUTPUT,
        stream: Any = None,
    ) -> bool:
        self.seen.append((unique_id, io_type, data, acquisition_timestamp, metadata))
        return True


class AsyncListing(AsyncDataLoggerResource):
    """Keeps what it is shown, and on which thread."""

    def __init__(self, fragment: Any = None, **options: Any) -> None:
        super().__init__(fragment, **options)
        self.seen: list[Any] = []
        self.times: list[int] = []
        self.threads: set[str] = set()

    def log_data(self, data: Any, unique_id: str, *args: Any) -> bool:
        self.seen.append((unique_id, data))
        self.times.append(self.get_timestamp())
        self.threads.add(threading.current_thread().name)
        return True


def run_with(logger: DataLogger, compose: Any) -> App:
    app = App(compose)
    app.add_data_logger(logger)
    app.run()
    return app


def two(app: Any) -> None:
    app.add_flow(source(app, [1, 2]), sink(app, []))


def test_a_logger_in_plain_python_sees_every_message() -> None:
    logger = Listing()
    run_with(logger, two)
    assert logger.seen == [
        ("source.out", OUTPUT, 1, -1, None),
        ("sink.in", INPUT, 1, -1, None),
        ("source.out", OUTPUT, 2, -1, None),
        ("sink.in", INPUT, 2, -1, None),
    ]


def test_loggers_of_compose_belong_to_one_run_and_others_to_all() -> None:
    made: list[Listing] = []

    def compose(app: Any) -> None:
        made.append(Listing(app, log_inputs=False))
        app.add_data_logger(made[-1])
        two(app)

    lasting = Listing(log_inputs=False)
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
    with pytest.raises(TypeError, match=r"create one first: ConsoleLogger\(self\)"):
        app.add_data_logger(ConsoleLogger)


def test_timestamps_and_metadata_are_shown() -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["key"] = 7
        op_output.emit("x", "out", acq_timestamp=123)

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), outputs=["out"], body=body, name="source"))

    shown, hidden = Listing(), Listing(log_metadata=False)
    run_with(shown, compose)
    run_with(hidden, compose)
    assert shown.seen == [("source.out", OUTPUT, "x", 123, {"key": 7})]
    assert hidden.seen == [("source.out", OUTPUT, "x", 123, None)]


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, {"source.out", "merge.in:0", "merge.in:1", "other.out"}),
        ({"log_inputs": False}, {"source.out", "other.out"}),
        ({"log_outputs": False}, {"merge.in:0", "merge.in:1"}),
        ({"allowlist_patterns": ["our"]}, {"source.out"}),
        ({"denylist_patterns": [r"\.in"]}, {"source.out", "other.out"}),
        (
            {"allowlist_patterns": ["out$", "in:1"], "denylist_patterns": ["^other"]},
            {"source.out", "merge.in:1"},
        ),
        ({"allowlist_patterns": ["source"], "denylist_patterns": ["source"]}, set()),
    ],
)
def test_filters_choose_ports(options: dict[str, Any], ids: set[str]) -> None:
    def compose(app: Any) -> None:
        merge = Step(
            app,
            inputs=[("in", {"size": IOSpec.ANY_SIZE})],
            body=lambda self, i, o: i.receive("in"),
            name="merge",
        )
        app.add_flow(source(app, [1]), merge)
        app.add_flow(source(app, [2], name="other"), merge)

    logger = Listing(**options)
    run_with(logger, compose)
    assert {one[0] for one in logger.seen} == ids


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'listing': denylist_patterns: '\(' is not a regular expression"):
        Listing(denylist_patterns=["("])


def test_tensors_have_methods_of_their_own() -> None:
    class Sorting(Listing):
        def log_tensor_data(self, data: Any, *args: Any) -> bool:
            self.seen.append(("tensor", type(data)))
            return True

        def log_tensormap_data(self, data: Any, *args: Any) -> bool:
            self.seen.append(("map", type(data)))
            return True

    from headrace import as_tensor

    logger = Sorting(log_inputs=False)
    values = [as_tensor(np.zeros(2)), TensorMap(a=np.zeros(2)), {"a": np.zeros(2)}, np.zeros(2), 5]
    run_with(logger, lambda app: app.add_flow(source(app, values), sink(app, [])))
    assert logger.seen[:2] == [("tensor", Tensor), ("map", TensorMap)]
    assert [type(one[2]) for one in logger.seen[2:]] == [dict, np.ndarray, int]


def test_a_logger_that_fails_is_left_out_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Listing):
        def log_data(self, *args: Any, **options: Any) -> bool:
            self.seen.append(args)
            raise RuntimeError("full disk")

    failing, other, taken = Failing(name="failing"), Listing(), []

    def compose(app: Any) -> None:
        app.add_flow(source(app, [1, 2]), sink(app, taken))

    app = App(compose)
    app.add_data_logger(failing)
    app.add_data_logger(other)
    app.run()
    assert taken == [1, 2]
    assert len(failing.seen) == 1
    assert len(other.seen) == 4
    assert "'failing' raised for source.out, and logs no more" in caplog.text


# Asynchronous loggers.


def test_an_asynchronous_logger_is_called_on_its_own_thread() -> None:
    logger = AsyncListing(name="mine")
    run_with(logger, two)
    assert logger.seen == [("source.out", 1), ("sink.in", 1), ("source.out", 2), ("sink.in", 2)]
    assert logger.threads == {"mine"}


def test_an_asynchronous_logger_sees_arrays_as_they_were_emitted() -> None:
    array = np.zeros(2)

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(array, "out")
        array[...] += 1

    def compose(app: Any) -> None:
        app.add_operator(Step(app, CountCondition(app, 3), outputs=["out"], body=body, name="source"))

    logger = AsyncListing()
    run_with(logger, compose)
    assert [data.tolist() for _, data in logger.seen] == [[0, 0], [1, 1], [2, 2]]


class Held(AsyncListing):
    """Waits with its first message until it is let go."""

    def __init__(self, **options: Any) -> None:
        super().__init__(log_inputs=False, **options)
        self.began, self.go = threading.Event(), threading.Event()

    def log_data(self, *args: Any) -> bool:
        self.began.set()
        self.go.wait()
        return super().log_data(*args)


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
    logger = Held(max_queue_size=2, name="slow")
    held_run(logger, 6)
    assert [data for _, data in logger.seen] == [1, 2, 3]
    assert logger.dropped == 3
    assert "'slow' dropped 3 messages: it is slower" in caplog.text


def test_a_full_queue_may_raise_in_the_operator() -> None:
    logger = Held(max_queue_size=1, queue_policy=AsyncQueuePolicy.RAISE, name="slow")
    with pytest.raises(
        QueueFullError, match="'slow' has 1 messages to log, and another comes from 'source.out'"
    ):
        held_run(logger, 6)


def test_operators_may_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = Held(max_queue_size=2, queue_policy=AsyncQueuePolicy.WAIT)
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
    logger = Held(shutdown_wait_period_ms=0, name="slow")

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
    logger = AsyncListing()
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

    logger = AsyncListing(log_inputs=False)
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

    logger = AsyncListing()
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

    logger = AsyncListing()
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


@pytest.mark.parametrize(
    ("kind", "label", "begin", "end"),
    [
        (
            TensorMap,
            "[Category:TensorMap][Type Name: headrace.TensorMap][Stream: none]",
            "TensorMap(size=1) {'t': Tensor(shape=[2, 3], dtype=kDLFloat:32:1, device=kDLCPU:0, size=6, ",
            ")}",
        ),
        (
            dict,
            "[Category:Message][Type Name: dict][Stream: none]",
            "Python(dict, size=1): {'t': Python(ndarray): shape=[2, 3], dtype=float32, ",
            "}",
        ),
    ],
)
def test_a_console_logger_prints_a_line_for_each_message(
    lines: Any, kind: Any, label: str, begin: str, end: str
) -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["k"] = 1
        message = kind(t=np.arange(6, dtype=np.float32).reshape(2, 3))
        op_output.emit(message, "out", acq_timestamp=55)

    def compose(app: Any) -> None:
        tx = Step(app, CountCondition(app, 1), outputs=["out"], body=body, name="tx")
        app.add_flow(tx, sink(app, [], name="rx"))

    app = App(compose)
    app.add_data_logger(ConsoleLogger(app))
    app.run()
    metadata = "MetadataDictionary(size=1) {'k': Python(int): 1}"
    if kind is TensorMap:
        begin += "nbytes=24, C-contiguous=true, "
    text = f"{begin}data=[0.000000, 1.000000, 2.000000, 3.000000, 4.000000, 5.000000]{end}"
    assert lines() == [
        f"ConsoleLogger[ID:tx.out][Acquisition Timestamp:55][Emit Timestamp:0]{label} {text}\n{metadata}",
        f"ConsoleLogger[ID:rx.in][Acquisition Timestamp:55][Receive Timestamp:0]{label} {text}\n{metadata}",
    ]


def test_console_lines_are_in_order_with_frames_of_a_device(machine: sim.Machine, lines: Any) -> None:
    def compose(app: Any) -> None:
        producer = Producer(app, CountCondition(app, 5), name="producer")
        app.add_flow(producer, Consumer(app, name="consumer"))
        app.add_flow(source(app, range(5), name="plain"), sink(app, []))

    run_with(ConsoleLogger(log_inputs=False), compose)
    produced = [line for line in lines() if "ID:producer.out" in line]
    assert [int(line.partition("data=[")[2].partition(",")[0]) for line in produced] == list(range(5))
    assert len([line for line in lines() if "ID:plain.out" in line]) == 5
    assert produced[0].startswith("ConsoleLogger[ID:producer.out]")
    assert "device=kDLCUDA:0" in produced[0]


def test_contents_may_be_left_out(machine: sim.Machine, lines: Any) -> None:
    def compose(app: Any) -> None:
        app.add_flow(
            source(app, [{"x": np.zeros(3)}, TensorMap(x=np.zeros(3)), [np.zeros(3)]]), sink(app, [])
        )

    run_with(ConsoleLogger(log_tensor_data_content=False), compose)
    assert lines()
    assert all("data=" not in line for line in lines())


@pytest.mark.parametrize(
    ("options", "value", "text"),
    [
        ({}, 5, "Python(int): 5"),
        ({}, "x", "Python(str): 'x'"),
        ({"max_elements": 2}, [1, 2, 3], "Python(list, size=3): [Python(int): 1, Python(int): 2, ...]"),
        ({"max_elements": 1}, {"a": 1, "b": 2}, "Python(dict, size=2): {'a': Python(int): 1, ...}"),
        ({"log_python_object_contents": False}, [1], "Python(list)"),
        ({"max_elements": 2}, np.arange(3), "Python(ndarray): shape=[3], dtype=int64, data=[0, 1, ...]"),
    ],
)
def test_objects_are_written_as_text(options: dict[str, Any], value: Any, text: str) -> None:
    assert SimpleTextSerializer(**options).serialize_to_string(value) == text


def test_metadata_is_written_up_to_a_number_of_items() -> None:
    serializer = SimpleTextSerializer(max_metadata_items=1)
    text = serializer.serialize_metadata_to_string({"a": True, "b": 2})
    assert text == "MetadataDictionary(size=2) {'a': Python(bool): True, ...}"


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
    assert [line.partition("[Acq")[0] for line in lines()] == [
        "HEADRACE_LOG[ID:middle.out]",
        "HEADRACE_LOG[ID:sink.in]",
    ] * 2


def test_a_pattern_of_the_environment_that_names_no_port_is_reported(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    monkeypatch.setenv("HEADRACE_LOG", "camera.out")
    run(two)
    assert lines() == ["HEADRACE_LOG=camera.out names no port of the application"]
