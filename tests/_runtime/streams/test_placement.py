"""Where plain library code runs: on the operator's own stream, by one rule for functions and classes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from functools import partial, wraps
from typing import Any

import pytest

from headrace import (
    Application,
    Condition,
    CountCondition,
    GreedyScheduler,
    Operator,
    SchedulingStatusType,
    gpu,
    op,
)
from headrace._runtime.compiled import is_compiled
from headrace._runtime.streams import placement
from headrace._runtime.streams.placement import _refers_to_stream, handles_streams
from headrace.conditions import CudaStreamCondition
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.resources import CudaStreamPool, RealtimeClock
from headrace.tensor import Library, register_library
from tests.harness import MS, MakeScheduler, Producer, Step, frame, greedy, launch, read_frame, run, write
from tests.harness.libraries import fresh_registry


class Current(threading.local):
    """The current stream of the library, of each thread."""

    stream: Any = None


current = Current()


class Plain(Library):
    """A library with a current stream, whose programs name none."""

    name = "Plain"
    types = ("plain.Array",)
    works_on_simulated_streams = True
    sets = 0

    def read_stream(self) -> Any:
        return current.stream

    def set_stream(self, state: Any) -> None:
        self.sets += 1
        current.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch, machine: sim.Machine) -> Plain:
    fresh_registry(monkeypatch)
    library = Plain()
    register_library(library)
    return library


class Look(Step):
    """Passes on what it receives, and notes the library's current stream."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        value = op_input.receive("in") if self.spec.inputs else self.ticks
        self.fragment.seen.append((self.name, current.stream))
        if self.spec.outputs:
            op_output.emit(value, "out")


def chain(*operators: Any, scheduler: MakeScheduler = greedy, frames: int = 4) -> dict[str, set[Any]]:
    """Run operators in a row, and return the streams that were current in each of them."""

    def compose(app: Any) -> None:
        app.seen = []
        app.stream_per = "operator"
        pool = CudaStreamPool(app, stream_flags=1)
        before = Look(app, CountCondition(app, frames), pool, outputs=["out"], name="first")
        for make in operators:
            after = make(app, pool)
            app.add_flow(before, after)
            before = after

    app = run(compose, scheduler)
    streams: dict[str, set[Any]] = {}
    for name, stream in app.seen:
        streams.setdefault(name, set()).add(stream)
    assert current.stream is None, "the caller's stream is back"
    assert gpu.current_stream() is None
    return streams


def looking(name: str, setup: Any = None, body: Any = None) -> Any:
    return lambda app, pool: Look(
        app, pool, inputs=["in"], outputs=["out"], setup=setup, body=body, name=name
    )


def test_classes_and_functions_have_their_own_stream(scheduler: MakeScheduler) -> None:
    def function(app: Any, pool: Any) -> Any:
        @op
        def double(value: Any) -> Any:
            app.seen.append(("double", current.stream))
            return 2 * value

        return double(app, pool)

    streams = chain(looking("class"), function, looking("last"), scheduler=scheduler)
    assert [len(streams[name]) for name in ("first", "class", "double", "last")] == [1] * 4
    assert len({int(*found) for found in streams.values()}) == 4


def test_an_operator_that_handles_streams_is_left_alone(scheduler: MakeScheduler) -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        context.allocate_cuda_stream("mine")

    streams = chain(looking("before"), looking("by hand", body=body), looking("after"), scheduler=scheduler)
    assert streams["by hand"] == {None}
    assert None not in streams["before"] | streams["after"]


def test_an_operator_that_handles_streams_can_have_both() -> None:
    def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        self.mine = context.allocate_cuda_stream("mine")

    streams = chain(looking("both", setup=lambda spec: spec.ambient_stream(), body=body))
    (stream,) = streams["both"]
    assert stream is not None


def test_neighbours_on_the_default_stream_are_left_alone(library: Plain) -> None:
    def on_default(spec: Any) -> None:
        spec.default_stream()

    def compose(app: Any) -> None:
        app.seen = []
        one = Look(app, CountCondition(app, 3), outputs=["out"], setup=on_default, name="one")
        app.add_flow(one, Look(app, inputs=["in"], setup=on_default, name="two"))

    app = run(compose)
    assert {stream for _, stream in app.seen} == {None}
    assert library.sets == 0


