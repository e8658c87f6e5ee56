"""The compute of an operator that works on one stream, as it is from its second compute on."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakSet, ref

import pytest
from headrace._runtime.streams.in_order import Step as StepInOrder
from headrace._runtime.streams.steady_compute import steady_compute

from headrace import CountCondition, Operator, gpu, observe, op
from headrace._runtime.compiled import is_compiled
from headrace._runtime.streams import lifetimes, node_streams, owners, watch
from headrace.conditions import MemoryAvailableCondition, PeriodicCondition
from headrace.core.errors import StreamError
from headrace.gpu import sim
from headrace.gpu.allocation import Allocation
from headrace.gpu.ambient import leave, thread
from headrace.gpu.lasting_stream import LastingStream
from headrace.observe import DataFlowTracker, Watcher
from headrace.observe.events.observation import Observation
from headrace.resources import BlockMemoryPool, CudaStreamPool
from headrace.tensor import Library, register_library
from headrace.tensor.libraries import owner_sizes
from tests.harness import MS, MakeScheduler, Step, greedy, launch, run
from tests.harness.internals import node_of
from tests.harness.libraries import fresh_registry

FRAMES = 40
LONG, WARM = 400, 120  # frames until the computes are in their steady state
not_compiled = pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")


class Memory:
    size = 4096
    base: Any = None


class Array:
    def __init__(self, number: int) -> None:
        self.number = number
        self.memory = Memory()
        self.address = 0


class Here(threading.local):
    """The current stream of the library, of each thread."""

    stream: Any = None


here = Here()


class Arrays(Library):
    name = "Arrays"
    types = (Array,)
    works_on_simulated_streams = True

    def owner(self, array: Array) -> Memory:
        if array.number % 7 == 3:
            raise RuntimeError("it has none")
        return array.memory

    def begin(self, array: Array) -> int:
        return array.address

    def read_stream(self) -> Any:
        return None

    def set_stream(self, state: Any) -> None:
        here.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> None:
    fresh_registry(monkeypatch)
    register_library(Arrays())


def chain(
    function: Any,
    last: Any,
    scheduler: MakeScheduler = greedy,
    metadata: bool = False,
    watcher: Watcher | None = None,
) -> Any:
    def compose(app: Any) -> None:
        app.stream_per = "operator"
        if watcher is not None:
            observe.watch(app, watcher)
        app.enable_metadata(metadata)
        pool = CudaStreamPool(app, stream_flags=1)

        @op(outputs="out")
        def source(*, metadata: Any) -> Array:
            source.sent += 1
            if source.sent % 5 == 0:
                metadata["number"] = source.sent
            return Array(source.sent)

        source.sent = 0
        first = source(app, CountCondition(app, FRAMES), pool, name="first")
        app.middle = op(function)(app, pool, name="middle")
        app.last = op(last)(app, pool, name="last")
        app.add_flow(first, app.middle)
        app.add_flow(app.middle, app.last)

    return run(compose, scheduler)


def test_a_library_that_comes_into_use_later_has_the_stream_from_the_next_compute_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    current: list[Any] = []

    class LateArrays(Arrays):
        name = "LateArrays"
        types = (Memory,)

        def set_stream(self, state: Any) -> None:
            current.append(state)

    computes: list[int] = []

    def function(x: Array) -> Array:
        computes.append(len(current))
        if x.number == FRAMES // 2:
            register_library(LateArrays())
            monkeypatch.setitem(sys.modules, "late_arrays", ModuleType("late_arrays"))  # as an import does
        return x

    chain(function, lambda x: None)
    before, after = computes[: FRAMES // 2], computes[FRAMES // 2 :]
    assert not any(before)
    assert all(after)


@pytest.mark.parametrize("watcher", [None, Watcher()])
@pytest.mark.parametrize("metadata", [False, True])
def test_arrays_other_values_and_nothing_come_in_order(
    scheduler: MakeScheduler, metadata: bool, watcher: Watcher | None
) -> None:
    seen: list[Any] = []

    def function(x: Array) -> Any:
        kinds = {0: None, 1: x.number, 2: {"number": x.number}}
        return kinds.get(x.number % 6, Array(x.number))

    def last(x: Any) -> None:
        seen.append(x.number if isinstance(x, Array) else x["number"] if isinstance(x, dict) else x)

    chain(function, last, scheduler, metadata, watcher)
    assert seen == [number for number in range(1, FRAMES + 1) if number % 6]


@not_compiled
def test_a_tracked_compute_is_steady_until_its_stream_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    steady = node_streams.steady_compute

    def steady_compute(node: Any, *args: Any) -> Any:
        if node.name == "last":
            begun.append(numbers[-1])
        return steady(node, *args)

    monkeypatch.setattr(node_streams, "steady_compute", steady_compute)
    numbers = [0]

    def compose(app: Any) -> None:
        observe.watch(app, Watcher())
        pool = CudaStreamPool(app, stream_flags=1)

        @op(outputs="out")
        def source() -> Array:
            numbers.append(numbers[-1] + 1)
            return Array(0)

        def work(x: Array) -> None:
            launch(here.stream, MS, lambda: None)  # so long that the operators part

        first = source(app, CountCondition(app, LONG), pool, name="first")
        app.last = op(work)(app, pool, name="last")
        app.add_flow(first, app.last)

    run(compose)
    # After the first compute, and after the first one on the new stream.
    assert (begun[0], len(begun)) == (1, 2)
    assert 6 <= begun[1] <= LONG


def test_the_time_for_which_a_tracked_function_waits_is_not_its_own() -> None:
    def work(x: Array) -> Array:
        launch(here.stream, MS, lambda: None)
        return Array(1)

    tracker = DataFlowTracker()
    chain(work, work, watcher=tracker)
    for name in ("middle", "last"):
        shown = tracker.statistics.operator(name).gpu
        assert (shown.p50, shown.is_bound) == (pytest.approx(MS * 1e9), False)


class Pool:
    """A pool of one block, which is its own block."""

    address = 4096

    def give_back(self, block: Any, users: list[Any]) -> None:
        pass

    def collect(self) -> None:
        pass


@pytest.mark.parametrize("receivers", [1, 2])
@pytest.mark.parametrize("stream_per", ["operator", "branch"])
def test_functions_are_noted_as_users_of_the_memory_of_an_allocator(stream_per: str, receivers: int) -> None:
    users: list[Any] = []
    sent = itertools.count(1)

    def compose(app: Any) -> None:
        app.stream_per = stream_per
        pool = CudaStreamPool(app, stream_flags=1)

        def make() -> Array:
            array = Array(0)
            if next(sent) == FRAMES:  # when the computes are in their steady state
                array.memory.base = Allocation(Pool(), Pool(), 16, users)
                array.address = Pool.address
            return array

        first = op(outputs="out")(make)(app, CountCondition(app, FRAMES), pool, name="first")
        for number in range(receivers):
            app.add_flow(first, op(lambda x: None)(app, pool, name=f"last {number}"))

    run(compose)
    assert len(users) == receivers


def test_memory_of_an_allocator_counts_as_in_flight_in_the_compute_that_received_it() -> None:
    found: list[int] = []

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=1)

        def make() -> Array:
            array = Array(0)
            array.memory.base = Allocation(Pool(), Pool(), 16, [])
            array.address = Pool.address
            return array

        def last(x: Array, *, context: Any) -> None:
            found.append(context.frames_in_flight)

        first = op(outputs="out")(make)(app, CountCondition(app, FRAMES), pool, name="first")
        app.add_flow(first, op(last)(app, pool, name="last"))

    run(compose)
    assert found == [1] * FRAMES


def test_a_watcher_around_a_function_is_called_in_every_compute() -> None:
    class Around(Watcher):
        def __init__(self) -> None:
            self.calls = 0

        def around(self, operator: Any, compute: Any) -> Any:
            def called(*args: Any) -> None:
                self.calls += operator.name == "middle"
                compute(*args)

            return called

    watcher = Around()
    chain(lambda x: Array(x.number), lambda x: None, watcher=watcher)
    assert watcher.calls == FRAMES


class Plain(Operator):
    """Does the same as a function, with `receive` and `emit`."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        threads.append(threading.get_ident())
        op_output.emit(Array(op_input.receive("in").number), "out")


