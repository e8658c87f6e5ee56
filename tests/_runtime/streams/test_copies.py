"""The usual computes go a short way, written out by hand: it does what the general way does, in the same order.

Random programs run the short way, and then again with one of its copies switched off. Both runs compute the same in
the same order, submit the same work to the same streams with the same waits and records, and keep the same frames
alive in every compute.
"""

from __future__ import annotations

import gc
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from threading import get_ident
from typing import Any
from weakref import ref

import numpy as np
import pytest
from headrace._runtime.streams.output_streams import OutputStreams

from headrace import CountCondition, gpu, observe, op
from headrace._runtime.compiled import is_compiled
from headrace._runtime.messages.ports import NOTHING
from headrace._runtime.streams import lifetimes, node_streams
from headrace._runtime.streams.node_streams import NodeStreams
from headrace.core import MetadataPolicy
from headrace.gpu import sim
from headrace.gpu.ambient import thread
from headrace.observe import Watcher
from headrace.observe.events.observation import Observation
from headrace.resources import CudaStreamPool
from headrace.tensor import Library, register_library
from headrace.tensor.libraries import owner_sizes
from tests.harness import MS, Step, launch, run
from tests.harness.libraries import fresh_registry
from tests.limits import THOROUGH, examples

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")

FRAMES = 60  # looks are put off after about twenty
MIB = 1 << 20


class Memory:
    def __init__(self, buffer: Any, size: int) -> None:
        self.buffer, self.size = buffer, size


class Array:
    def __init__(self, number: int, memory: Memory) -> None:
        self.number, self.memory = number, memory


class Arrays(Library):
    name = "Arrays"
    types = (Array,)
    works_on_simulated_streams = True
    stream: Any = None

    def owner(self, array: Array) -> Memory:
        if array.number % 17 == 3:
            raise RuntimeError("it has none")
        return array.memory

    def read_stream(self) -> Any:
        return self.stream

    def set_stream(self, state: Any) -> None:
        self.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


@dataclass
class Stage:
    """An operator of a program: what it is, how long it holds frames, and what it sends, by weight."""

    kind: str
    inputs: tuple[int, ...]
    holds: int
    sends: tuple[str, ...]
    milliseconds: tuple[float, ...]
    max_in_flight: int


@dataclass
class Plan:
    stages: list[Stage]
    stream_per: str
    sizes: tuple[int, ...]
    has_metadata: bool
    is_observed: bool

    @property
    def shares(self) -> bool:
        """Whether a message goes to several."""
        inputs = [before for stage in self.stages for before in stage.inputs]
        return len(set(inputs)) < len(inputs)


KINDS = ("function", "function", "function", "class", "streams", "named")
SENDS = ("fresh", "fresh", "fresh", "fresh", "same", "nothing", "number", "dict", "list", "timestamp", "held")


def random_plan(random: Random) -> Plan:
    stages = []
    for place in range(random.randint(2, 5)):
        several = place > 1 and random.random() < 0.3
        inputs = tuple(sorted(random.sample(range(place), 2 if several else min(place, 1))))
        stages.append(
            Stage(
                random.choice(KINDS),
                inputs,
                random.choice([0, 0, 0, 1, 3]),
                ("fresh",) if random.random() < 0.4 or not place else tuple(random.sample(SENDS, 6)),
                random.choice([(0.01,), (0.01, 0.1), (0.1, 1, 3)]),
                random.choice([8, 8, 8, 2]),
            )
        )
    return Plan(
        stages,
        random.choice(["operator", "branch"]),
        random.choice([(4096,), (4096, MIB), (4 * MIB, 64), (1024 * MIB,)]),
        random.random() < 0.3,
        random.random() < 0.4,
    )


@dataclass
class Trace:
    """What happened in a run, in order."""

    happened: list[Any] = field(default_factory=list)
    mistakes: list[Any] = field(default_factory=list)
    shown: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def computes(self) -> list[Any]:
        """The computes, what they received and where, without what was alive."""
        return [each[:3] for each in self.happened if each[0] not in ("launch", "wait", "record")]