def test_an_operator_on_the_default_stream_is_in_order_between_others(scheduler: MakeScheduler) -> None:
    """Producer and reader are on streams that CUDA does not order with the default stream."""

    class OnDefault(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")
            spec.default_stream()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = gpu.current_stream()
            assert stream is not None
            assert stream.is_default
            result = frame(stream)
            launch(
                stream,
                MS,
                lambda target, source: write(target, 2 * int(source.view("int64")[0])),
                result,
                data,
            )
            op_output.emit(result, "out")

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app, stream_flags=1)

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            read_frame(gpu.current_stream(), MS / 10, op_input.receive("in"), app.seen)

        middle = OnDefault(app, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 12), pool, name="producer"), middle)
        app.add_flow(middle, Step(app, pool, inputs=["in"], body=take, name="reader"))

    assert run(compose, scheduler).seen == [2 * number for number in range(12)]


def test_a_program_without_libraries_or_streams_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_registry(monkeypatch)

    def compose(app: Any) -> None:
        app.seen = []
        app.add_flow(
            Look(app, CountCondition(app, 3), outputs=["out"], name="one"),
            Look(app, inputs=["in"], name="two"),
        )

    app = run(compose)
    assert {stream for _, stream in app.seen} == {None}


def test_a_stream_that_compute_leaves_current_does_not_stay() -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        self.fragment.seen.append(("began", current.stream))

    class Careless(Look):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            current.stream = "another"

    streams = chain(
        lambda app, pool: Careless(app, pool, inputs=["in"], outputs=["out"], body=body, name="careless")
    )
    assert len(streams["began"]) == 1
    assert "another" not in streams["began"] | streams["first"]


def test_one_operator_alone_finds_its_stream_although_it_changed_it() -> None:
    def compose(app: Any) -> None:
        app.seen = []

        def tick(self: Any, op_input: Any, op_output: Any) -> None:
            app.seen.append(current.stream)
            current.stream = "another"

        app.add_operator(Step(app, CountCondition(app, 3), CudaStreamPool(app), body=tick, name="only"))

    seen = run(compose).seen
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert "another" not in seen


def test_conditions_of_a_program_find_the_callers_stream() -> None:
    found: list[Any] = []

    class Looking(Condition):
        def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
            found.append(current.stream)
            return SchedulingStatusType.READY, None

        def on_execute(self, timestamp: int) -> None:
            found.append(current.stream)

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app)
        one = Look(app, CountCondition(app, 3), pool, outputs=["out"], name="one")
        app.add_flow(one, Look(app, Looking(app), pool, inputs=["in"], name="two"))

    app = run(compose)
    assert len(found) >= 6
    assert set(found) == {None}
    assert None not in {stream for _, stream in app.seen}


def test_a_run_within_a_compute_leaves_its_stream() -> None:
    def body(self: Any, op_input: Any, op_output: Any) -> None:
        outside = current.stream
        with gpu.use_stream(gpu.Device(0).create_stream()) as block:
            inner = chain_of_one()
            assert current.stream is block
            assert gpu.current_stream() is block
        assert current.stream is outside
        assert inner not in (outside, block, None)

    streams = chain(looking("outer", body=body), frames=2)
    assert len(streams["outer"]) == 1


def chain_of_one() -> Any:
    class Inner(Application):
        def compose(self) -> None:
            self.seen: list[Any] = []
            self.scheduler(GreedyScheduler(self, clock=RealtimeClock(self)))
            pool = CudaStreamPool(self)
            self.add_operator(Look(self, CountCondition(self, 1), pool, outputs=["out"], name="inner"))

    app = Inner()
    app.run()
    return app.seen[0][1]


def test_a_stage_costs_one_record_and_one_wait(monkeypatch: pytest.MonkeyPatch, library: Plain) -> None:
    """Events of the stages of a chain, per compute; the first computes and the last ones are not typical."""
    calls = count_calls(monkeypatch, "record", "wait")
    total = {}
    for frames in (50, 150):
        calls.clear()
        library.sets = 0
        chain(looking("a"), looking("b"), looking("c"), frames=frames)
        total[frames] = Counter(calls, sets=library.sets)
    per_frame = {name: (total[150][name] - total[50][name]) / 100 for name in ("record", "wait", "sets")}
    # Four operators emit, three receive; all four set the current stream of the one library.
    assert per_frame == {"record": 4, "wait": 3, "sets": 4}


def graph_costs(monkeypatch: pytest.MonkeyPatch, per: str) -> dict[str, float]:
    """Return the events per frame of three branches that begin at one operator; two of them are joined."""
    calls = count_calls(monkeypatch, "record", "wait")
    total = {}
    for frames in (50, 150):
        calls.clear()
        run(partial(compose_graph, frames=frames, per=per))
        total[frames] = Counter(calls)
    return {name: (total[150][name] - total[50][name]) / 100 for name in ("record", "wait")}