class WithStream(Plain):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        threads.append(threading.get_ident())
        data = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        op_output.emit(Array(data.number), "out")


@op
def function(x: Array) -> Array:
    threads.append(threading.get_ident())
    return Array(x.number)


threads: list[int] = []


class Batches(Watcher):
    """Keeps what it is shown of each operator."""

    def __init__(self) -> None:
        self.of: dict[str, list[Any]] = {"first": [], "middle": [], "last": []}

    def computed(self, batch: Any) -> None:
        self.of[batch.operator.name].append(batch)

    def all(self, name: str, what: Callable[[Any], Any]) -> list[int]:
        return [int(each) for batch in self.of[name] for each in what(batch)]


def tracked(make: Any, watcher: Watcher, scheduler: MakeScheduler = greedy) -> Any:
    """Run three operators in a row, of which the one in the middle is made by `make`, and return the outcome."""

    def compose(app: Any) -> None:
        observe.watch(app, watcher)
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: Array(0))(app, CountCondition(app, FRAMES), pool, name="first")
        middle = make(app, pool, name="middle")
        app.add_flow(first, middle)
        app.add_flow(middle, op(lambda x: None)(app, pool, name="last"))

    threads.clear()
    return run(compose, scheduler).outcome


@pytest.mark.parametrize("make", [function, Plain, WithStream])
def test_a_tracked_compute_takes_three_times(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1).__next__
    monkeypatch.setattr(Observation, "_choose_clock", lambda self, engine: setattr(self, "_now", ticks))
    watcher = Batches()
    watcher.wants_gpu_times = False
    tracked(make, watcher)
    started = watcher.all("middle", attrgetter("started"))[FRAMES // 2 :]
    ended = watcher.all("middle", attrgetter("ended"))[FRAMES // 2 :]
    received = watcher.all("middle", lambda batch: batch.arrivals[0].received)[FRAMES // 2 :]
    emitted = watcher.all("last", lambda batch: batch.arrivals[0].emitted)[FRAMES // 2 :]
    assert {end - start for start, end in zip(started, ended, strict=True)} == {2}
    assert received == started
    assert emitted == [end - 1 for end in ended]


@pytest.mark.parametrize("make", [function, Plain, WithStream])
def test_the_thread_of_every_tracked_compute_is_noted(make: Any, scheduler: MakeScheduler) -> None:
    watcher = Batches()
    watcher.wants_threads = True
    tracked(make, watcher, scheduler)
    assert watcher.all("middle", attrgetter("threads")) == threads
    assert len(threads) == FRAMES


def test_a_tracked_compute_on_a_stream_keeps_its_deadline() -> None:
    class Slow(WithStream):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.deadline("1 ms")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.fragment.scheduler().clock.sleep_for(2_000_000)
            super().compute(op_input, op_output, context)

    outcome = tracked(Slow, Watcher())
    assert outcome.operators["middle"].stuck == FRAMES


def test_what_a_tracked_function_sends_is_counted() -> None:
    outcome = tracked(function, Watcher())
    assert outcome.operators["middle"].sent == {"out": FRAMES}


def test_every_compute_of_a_tracked_function_is_timed_on_a_shared_stream_too() -> None:
    @op
    def works(x: Array) -> Array:
        launch(here.stream, MS, lambda: None)
        return Array(0)

    watcher = Batches()
    tracked(works, watcher)
    timed = watcher.all("middle", lambda batch: [each for work in batch.gpu for each in work.compute])
    assert sorted(timed) == list(range(FRAMES))


def test_a_flow_that_is_added_to_a_tracked_function_gets_its_messages() -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        observe.watch(app, Watcher())
        pool = CudaStreamPool(app, stream_flags=1)
        middle = function(app, pool, name="middle")

        def body(self: Any, op_input: Any, op_output: Any) -> None:
            if self.ticks == FRAMES:
                late = op(lambda x: taken.append(x.number))
                app.add_flow(middle, late(app, pool, name="late"))
            op_output.emit(Array(7 * self.ticks), "out")

        first = Step(app, CountCondition(app, 2 * FRAMES), outputs=["out"], body=body, name="first")
        app.add_flow(first, middle)
        app.add_flow(middle, op(lambda x: None)(app, pool, name="last"))

    run(compose)
    assert taken == [7 * number for number in range(FRAMES, 2 * FRAMES + 1)]


def test_the_most_messages_of_a_tracked_function_that_wait_are_counted() -> None:
    def compose(app: Any) -> None:
        observe.watch(app, tracker)
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: Array(0))(app, CountCondition(app, FRAMES), pool, name="first")
        middle = function(app, pool, name="middle")
        last = op(lambda x: None)(app, PeriodicCondition(app, 1_000_000), pool, name="last")
        app.add_flow(first, middle)
        app.add_flow(middle, last, size=3)

    tracker = DataFlowTracker()
    run(compose)
    assert tracker.statistics.queue("last.x").most == 3


def test_a_tracked_operator_receives_all_that_waits_where_it_asks_for_that() -> None:
    taken: list[Any] = []

    def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        taken.append(op_input.receive("in", kind="multi" if self.ticks % 2 else ""))
        op_input.receive_cuda_stream("in")

    def compose(app: Any) -> None:
        app.track(0, 0)
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: Array(0))(app, CountCondition(app, 10), pool, name="first")
        app.add_flow(first, Step(app, pool, inputs=["in"], body=take, name="last"))

    run(compose)
    assert [type(item) for item in taken] == [tuple, Array] * 5


def test_metadata_passes_an_array_that_is_sent_in_short() -> None:
    seen: list[Any] = []

    def last(x: Array, *, metadata: Any) -> None:
        seen.append((x.number, metadata.get("number")))

    chain(lambda x: Array(x.number), last, metadata=True)
    assert seen == [(n, n if n % 5 == 0 else None) for n in range(1, FRAMES + 1)]


def test_the_context_gives_the_stream_of_what_was_received_in_every_compute() -> None:
    class Helper:  # an object of the program: the source of the functions does not show what it asks for
        def __init__(self) -> None:
            self.asked: list[int] = []

        def ask(self, context: Any) -> None:
            self.asked.append(int(context.input.receive_cuda_stream()))

    helper = Helper()

    def function(x: Array, *, context: Any) -> Array:
        helper.ask(context)
        return Array(x.number)

    def last(x: Array, *, context: Any) -> None:
        helper.ask(context)

    chain(function, last)
    assert len(helper.asked) == 2 * FRAMES
    assert len(set(helper.asked)) == 2


def test_an_error_of_the_function_is_not_taken_for_an_empty_queue() -> None:
    def function(x: Array) -> Any:
        return Array(x.number) if x.number < 20 else [][0]

    with pytest.raises(IndexError, match="list index"):
        chain(function, lambda x: None)


def test_what_the_function_holds_is_the_array_that_it_received(scheduler: MakeScheduler) -> None:
    held: list[Array] = []

    def last(x: Array) -> None:
        held[:] = [*held, x][-3:]

    app = chain(lambda x: Array(x.number), last, scheduler)
    assert [x.number for x in held] == [FRAMES - 2, FRAMES - 1, FRAMES]
    assert not node_of(app.last).streams.lifetimes.held.received


def test_a_stage_costs_one_record_and_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"wait": 0, "record": 0}

    def count(name: str) -> None:
        original = getattr(sim.Stream, name)

        def counted(self: Any, *args: Any) -> Any:
            calls[name] += 1
            return original(self, *args)

        monkeypatch.setattr(sim.Stream, name, counted)

    count("wait")
    count("record")

    def last(x: Array) -> None:
        pass

    chain(lambda x: Array(x.number), last)
    assert calls["wait"] == 2 * FRAMES  # of the stage and the last one
    assert 2 * FRAMES <= calls["record"] <= 2 * FRAMES + FRAMES // 2  # the last one emits nothing


@pytest.mark.parametrize("kind", ["function", "class"])
def test_frames_with_several_receivers_are_kept_and_released_as_others(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    begun: list[Any] = []
    begin = watch.Watch.begin
    monkeypatch.setattr(watch.Watch, "begin", lambda *args: (begun.append(None), begin(*args))[1])
    made: list[Any] = []
    held: dict[str, Array] = {}
    alive: dict[int, Any] = {}

    def source() -> Array:
        array = Array(7 * len(made))
        made.append(ref(array.memory))
        return array

    def receive(name: str, x: Array) -> None:
        number = x.number // 7
        if name == "holds" and number == 100:
            held["x"] = x
        if name == "holds" and number == 250:
            alive[100] = made[100]() is not None
            held.clear()
        if name == "drops" and number == LONG - 1:
            alive[LONG - 1] = [n for n, each in enumerate(made[: LONG - 130]) if each() is not None]

    def make(app: Any, pool: Any, name: str) -> Any:
        if kind == "function":
            return op(lambda x: receive(name, x))(app, pool, name=name)
        body = partial(lambda name, self, op_input, op_output: receive(name, op_input.receive("in")), name)
        return Step(app, pool, inputs=["in"], body=body, name=name)

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(source)(app, CountCondition(app, LONG), pool, name="first")
        for name in ("drops", "holds", "too"):
            app.add_flow(first, make(app, pool, name))

    run(compose, scheduler)
    assert alive == {100: True, LONG - 1: []}
    assert len(begun) <= 3 * LONG / 4, "the receivers of a frame share its record"


def steady(
    monkeypatch: pytest.MonkeyPatch, per: str, sizes: Any, pace_ns: int = 1_000
) -> tuple[float, int, int]:
    """Return the queries per compute, and the most frames and bytes that the last operator of seven keeps."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", itertools.count(0, 6 * pace_ns).__next__)
    monkeypatch.setitem(owner_sizes, Memory, attrgetter("size"))
    queries: list[None] = []
    is_done = sim.Event.is_done.fget
    monkeypatch.setattr(sim.Event, "is_done", property(lambda event: queries.append(None) or is_done(event)))
    ends: list[Any] = []
    kept: list[list[int]] = []  # the sizes, before each compute of the last operator

    numbers = itertools.count()

    def stage(x: Array) -> Array:
        array = Array(0)
        array.memory.size = x.memory.size
        return array

    def source() -> Array:
        array = Array(0)
        array.memory.size = sizes(next(numbers))
        return array

    def last(x: Array) -> None:
        found = node_of(ends[0]).streams.lifetimes
        kept.append([memory.size for reader in found.readers for memory in reader.frames])
        kept[-1] += [memory.size for memory in found.held.received]
        if len(kept) == WARM:
            queries.clear()

    def compose(app: Any) -> None:
        app.stream_per = per
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(source)(app, CountCondition(app, LONG), pool, name="first")
        stages = [op(stage)(app, pool, name=f"stage{k}") for k in range(5)]
        ends.append(op(last)(app, pool, name="last"))
        for one, other in itertools.pairwise([first, *stages, *ends]):
            app.add_flow(one, other)

    run(compose)
    return len(queries) / (7 * (LONG - WARM)), max(map(len, kept)), max(map(sum, kept))


MIB = 1 << 20


@not_compiled
@pytest.mark.parametrize("per", ["operator", "branch"])
def test_while_the_device_keeps_up_with_small_frames_it_is_seldom_queried(
    monkeypatch: pytest.MonkeyPatch, per: str
) -> None:
    queries, frames, _ = steady(monkeypatch, per, lambda n: 4096)
    assert queries <= 0.03
    assert frames <= 2 * 96 + 8


@not_compiled
@pytest.mark.parametrize("per", ["operator", "branch"])
@pytest.mark.parametrize(
    ("sizes", "pace_ns", "most"),
    [
        (lambda n: 1024 * MIB, 1_000, 12 * 1024 * MIB),
        (lambda n: MIB, 1_000, 2 * (8 + 6) * MIB),
        (
            lambda n: 1024 * MIB if n > 200 else 4096,
            1_000,
            19 * 1024 * MIB,
        ),  # after a long time without a look
        (lambda n: 4096, 5_000_000, 12 * 4096),  # the next look would come in a quarter of a second
    ],
)
def test_the_bytes_that_are_kept_are_bounded(
    monkeypatch: pytest.MonkeyPatch, per: str, sizes: Any, pace_ns: int, most: int
) -> None:
    assert steady(monkeypatch, per, sizes, pace_ns)[2] <= most


def kept_bytes(monkeypatch: pytest.MonkeyPatch, pattern: Callable[[int], list[int]], form: str) -> list[int]:
    """Return the bytes that an operator keeps before each of its computes; frame n has arrays of these sizes."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", itertools.count(0, 6_000).__next__)
    monkeypatch.setitem(owner_sizes, Memory, attrgetter("size"))
    numbers, alive = itertools.count(), WeakSet[Memory]()
    found: list[int] = []

    def make(size: int) -> Array:
        array = Array(0)
        array.memory.size = size
        alive.add(array.memory)
        return array

    def source() -> Any:
        arrays = [make(size) for size in pattern(next(numbers))]
        return arrays[0] if len(arrays) == 1 else {str(k): array for k, array in enumerate(arrays)}

    def middle(x: Any) -> Any:
        if form != "passed on":
            found.append(sum(memory.size for memory in alive))
        return x if form == "passed on" else None if form == "to nobody" and len(found) % 2 else Array(0)

    def last(x: Any) -> None:
        if form == "passed on":
            found.append(sum(memory.size for memory in alive))

    def compose(app: Any) -> None:
        app.stream_per = "operator"
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(source)(app, CountCondition(app, LONG), pool, name="first")
        stage = op(outputs="out")(middle)(app, pool, name="middle")
        app.add_flow(first, stage)
        for name in {"to nobody": [], "two receivers": ["last", "other"]}.get(form, ["last"]):
            app.add_flow(stage, op(last)(app, pool, name=name))
        if form == "two receivers":
            app.add_flow(first, op(last)(app, pool, name="beside"))

    run(compose)
    return found


@not_compiled
@pytest.mark.parametrize("form", ["received", "passed on", "to nobody", "two receivers"])
@pytest.mark.parametrize(
    "pattern",
    [
        lambda n: [1024 * MIB],
        lambda n: [1024 * MIB if n % 2 else 64],
        lambda n: [
            1024 * MIB if n % 100 < 12 else 64
        ],  # the large ones are released before a long time without a look
        lambda n: [1024 * MIB if n % 60 == 59 else 64],
        lambda n: [1024 * MIB if n % 7 == 0 else 64, 64, 1024 * MIB if n % 50 == 0 else 64],
    ],
)
def test_large_frames_are_released_after_thirty_computes_in_every_pattern(
    monkeypatch: pytest.MonkeyPatch, pattern: Callable[[int], list[int]], form: str
) -> None:
    found = kept_bytes(monkeypatch, pattern, form)
    sizes = [sum(pattern(n)) for n in range(LONG)]
    assert len(found) >= LONG
    per = len(found) // LONG
    for n in range(LONG):
        recent = sum(sizes[max(n - 30, 0) : n + 3])
        assert found[n * per] <= recent + 2 * 8 * MIB, n


@not_compiled
def test_frames_of_unknown_size_are_looked_at_as_often_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "owner_sizes", {})
    assert steady(monkeypatch, "operator", lambda n: 4096)[1] <= 12