class Shown(Watcher):
    """Keeps what an observer is shown of the computes and of their messages."""

    def __init__(self, trace: Trace) -> None:
        self.shown = trace.shown

    def computed(self, batch: Any) -> None:
        rows = self.shown.setdefault(batch.operator.name, [])
        rows += zip(batch.started.tolist(), batch.ended.tolist(), strict=True)
        for arrivals in batch.arrivals:
            columns = (arrivals.compute, arrivals.number, arrivals.emitted, arrivals.received)
            times = self.shown.setdefault(arrivals.queue.name, [])
            times += zip(*(column.tolist() for column in columns), strict=True)
        for work in batch.gpu:
            times = self.shown.setdefault(f"{batch.operator.name} on {work.stream.name}", [])
            times += zip(work.compute.tolist(), work.started.tolist(), work.ended.tolist(), strict=True)


class Program:
    """One run of a plan."""

    def __init__(self, plan: Plan, seed: int, arrays: Arrays) -> None:
        self.plan, self.seed, self.arrays = plan, seed, arrays
        self.trace = Trace()
        self.made: list[Any] = []
        self.streams: dict[int, int] = {}
        self.launched: dict[int, int] = {}
        self.recorded: dict[int, tuple[int, int]] = {}
        self.held: dict[str, deque[Any]] = {}
        self.ticks: dict[str, int] = {}

    # What the device is given.

    def place(self, handle: int) -> int:
        return self.streams.setdefault(handle, len(self.streams))

    def launch(self, stream: Any, seconds: float, effect: Callable[..., None], buffer: Any) -> None:
        place = self.place(int(stream))
        self.launched[place] = self.launched.get(place, 0) + 1
        self.trace.happened.append(("launch", place))
        launch(stream, seconds, effect, buffer)

    def note_wait(self, stream: Any, event: Any) -> None:
        self.trace.happened.append(("wait", self.place(stream.handle), self.recorded.get(id(event))))

    def note_record(self, stream: Any, event: Any) -> None:
        place = self.place(stream.handle)
        self.recorded[id(event)] = (place, self.launched.get(place, 0))
        self.trace.happened.append(("record", place))

    # What an operator does.

    def work(self, name: str, stage: Stage, received: list[Any], stream: Any) -> tuple[str, Any]:
        tick = self.ticks[name] = self.ticks.get(name, 0) + 1
        random = Random(f"{self.seed} {name} {tick}")
        arrays = [array for item in received for array in arrays_in(item)]
        alive = [number for number, memory in enumerate(self.made) if memory() is not None]
        self.trace.happened.append((name, [array.number for array in arrays], self.place(int(stream)), alive))
        for array in arrays:
            self.read(stream, random.choice(stage.milliseconds) * MS, array)
        held = self.held.setdefault(name, deque(maxlen=stage.holds))
        if random.random() < 0.7:
            held.extend(arrays)
        how = random.choice(stage.sends)
        if how == "nothing":
            return how, None
        if how == "same" and arrays:
            return how, arrays[0]
        if how == "held" and held:
            return how, held[0]
        if how == "number":
            return how, tick
        array = self.fresh(stream, random)
        if how == "dict":
            return how, {"array": array, "number": tick}
        return how, [array, self.fresh(stream, random)] if how == "list" else array

    def fresh(self, stream: Any, random: Random) -> Array:
        number = len(self.made)
        memory = Memory(gpu.Device(0).allocate(8, stream=stream.stream), random.choice(self.plan.sizes))
        self.made.append(ref(memory))

        def fill(target: Any) -> None:
            target.view(np.int64)[0] = number

        self.launch(stream, 0.05 * MS, fill, memory.buffer)
        return Array(number, memory)

    def read(self, stream: Any, seconds: float, array: Array) -> None:
        number = array.number

        def look(source: Any) -> None:
            found = int(source.view(np.int64)[0])
            if found != number:
                self.trace.mistakes.append((number, found))

        self.launch(stream, seconds, look, array.memory.buffer)

    # Operators.

    def make(self, app: Any, pool: Any, place: int) -> Any:
        stage, name = self.plan.stages[place], f"stage{place}"
        counts = [] if place else [CountCondition(app, FRAMES)]
        made = (self.function if stage.kind == "function" else self.step)(app, [*counts, pool], stage, name)
        made.max_in_flight, made.metadata_policy = stage.max_in_flight, MetadataPolicy.UPDATE
        return made

    def function(self, app: Any, arguments: list[Any], stage: Stage, name: str) -> Any:
        is_last = stage is self.plan.stages[-1]

        def work(*received: Any) -> Any:
            value = self.work(name, stage, list(received), self.arrays.stream)[1]
            return None if is_last else value

        functions: list[Callable[..., Any]] = [
            lambda: work(),
            lambda in0: work(in0),
            lambda in0, in1: work(in0, in1),
        ]
        made = op(functions[len(stage.inputs)], outputs=() if is_last else "out")
        return made(app, *arguments, name=name)

    def step(self, app: Any, arguments: list[Any], stage: Stage, name: str) -> Any:
        names = [f"in{place}" for place in range(len(stage.inputs))]

        def body(operator: Any, op_input: Any, op_output: Any, context: Any) -> None:
            received = [op_input.receive(each) for each in names]
            if stage.kind == "class":
                stream = self.arrays.stream
            elif stage.kind == "named" or not names:
                stream = context.allocate_cuda_stream("mine")
                theirs = [stream for each in names for stream in op_input.receive_cuda_streams(each)]
                context.synchronize_streams(theirs, stream)
                op_output.set_cuda_stream(stream, "out")
            else:
                stream, *_ = [op_input.receive_cuda_stream(each) for each in names]
            how, value = self.work(name, stage, received, stream)
            if self.plan.has_metadata and operator.ticks % 5 == 0:
                operator.metadata["tick"] = operator.ticks
            if value is not None:
                op_output.emit(value, "out", acq_timestamp=operator.ticks if how == "timestamp" else -1)

        def setup(spec: Any) -> None:
            if stage.kind == "class":
                spec.ambient_stream()

        return Step(app, *arguments, inputs=names, outputs=["out"], body=body, setup=setup, name=name)

    def compose(self, app: Any) -> None:
        app.stream_per = self.plan.stream_per
        app.enable_metadata(self.plan.has_metadata)
        if self.plan.is_observed:
            observe.watch(app, Shown(self.trace))
        pool = CudaStreamPool(app, stream_flags=1)
        made = [self.make(app, pool, place) for place in range(len(self.plan.stages))]
        for place, stage in enumerate(self.plan.stages):
            for number, before in enumerate(stage.inputs):
                app.add_flow(made[before], made[place], {("out", f"in{number}")})


