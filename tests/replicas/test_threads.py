"""Replicas on threads: an operator that computes several times at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace import (
    ConditionType,
    CountCondition,
    IOSpec,
    Operator,
    OperatorSpec,
    op,
    retry,
)
from headrace.conditions import ExpiringMessageAvailableCondition
from headrace.core.errors import GraphError, ParameterError
from headrace.gpu import sim
from tests.harness import MS, App, MakeScheduler, Step, greedy, run, sink, source
from tests.replicas.operators import Picky


class Late(Operator):
    """Takes as long as its message says, in virtual time, and counts how many compute at once."""

    computing = most = 0

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("offset", 0, live=True)

    def start(self) -> None:
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        number, delay = op_input.receive("in")
        self.seen.append(number)
        Late.computing += 1
        Late.most = max(Late.most, Late.computing)
        self.fragment.scheduler().clock.sleep_for(delay * MS)
        Late.computing -= 1
        if number < 0:
            raise ValueError(f"{number} is negative")
        op_output.emit(number + self.offset, "out")


@pytest.fixture(autouse=True)
def _nobody_computes() -> None:
    Late.computing = Late.most = 0


def jobs(count: int, seed: int = 0) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(number, rng.randint(1, 40)) for number in range(count)]


def late(
    messages: list[tuple[int, int]], scheduler: MakeScheduler, size: int | None = None, **options: Any
) -> tuple[App, list[Any]]:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.late = Late(app, name="late", **options)
        app.add_flow(source(app, messages), app.late, size=size)
        app.add_flow(app.late, sink(app, taken))

    return run(compose, scheduler), taken


def test_results_are_in_order_whatever_each_takes(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    messages = jobs(40)
    app, taken = late(messages, scheduler, workers=4)
    assert taken == list(range(40))
    assert Late.most == 4
    assert app.now / 1e9 < sum(delay for _, delay in messages) * MS / 2
    assert app.outcome is not None
    assert app.outcome.ended_by == "finished"
    assert app.outcome.operators["late"].computes == 40


def test_unordered_results_leave_as_they_come(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    _, taken = late([(0, 50), (1, 10), (2, 10), (3, 10)], scheduler, workers=2, ordered=False)
    assert taken == [1, 2, 3, 0]


def test_one_slow_job_lets_a_bounded_number_of_others_go_ahead(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    begun: list[int] = []
    ahead: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        number = op_input.receive("in")
        begun.append(number)
        if number == 0:
            self.fragment.scheduler().clock.sleep_for(1000 * MS)
            ahead.append(len(begun))
        op_output.emit(number, "out")

    assert through_slow(body, range(50), scheduler, workers=3) == list(range(50))
    assert ahead == [1 + 2 * 2]  # two jobs done by each of the others, and not collected


def through_slow(
    body: Any, values: Any, scheduler: MakeScheduler = greedy, taken: list[Any] | None = None, **options: Any
) -> list[Any]:
    """Send values through an operator with a compute; return what leaves it."""
    taken = [] if taken is None else taken

    def compose(app: Any) -> None:
        slow = Step(app, body=body, name="slow", inputs=["in"], outputs=["out"], **options)
        app.add_flow(source(app, values), slow)
        app.add_flow(slow, sink(app, taken))

    run(compose, scheduler)
    return taken


def test_an_error_ends_the_run_and_names_the_replica(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    with pytest.raises(ValueError, match="-1 is negative") as raised:
        late([(0, 5), (-1, 5), (2, 5)], scheduler, workers=2)
    assert any("late[1]" in note for note in raised.value.__notes__)


def test_a_skipped_error_leaves_the_others_in_order(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    app, taken = late([(0, 30), (-1, 5), (2, 20), (3, 1)], scheduler, workers=2, on_error="skip")
    assert taken == [0, 2, 3]
    assert app.outcome is not None
    assert sum(each.skipped for each in app.outcome.operators.values()) == 1


def test_metadata_and_timestamps_travel_with_their_message(scheduler: MakeScheduler) -> None:
    def emit(self: Any, op_input: Any, op_output: Any) -> None:
        self.metadata["number"] = self.ticks
        op_output.emit(self.ticks, "out", acq_timestamp=self.ticks * 100)

    seen: list[Any] = []

    def take(self: Any, op_input: Any, op_output: Any) -> None:
        value = op_input.receive("in")
        seen.append((value, dict(self.metadata), op_input.get_acquisition_timestamp("in")))

    def compose(app: Any) -> None:
        first = Step(app, CountCondition(app, 9), outputs=["out"], body=emit, name="first")
        middle = Step(app, inputs=["in"], outputs=["out"], body=_pass_on, name="middle", workers=3)
        app.add_flow(first, middle)
        app.add_flow(middle, Step(app, inputs=["in"], body=take, name="last"))

    run(compose, scheduler)
    assert seen == [(n, {"number": n}, n * 100) for n in range(1, 10)]


def _pass_on(self: Any, op_input: Any, op_output: Any) -> None:
    op_output.emit(op_input.receive("in"), "out")


def test_a_job_has_the_messages_of_all_inputs(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        op_output.emit((op_input.receive("left"), op_input.receive("any")), "out")

    def compose(app: Any) -> None:
        inputs = ["left", ("any", {"size": IOSpec.ANY_SIZE})]
        joined = Step(app, inputs=inputs, outputs=["out"], body=body, name="joined", workers=2)
        app.add_flow(source(app, "abc"), joined, {("out", "left")})
        app.add_flow(source(app, [1, 2, 3], name="one"), joined, {("out", "any")})
        app.add_flow(source(app, [4, 5, 6], name="two"), joined, {("out", "any")})
        app.add_flow(joined, sink(app, taken))
        app.add_flow(joined, sink(app, taken_too, name="other"))

    taken_too: list[Any] = []
    run(compose, scheduler)
    assert taken == taken_too == [("a", (1, 4)), ("b", (2, 5)), ("c", (3, 6))]


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_what_a_compute_does_not_receive_is_dropped_and_counted_once(on: str) -> None:
    taken: list[int] = []

    def burst(self: Any, op_input: Any, op_output: Any) -> None:
        for number in range(4):
            op_output.emit(4 * self.ticks + number, "out")

    def compose(app: Any) -> None:
        outputs = [("out", {"size": 4})]
        bursts = Step(app, CountCondition(app, 3), outputs=outputs, body=burst, name="source")
        app.picky = Picky(app, name="picky", workers=2, on=on)
        app.add_flow(bursts, app.picky, policy=IOSpec.QueuePolicy.POP)
        app.add_flow(app.picky, sink(app, taken))

    app = App(compose)
    goal = app.expect("source->sink", max="100s")
    with app.track():
        app.run()
    assert taken[0] == 7  # each replica receives its first job, and not its second
    assert sorted(app.dropped().values()) == [1, 9]  # by the replica, and by the full queue
    assert app.picky.dropped() == app.picky.dropped("in") == 10
    assert (goal.sent, goal.arrived, goal.dropped) == (12, 2, 10)


def test_a_live_parameter_is_set_on_all_replicas(machine: sim.Machine) -> None:
    taken: list[Any] = []

    def compose(app: Any) -> None:
        app.late = Late(app, name="late", workers=2)

        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            self.fragment.scheduler().clock.sleep_for(100 * MS)
            if self.ticks == 5:
                app.late.set_live("offset", 100)
            op_output.emit((self.ticks, 1 if self.ticks % 2 else 50), "out")

        app.add_flow(Step(app, CountCondition(app, 8), outputs=["out"], body=emit, name="first"), app.late)
        app.add_flow(app.late, sink(app, taken))

    run(compose)
    assert taken == [1, 2, 3, 4, 105, 106, 107, 108]


def test_stopping_the_operator_finishes_what_its_replicas_have(
    machine: sim.Machine, scheduler: MakeScheduler
) -> None:
    begun: list[int] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        number = op_input.receive("in")
        begun.append(number)
        if number == 3:
            self.fragment.slow.stop_execution()
        op_output.emit(number, "out")

    taken: list[int] = []

    def compose(app: Any) -> None:
        app.slow = Step(app, body=body, name="slow", inputs=["in"], outputs=["out"], workers=2)
        app.add_flow(source(app, range(100)), app.slow)
        app.add_flow(app.slow, sink(app, taken))

    run(compose, scheduler)
    assert taken == sorted(begun)
    assert 3 in taken
    assert len(taken) < 20


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"workers": 0}, ValueError, "operator 'slow': workers must be from 1 to 256, not 0"),
        ({"workers": 2.5}, TypeError, "workers must be an int"),
        ({"ordered": False}, ParameterError, "give their number too: workers=4"),
        ({"workers": 2, "on": "gpus"}, ParameterError, "on must be 'threads' or 'processes', not 'gpus'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        through_slow(_pass_on, [1], **options)


class Capturable(Step):
    capturable = True

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None: ...


def test_a_source_and_a_captured_operator_are_not_replicated() -> None:
    with pytest.raises(GraphError, match="'source' has workers=2 and no messages to distribute"):
        run(lambda app: app.add_flow(source(app, [1], workers=2), sink(app, [])))

    def compose(app: Any) -> None:
        slow = Capturable(app, inputs=["in"], outputs=["out"], name="slow", workers=2)
        app.add_flow(source(app, [1]), slow)
        app.add_flow(slow, sink(app, []))
        app.capture(slow, name="segment")

    with pytest.raises(GraphError, match="workers=2 and is captured in segment 'segment'"):
        run(compose)


def test_a_parameter_named_workers_keeps_its_meaning() -> None:
    class Hall(Operator):
        workers: int

        def setup(self, spec: OperatorSpec) -> None:
            spec.param("workers", 1)
            spec.input("in").condition(ConditionType.NONE)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            seen.append(self.workers)

    seen: list[int] = []
    run(lambda app: app.add_operator(Hall(app, CountCondition(app, 1), workers=7)))
    assert seen == [7]


class Sum(Operator):
    """Adds what it receives, and sends the sum at its end."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.total = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.total += op_input.receive("in")

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(self.total, "out")