def test_memory_of_a_pool_comes_back_after_each_compute(scheduler: MakeScheduler) -> None:
    """The producer waits for it, so a look after some computes would come too late."""
    seen: list[Any] = []

    def compose(app: Any) -> None:
        memory = BlockMemoryPool(app, "device", 64, 2)
        streams = CudaStreamPool(app, stream_flags=1)

        @op(outputs="out")
        def source() -> Any:
            return memory.allocate_tensor(8, "int64")

        waits = MemoryAvailableCondition(app, memory, min_blocks=1)
        first = source(app, CountCondition(app, FRAMES), waits, streams, name="first")
        app.add_flow(first, op(lambda frame: seen.append(frame.shape))(app, streams, name="last"))

    run(compose, scheduler)
    assert seen == [(8,)] * FRAMES


@not_compiled
@pytest.mark.parametrize("streams", [1, 2])
def test_the_only_block_of_a_pool_comes_back_after_each_compute(
    monkeypatch: pytest.MonkeyPatch, streams: int
) -> None:
    """The producer would raise without one. While an operator keeps nothing else, looks are put off."""
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)
    looks: list[Any] = []
    look = lifetimes.Lifetimes.look
    monkeypatch.setattr(lifetimes.Lifetimes, "look", lambda self: looks.append(self) or look(self))
    taken: list[Any] = []

    def compose(app: Any) -> None:
        memory = BlockMemoryPool(app, "device", 64, 1)

        def send(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit(memory.allocate_tensor(8, "int64"))

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            taken.append(op_input.receive().shape)
            for number in range(streams):
                context.allocate_cuda_stream(f"{number}")

        first = Step(app, CountCondition(app, FRAMES), outputs=["out"], body=send, name="first")
        app.add_flow(first, Step(app, inputs=["in"], body=take, name="last"))

    run(compose)
    assert taken == [(8,)] * FRAMES
    assert streams > 1 or len(looks) <= FRAMES // 5


@not_compiled
def test_a_frame_that_is_sent_again_and_again_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "monotonic_ns", lambda: 0)  # looks are up to 96 computes apart
    monkeypatch.setitem(owner_sizes, Memory, attrgetter("size"))
    array = Array(0)
    found: list[int] = []

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.frames_in_flight)
            op_input.receive()
            op_input.receive_cuda_stream()

        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: array)(app, CountCondition(app, LONG), pool, name="first")
        app.add_flow(first, Step(app, pool, inputs=["in"], body=take, name="last"))

    run(compose)
    assert max(found[WARM:]) <= 12