def arrays_in(item: Any) -> list[Array]:
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else [item]
    return [each for each in inside if isinstance(each, Array)]


def trace_of(
    seed: int, monkeypatch: pytest.MonkeyPatch, way: Callable[[pytest.MonkeyPatch], None] | None
) -> Trace:
    with monkeypatch.context() as patch, sim.Machine("h200"):
        sim.Device(0).set_current()
        fresh_registry(patch)
        arrays = Arrays()
        register_library(arrays)
        patch.setitem(owner_sizes, Memory, attrgetter("size"))
        patch.setattr(lifetimes, "monotonic_ns", itertools.count(0, 10_000).__next__)
        program = Program(random_plan(Random(seed)), seed, arrays)
        for name, note in (("wait", program.note_wait), ("record", program.note_record)):
            patch.setattr(sim.Stream, name, _noting(getattr(sim.Stream, name), note))
        if way is not None:
            way(patch)
        run(program.compose)
        gc.collect()
        return program.trace


def _noting(original: Any, note: Callable[[Any, Any], None]) -> Any:
    def noting(stream: Any, event: Any = None, *others: Any) -> Any:
        found = original(stream, event, *others)
        note(stream, event if event is not None else found)
        return found

    return noting


# The ways: each switches off one of the copies.


def receiving_in_general(patch: pytest.MonkeyPatch) -> None:
    """Messages go through `NodeStreams.received`."""
    update = NodeStreams._update_inputs

    def update_inputs(streams: NodeStreams) -> None:
        update(streams)
        for port in streams._ports:
            port.kept = port.shared = port.steady = None

    patch.setattr(NodeStreams, "_update_inputs", update_inputs)