def test_a_graph_costs_one_record_for_an_emit_and_one_wait_for_a_receive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # All five operators emit; the branches receive, and the two inputs of the join.
    assert graph_costs(monkeypatch, "operator") == {"record": 5, "wait": 5}


def test_a_graph_that_shares_a_stream_costs_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = graph_costs(monkeypatch, "auto")
    assert costs["wait"] == 0
    assert costs["record"] <= 5 / 5  # what is received is looked at after every sixth compute


def compose_graph(app: Any, frames: int, per: str) -> None:
    def add(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit(op_input.receive("in1") + op_input.receive("in2"), "out")

    app.seen, app.stream_per = [], per
    pool = CudaStreamPool(app)
    first = Look(app, CountCondition(app, frames), pool, outputs=["out"], name="first")
    branches = [Look(app, pool, inputs=["in"], outputs=["out"], name=name) for name in ("a", "b", "c")]
    join = Step(app, pool, inputs=["in1", "in2"], outputs=["out"], body=add, name="join")
    for branch in branches:
        app.add_flow(first, branch)
    for place, branch in enumerate(branches[:2], 1):
        app.add_flow(branch, join, {("out", f"in{place}")})


# Which operators handle streams.


def asks(op_input: Any) -> Any:
    return op_input.receive_cuda_stream("in")


def decorated(function: Any) -> Any:
    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class ByHand(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive_cuda_stream("in")


class Inherited(ByHand):
    def helper(self) -> None: ...


class Replaced(ByHand):
    def setup(self, spec: Any) -> None:
        super().setup(spec)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") + 1, "out")


class Called(ByHand):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)


class CalledByName(ByHand):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        ByHand.compute(self, op_input, op_output, context)


class CalledByBase(Called):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)


AnotherName = ByHand


class CalledByAnotherName(ByHand):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        AnotherName.compute(self, op_input, op_output, context)


class CalledByModule(ByHand):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        sys.modules[__name__].ByHand.compute(self, op_input, op_output, context)


def make_local() -> Any:
    class Base(ByHand):
        pass

    class CalledLocally(Base):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            Base.compute(self, op_input, op_output, context)

    return CalledLocally


def unmarked(function: Any) -> Any:
    return lambda *args: function(*args)


class CalledInDecorated(ByHand):
    @unmarked
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)


class CalledInFunction(ByHand):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        compute_as_base(self, op_input, op_output, context)


def compute_as_base(operator: Any, *args: Any) -> None:
    super(CalledInFunction, operator).compute(*args)