def test_each_receiver_has_its_own_copy_of_a_map_that_comes_between_arrays() -> None:
    taken: dict[str, list[Any]] = {"one": [], "other": []}

    def compose(app: Any) -> None:
        def take(self: Any, op_input: Any, op_output: Any) -> None:
            item = op_input.receive()
            op_input.receive_cuda_stream()
            taken[self.name].append(item.pop("frame", None) if isinstance(item, dict) else item)

        def send() -> Any:
            return {"frame": arrays[-1]} if len(arrays) % 2 else arrays[-1]

        arrays: list[Array] = []
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: arrays.append(Array(0)) or send())(
            app, CountCondition(app, FRAMES), pool, name="first"
        )
        for name in taken:
            app.add_flow(first, Step(app, pool, inputs=["in"], body=take, name=name))

    run(compose)
    assert [type(item) for item in taken["one"]] == [Array] * FRAMES
    assert taken["one"] == taken["other"]


@pytest.mark.parametrize("port", ["a", "b"])
def test_what_an_earlier_compute_received_at_one_of_two_inputs_is_forgotten(port: str) -> None:
    refused: list[str] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        is_late = self.ticks > 5
        for name in "ab":
            if not (is_late and name == port):
                op_input.receive(name)
                op_input.receive_cuda_stream(name)
        if is_late:
            with pytest.raises(StreamError, match=r"before receive") as raised:
                op_input.receive_cuda_streams(port)
            refused.append(str(raised.value))
            op_input.receive(port)

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app, stream_flags=1)
        first = op(outputs="out")(lambda: Array(0))(app, CountCondition(app, 10), pool, name="first")
        last = Step(app, pool, inputs=["a", "b"], body=body, name="last")
        app.add_flow(first, last, {("out", "a"), ("out", "b")})

    run(compose)
    assert len(refused) == 5