def test_each_replica_has_an_end(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        total = Sum(app, name="sum", workers=3)
        app.add_flow(source(app, list(range(10))), total)
        app.add_flow(total, sink(app, taken))

    app = run(compose, scheduler)
    assert len(taken) == 3
    assert sum(taken) == 45
    assert app.outcome is not None
    assert app.outcome.ended_by == "finished"


class Batches(Operator):
    """Sends batches of four, and at its end what is left."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in", size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=4)
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        left = op_input.receive("in")
        if left is not None:
            op_output.emit(left, "out")


def test_the_last_incomplete_batch_waits_for_a_replica_that_computes(scheduler: MakeScheduler) -> None:
    """No replica is idle when the source ends: nothing joins the batch that a replica has received."""
    taken: list[Any] = []

    class Slow(Batches):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            first = op_input.receive("in")
            self.fragment.scheduler().clock.sleep_for(10 * MS / 1e9)
            op_output.emit((first, op_input.receive("in")), "out")

    def compose(app: Any) -> None:
        batches = Slow(app, name="batches", workers=2)
        app.add_flow(source(app, list(range(10))), batches)
        app.add_flow(batches, sink(app, taken))

    app = App(compose, scheduler)
    with app.track() as tracker:
        outcome = app.run()
    assert taken == [((0, 1, 2, 3), None), ((4, 5, 6, 7), None), (8, 9)]
    assert outcome.undelivered == {}
    assert tracker.statistics.operator("sink").count == 3  # that of the end is watched as the others are


def test_what_replicas_cannot_do_is_refused() -> None:
    @op(on_error=retry(times=2))
    def again(value: int) -> None: ...

    @op
    async def later(value: int) -> None: ...

    def compose(app: Any, kind: Any) -> None:
        app.add_flow(source(app, [1]), kind(app, name="slow", workers=2))

    with pytest.raises(
        GraphError, match="'slow' has workers=2 and retries or sends dead letters after errors"
    ):
        run(lambda app: compose(app, again), greedy)
    with pytest.raises(GraphError, match="'slow' has workers=2 and is async; concurrency= lets its calls"):
        run(lambda app: compose(app, later), greedy)


@pytest.mark.parametrize("way", ["of the port", "of several ports", "given"])
def test_several_messages_for_a_compute_that_receives_one_at_a_time_are_refused(way: str) -> None:
    class Collects(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            port = spec.input("in")
            if way == "of the port":
                port.condition(ConditionType.MESSAGE_AVAILABLE, min_size=3)
            if way == "of several ports":
                spec.multi_port_condition(
                    kind=ConditionType.MULTI_MESSAGE_AVAILABLE,
                    port_names=["in"],
                    sampling_mode="SumOfAll",
                    min_sum=3,
                )

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None: ...

    def compose(app: Any) -> None:
        given = [ExpiringMessageAvailableCondition(app, 3, "1ms", receiver="in")] if way == "given" else []
        app.add_flow(source(app, [1]), Collects(app, *given, name="slow", workers=2), size=4)

    with pytest.raises(GraphError, match="'slow' has workers=2 and waits for several messages at input 'in'"):
        run(compose, greedy)


def test_several_messages_of_one_input_and_one_of_another_are_a_job(scheduler: MakeScheduler) -> None:
    taken: list[Any] = []

    class Pairs(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.input("many", size=2)
            spec.input("one")
            spec.output("out")
            spec.multi_port_condition(
                kind=ConditionType.MULTI_MESSAGE_AVAILABLE,
                port_names=["many", "one"],
                sampling_mode="PerReceiver",
                min_sizes=[2, 1],
            )

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("many"), op_input.receive("one")), "out")

    def compose(app: Any) -> None:
        pairs = Pairs(app, name="pairs", workers=2)
        app.add_flow(source(app, range(4), name="many"), pairs, {("out", "many")})
        app.add_flow(source(app, range(2), name="ones"), pairs, {("out", "one")})
        app.add_flow(pairs, sink(app, taken))

    run(compose, scheduler)
    assert taken == [((0, 1), 0), ((2, 3), 1)]


def test_a_function_may_yield_several_results_for_a_message(scheduler: MakeScheduler) -> None:
    taken: list[tuple[int, int]] = []

    @op
    def several(value: int) -> Any:
        for part in range(5):
            yield value, part

    def compose(app: Any) -> None:
        stage = several(app, workers=3)
        app.add_flow(source(app, list(range(8))), stage)
        app.add_flow(stage, sink(app, taken))

    run(compose, scheduler)
    assert taken == [(value, part) for value in range(8) for part in range(5)]


def test_an_end_may_yield_several_results(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    class Batch(Sum):
        def end(self, op_input: Any, op_output: Any, context: Any) -> Any:
            for _ in range(4):
                op_output.emit(1, "out")
                yield

    def compose(app: Any) -> None:
        stage = Batch(app, name="batch", workers=3)
        app.add_flow(source(app, list(range(8))), stage)
        app.add_flow(stage, sink(app, taken))

    run(compose, scheduler)
    assert taken == [1] * 12


def test_a_replica_that_stops_gets_no_more_jobs(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    class Stops(Operator):
        def setup(self, spec: OperatorSpec) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            value = op_input.receive("in")
            op_output.emit(value, "out")
            if value == 2:
                self.stop_execution()

    def compose(app: Any) -> None:
        stage = Stops(app, name="stops", workers=3)
        app.add_flow(source(app, list(range(20))), stage)
        app.add_flow(stage, sink(app, taken))

    app = run(compose, scheduler)
    assert taken == list(range(20))
    assert app.outcome is not None
    assert app.outcome.ended_by == "finished"