def emitting_in_general(patch: pytest.MonkeyPatch) -> None:
    """`emit` calls what `OutputStreams` gave the port."""
    update = OutputStreams.update

    def update_outputs(outputs: OutputStreams) -> None:
        update(outputs)
        for port in outputs._node.output.ports.values():
            port.fences = None

    patch.setattr(OutputStreams, "update", update_outputs)


def ordering_in_general(patch: pytest.MonkeyPatch) -> None:
    """`receive_cuda_stream` calls `NodeStreams.receive`."""
    begin = NodeStreams.__init__

    def begin_unusual(streams: NodeStreams, *arguments: Any) -> None:
        begin(streams, *arguments)
        streams.is_unusual = True

    patch.setattr(NodeStreams, "__init__", begin_unusual)


def computing_in_general(patch: pytest.MonkeyPatch) -> None:
    """Computes are what `NodeStreams._watched_compute` is, with `Lifetimes.note_compute` at the end."""

    def steady_compute(node: Any, compute: Any, current: Any, allocation: Any, found: Any, *_: Any) -> Any:
        def general(op_input: Any, op_output: Any, context: Any) -> None:
            if current is not None:
                if get_ident() != allocation.current_on:
                    allocation.make_own_current()
                current.enter(thread.current)
            try:
                compute(op_input, op_output, context)
            finally:
                for port in node.input.ports:
                    port.item = NOTHING
                found.note_compute()

        return general

    patch.setattr(node_streams, "steady_compute", steady_compute)


def observing_in_general(patch: pytest.MonkeyPatch) -> None:
    """Rows are written by the computes and queues of the observer."""
    patch.setattr(Observation, "log_of", lambda *_: None)
    describe, put_feeds = Observation._describe, Observation._put_feeds

    def describe_in_general(observation: Any, node: Any, info: Any) -> None:
        describe(observation, node, info)
        for port in node.input.ports:
            port.noted = None

    def put_feeds_in_general(observation: Any, node: Any, info: Any) -> Any:
        made = put_feeds(observation, node, info)
        for port in node.output.ports.values():
            port.noted = None
        return made

    patch.setattr(Observation, "_describe", describe_in_general)
    patch.setattr(Observation, "_put_feeds", put_feeds_in_general)


def all_in_general(patch: pytest.MonkeyPatch) -> None:
    for way in WAYS[:-1]:
        way(patch)


WAYS = [
    receiving_in_general,
    emitting_in_general,
    ordering_in_general,
    computing_in_general,
    observing_in_general,
    all_in_general,
]


@pytest.mark.parametrize("seed", range(examples(60)))
def test_the_short_way_does_what_the_general_way_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    short = trace_of(seed, monkeypatch, None)
    assert short.mistakes == []
    shares = random_plan(Random(seed)).shares
    ways = WAYS if THOROUGH else [WAYS[seed % len(WAYS[:-1])], all_in_general]
    for way in ways:
        general = trace_of(seed, monkeypatch, way)
        assert general.mistakes == []
        if shares and way in (receiving_in_general, all_in_general):
            # The receivers of a message share no record of it then, so that they keep it for longer.
            assert general.computes == short.computes, way.__name__
        else:
            assert general.happened == short.happened, way.__name__
            assert general.shown == short.shown, way.__name__