def test_the_current_stream_of_every_compute_is_the_operators_own() -> None:
    seen: dict[str, list[int]] = {"middle": [], "last": []}

    def note(name: str, x: Array) -> Array | None:
        stream = gpu.current_stream()
        assert stream is not None
        seen[name].append(int(stream))
        return Array(x.number) if name == "middle" else None

    chain(lambda x: note("middle", x), lambda x: note("last", x) and None)
    assert [len(each) for each in seen.values()] == [FRAMES, FRAMES]
    assert [len(set(each)) for each in seen.values()] == [1, 1]
    assert set(seen["middle"]) != set(seen["last"])


@not_compiled
def test_an_operator_that_keeps_nothing_finds_its_stream_on_each_thread() -> None:
    """The stream is current on the thread where the operator computed before, and not on another one."""
    handle = gpu.StreamHandle(gpu.Device(0).create_stream())
    current = LastingStream(handle, group=object())
    allocation: Any = SimpleNamespace(current_on=-1, stays_current=False)
    allocation.make_own_current = lambda: setattr(allocation, "current_on", threading.get_ident())
    reader = SimpleNamespace(fences=SimpleNamespace(last=0), numbers=[])
    held = SimpleNamespace(sort=None, unsorted=[])
    lifetimes = SimpleNamespace(readers=[reader], look_unless_early=None, held=held)
    node = SimpleNamespace(input=SimpleNamespace(ports=[]))
    found: list[Any] = []

    def compute(*_: Any) -> None:
        found.append(thread.current.innermost)

    steps = (StepInOrder(), lambda: None)
    steady: Any = steady_compute(node, compute, current, allocation, lifetimes, None, steps)  # type: ignore[arg-type]

    def compute_and_leave() -> None:
        steady(None, None, None)
        leave()

    steady(None, None, None)
    other = threading.Thread(target=compute_and_leave)
    other.start()
    other.join()
    steady(None, None, None)
    leave()
    assert found == [current] * 3