class InMethod(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.help(context)

    @staticmethod
    def help(context: Any) -> Any:
        return context.allocate_cuda_stream("own")


class InProperty(Operator):
    @property
    def stream(self) -> Any:
        return self.context.allocate_cuda_stream("own")


class InFunction(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        asks(op_input)


class InClosure(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        return (lambda: op_input.receive_cuda_streams("in"))()


class Decorated(Operator):
    @decorated
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.set_cuda_stream(1, "out")


class Given(Operator):
    """Calls a function that it was given."""

    def __init__(self, *args: Any, function: Any, **kwargs: Any) -> None:
        self.function = function
        super().__init__(*args, **kwargs)


class PlainCode(Operator):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") + 1, "out")


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        *(
            (kind, {}, True)
            for kind in (
                *(ByHand, Inherited, Called, CalledByName, CalledByBase, InMethod, InProperty),
                *(CalledByAnotherName, CalledByModule, make_local(), CalledInDecorated, CalledInFunction),
                *(InFunction, InClosure, Decorated),
            )
        ),
        *((Given, {"function": function}, True) for function in (asks, partial(asks, 1), lambda i: asks(i))),
        (Given, {"function": len}, False),
        (PlainCode, {}, False),
        (Replaced, {}, False),
    ],
)
def test_operators_that_name_a_method_that_gives_a_stream_handle_streams(
    kind: Any, arguments: Any, expected: bool
) -> None:
    assert handles_streams(kind(Application(), **arguments)) is expected


def test_functions_that_ask_for_a_stream_handle_streams() -> None:
    @op(outputs=())
    def asking(value: Any, context: Any) -> None:
        context.allocate_cuda_stream("own")

    @op(outputs=())
    def plain(value: Any) -> None: ...

    application = Application()
    assert handles_streams(asking(application))
    assert not handles_streams(plain(application))


# Which operators refer to a stream of a library: what they make may belong to it.


class Stream:
    """A stream of a library."""


class OtherStream(Stream):
    """Another kind of it."""


class ForCuda:
    """A stream by another name, as other libraries see it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


Alias = OtherStream
in_module, several_in_module = Stream(), {"a": [], "b": Stream()}
arrays: Any = None


def make_with(stream: Any) -> Any:
    return lambda: stream


class WithMethod:
    """An object of the program, whose method names a stream."""

    def work(self) -> Any:
        return arrays.cuda.Stream()


def call(holder: Any) -> Any:
    return lambda: holder.work()


@pytest.mark.parametrize(
    "function",
    [
        # It is one, or has one.
        *(Stream(), OtherStream(), ForCuda(), Stream, ForCuda),
        *([1, Stream()], (Stream(),), {Stream()}, frozenset([ForCuda()]), {"side": Stream()}),
        # Its code refers to one.
        *(make_with(Stream()), make_with(ForCuda()), make_with([Stream()]), make_with({1: Stream()})),
        *(lambda: in_module, lambda: several_in_module, lambda: Alias()),
        # Its code names one.
        *(lambda: arrays.cuda.Stream(), lambda: arrays.ExternalStream(1), lambda: arrays.StreamContext(1)),
        *(lambda: arrays.create_stream(), lambda: arrays.set_stream(1), lambda: gpu.use_stream(1)),
        *(lambda: arrays.cuda.stream(1), lambda: (lambda: arrays.cuda.stream(1))()),
        # The code of what it calls does.
        *(WithMethod(), WithMethod().work, call(WithMethod()), partial(call(WithMethod()))),
    ],
)
def test_operators_that_name_or_hold_a_stream_of_a_library_refer_to_it(function: Any) -> None:
    assert _refers_to_stream(Given(Application(), function=function))


@pytest.mark.parametrize(
    "function",
    [
        *(None, 1, "Stream", [1, 2], {"Stream": 1}, len, make_with(1), asks),
        *(lambda: arrays.cuda.synchronize(), lambda: arrays.stream, lambda: arrays.streams),
    ],
)
def test_operators_that_name_and_hold_no_stream_of_a_library_refer_to_none(function: Any) -> None:
    assert not _refers_to_stream(Given(Application(), function=function))


@pytest.mark.parametrize("module", ["torch.nn.modules", "the_program"])
def test_functions_of_array_libraries_are_not_read(module: str) -> None:
    def relu(x: Any) -> Any:
        with library.cuda.Stream():  # type: ignore[attr-defined]
            return x

    def function() -> None:
        relu(1)

    relu.__module__ = module
    assert _refers_to_stream(Given(Application(), function=function)) is (module == "the_program")


@pytest.mark.skipif(is_compiled(), reason="compiled modules cannot be patched")
@pytest.mark.parametrize("limit", ["_MOST", "_MOST_OBJECTS"])
def test_an_operator_with_more_code_or_objects_than_is_read_may_refer_to_a_stream(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    def function() -> None:
        other()

    def other() -> None:
        pass

    operator = Given(Application(), function=function)
    assert not _refers_to_stream(operator)
    monkeypatch.setattr(placement, limit, 1)
    assert _refers_to_stream(operator)


def test_functions_that_name_or_hold_a_stream_of_a_library_refer_to_it() -> None:
    side = Stream()

    @op(outputs=())
    def holding(value: Any) -> None:
        print(side)

    @op(outputs=())
    def naming(value: Any) -> None:
        arrays.set_stream(value)

    @op(outputs=())
    def plain(value: Any) -> None: ...

    application = Application()
    assert _refers_to_stream(holding(application))
    assert _refers_to_stream(naming(application))
    assert not _refers_to_stream(plain(application))


# One stream for a branch.


def compose_branches(app: Any, per: str = "branch") -> None:
    """a >> b >> fork >> (c >> d, e >> f) >> join >> g, and a neighbour of b on a pool of its own."""
    app.seen = []
    app.stream_per = per
    pool, other = CudaStreamPool(app), CudaStreamPool(app)

    def make(name: str, inputs: int = 1, pool: Any = pool, *parts: Any) -> Look:
        ports = ["in", "more"][:inputs]
        body = None if inputs < 2 else lambda self, op_input, op_output: op_input.receive("more")
        return Look(app, pool, *parts, inputs=ports, outputs=["out"], body=body, name=name)

    a = make("a", 0, pool, CountCondition(app, 4))
    b, fork, c, d, e, f, join, g = (
        make(name, 2 if name == "join" else 1) for name in ["b", "fork", "c", "d", "e", "f", "join", "g"]
    )
    apart = make("apart", 1, other)
    for one, two in ((a, b), (b, fork), (fork, c), (c, d), (fork, e), (e, f)):
        app.add_flow(one, two)
    app.add_flow(d, join, {("out", "in")})
    app.add_flow(f, join, {("out", "more")})
    app.add_flow(join, g)
    app.add_flow(g, apart)


def test_the_operators_of_a_branch_share_a_stream(scheduler: MakeScheduler) -> None:
    app = run(compose_branches, scheduler)
    streams = {name: int(stream) for name, stream in app.seen}
    assert len({(name, int(stream)) for name, stream in app.seen}) == 10, "none changes its stream"
    groups: dict[int, set[str]] = {}
    for name, stream in streams.items():
        groups.setdefault(stream, set()).add(name)
    expected = [{"a", "b", "fork"}, {"c", "d"}, {"e", "f"}, {"join", "g"}, {"apart"}]
    assert sorted(map(sorted, groups.values())) == sorted(map(sorted, expected))


def test_each_operator_can_have_a_stream() -> None:
    app = run(partial(compose_branches, per="operator"))
    assert len({int(stream) for _, stream in app.seen}) == 10


def test_an_unknown_way_to_share_streams_is_an_error() -> None:
    with pytest.raises(
        GraphError, match=r"stream_per must be 'operator' .*, 'branch' .* or 'auto' .*, not 'chain'"
    ):
        run(partial(compose_branches, per="chain"))


def test_an_operator_that_waits_for_the_gpu_does_not_share_a_stream() -> None:
    def compose(app: Any) -> None:
        app.seen = []
        app.stream_per = "branch"
        pool = CudaStreamPool(app)
        first = Look(app, CountCondition(app, 3), pool, outputs=["out"], name="first")
        second = Look(app, CudaStreamCondition(app), pool, inputs=["in"], outputs=["out"], name="second")
        app.add_flow(first, second)
        app.add_flow(second, Look(app, pool, inputs=["in"], name="third"))

    streams = {name: int(stream) for name, stream in run(compose).seen}
    assert streams["first"] != streams["second"] == streams["third"]


def test_hand_overs_in_a_branch_need_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch, "record", "wait")
    total = {}
    for frames in (50, 150):
        calls.clear()
        run(partial(compose_row, frames=frames))
        total[frames] = Counter(calls)
    # Four operators: a record at every other compute shows when received frames are no longer read.
    assert (total[150]["wait"], total[50]["wait"]) == (0, 0)
    assert (total[150]["record"] - total[50]["record"]) / 100 <= 2


def compose_row(app: Any, frames: int) -> None:
    app.seen = []
    app.stream_per = "branch"
    pool = CudaStreamPool(app)
    before = Look(app, CountCondition(app, frames), pool, outputs=["out"], name="first")
    for name in ("second", "third", "fourth"):
        after = Look(app, pool, inputs=["in"], outputs=["out"] if name != "fourth" else [], name=name)
        app.add_flow(before, after)
        before = after


def count_calls(monkeypatch: pytest.MonkeyPatch, *names: str) -> Counter[str]:
    """Count the calls of methods of simulated streams."""
    calls: Counter[str] = Counter()
    for name in names:
        original = getattr(sim.Stream, name)

        def counted(self: Any, *args: Any, name: str = name, original: Any = original) -> Any:
            calls[name] += 1
            return original(self, *args)

        monkeypatch.setattr(sim.Stream, name, counted)
    return calls


@pytest.mark.parametrize("per", ["operator", "branch"])
def test_frames_are_right_and_alive_however_streams_are_shared(scheduler: MakeScheduler, per: str) -> None:
    """Each stage reads late what it received, into a new frame; memory that is freed early would be reused."""

    def double(self: Any, op_input: Any, op_output: Any) -> None:
        data = op_input.receive("in")
        stream = gpu.current_stream()
        result = frame(stream)
        launch(
            stream, MS, lambda target, source: write(target, 2 * int(source.view("int64")[0])), result, data
        )
        op_output.emit(result, "out")

    def compose(app: Any) -> None:
        app.seen = []
        app.stream_per = per
        pool = CudaStreamPool(app, stream_flags=1)

        def take(self: Any, op_input: Any, op_output: Any) -> None:
            read_frame(gpu.current_stream(), MS, op_input.receive("in"), app.seen)

        before: Any = Producer(app, CountCondition(app, 20), pool, name="producer")
        for name in ("one", "two", "three"):
            after = Step(app, pool, inputs=["in"], outputs=["out"], body=double, name=name)
            app.add_flow(before, after)
            before = after
        app.add_flow(before, Step(app, pool, inputs=["in"], body=take, name="reader"))

    assert run(compose, scheduler).seen == [8 * number for number in range(20)]
