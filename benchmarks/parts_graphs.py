"""Random graphs whose stages are in several parts, for `benchmarks.parts_soak`.

A plan is data: stages, their inputs, and the flows between them. `orderly` plans are made so that every
connection must carry the same messages whatever the scheduler does: queues with one producer, producers
that wait for room. `looped` plans are like them, and messages also come back. `unruly` plans have everything
else as well: shared queues, full queues that drop, producers that do not wait, cycles, inputs of which any
will do, conditions that must be polled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headrace import (
    Application,
    Condition,
    ConditionType,
    CountCondition,
    Fragment,
    IOSpec,
    Operator,
    OperatorSpec,
    PeriodicCondition,
)
from headrace.conditions import AsynchronousCondition, AsynchronousEventState
from headrace.core import SchedulingStatusType
from tests.harness import MakeScheduler

POLICIES = {name: getattr(IOSpec.QueuePolicy, name) for name in ("POP", "REJECT", "FAULT")}


@dataclass
class InputPlan:
    size: int = 1  # -1: a queue for each connection
    least: int | None = None  # None: the default condition; 0: none
    policy: str = "FAULT"
    sources: list[int] = field(default_factory=list)
    places: int | None = None  # of its flows, if they say so


@dataclass
class StagePlan:
    kind: str  # "count", "event" or "middle"
    count: int = 0
    period: int = 0
    burst: int = 1
    waits: bool = True
    asks_for_room: bool = False  # also of queues that drop
    moody: bool = False
    any_input: bool = False
    fails_at: int = 0
    is_single: bool = False  # one message for each compute, whatever it takes
    says_end: bool = False  # emits one more message when its inputs have ended
    inputs: list[InputPlan] = field(default_factory=list)


@dataclass
class Plan:
    stages: list[StagePlan]


def orderly(random: Random) -> Plan:
    """Every stage takes a fixed number from each input, or has one input and takes whatever waits there.

    Anything else would be a matter of timing: a join that takes two from one side when it happens to find
    two has one too few later on.
    """
    stages = [StagePlan("count", count=random.randrange(1, 12), period=random.choice([0, 0, 7, 50]))]
    for _ in range(random.randrange(1, 7)):
        if random.random() < 0.2:
            kind = random.choice(["count", "event"])
            stages.append(StagePlan(kind, count=random.randrange(0, 8), period=random.choice([0, 13])))
            continue
        stage = StagePlan("middle", burst=random.choice([0, 1, 1, 1, 2]), period=random.choice([0, 0, 0, 11]))
        single = [n for n, other in enumerate(stages) if _emits(other) == 1]
        if random.random() < 0.5:
            source = random.randrange(len(stages))
            most = _emits(stages[source])
            size = max(most, random.choice([1, 1, 2, 3, 4]))
            least = 1 if most > 1 else random.choice([None, 1])
            stage.inputs.append(InputPlan(size, least, "FAULT", [source]))
        else:
            for _ in range(random.randrange(1, 4)):
                if random.random() < 0.3:
                    producers = random.sample(single, k=min(len(single), 2))
                    stage.inputs.append(InputPlan(-1, None, "FAULT", producers))
                else:
                    size = random.choice([1, 1, 2, 3])
                    stage.inputs.append(InputPlan(size, None, "FAULT", [random.choice(single)]))
        stages.append(stage)
    return Plan(stages)


def looped(random: Random) -> Plan:
    """An orderly plan with loops, each of which begins with messages of a source and ends by a count or a source.

    The queue at the head of a loop has places for all messages of the loop, so it never waits for itself. They come
    from two stages in any order, but those of one stage in their own.
    """
    plan = orderly(random) if random.random() < 0.3 else Plan([StagePlan("count", random.randrange(1, 30))])
    for add in random.choices((_add_loop, _add_single), weights=(1, 2), k=random.randrange(2, 8)):
        add(random, plan.stages)
    return plan


def _add_single(random: Random, stages: list[StagePlan]) -> None:
    """Add a source, or a stage that takes one message from each of its inputs."""
    if random.random() < 0.2:
        stages.append(StagePlan(random.choice(["count", "event"]), count=random.randrange(0, 20)))
        return
    single = [n for n, other in enumerate(stages) if _emits(other) == 1]
    stage = StagePlan("middle", is_single=True, period=random.choice([0, 0, 0, 11]))
    stage.says_end = random.random() < 0.3
    for source in random.choices(single, k=random.choice([1, 1, 1, 2, 3])):
        stage.inputs.append(InputPlan(1, None, "FAULT", [source], places=random.choice([None, None, 2, 5])))
    stages.append(stage)


def _add_loop(random: Random, stages: list[StagePlan]) -> None:
    single = [n for n, other in enumerate(stages) if _emits(other) == 1]
    tokens = random.choice([1, 1, 2, 3])
    seed, head = len(stages), len(stages) + 1
    last = head + random.randrange(3)
    stages.append(StagePlan("count", count=tokens, period=random.choice([0, 0, 7])))
    places = (
        tokens + (last == head) + random.randrange(3)
    )  # it waits for room before it takes its own message
    back = InputPlan(1, None, "FAULT", [seed, last], places=places)
    first = StagePlan("middle", count=random.randrange(1, 15), is_single=True, inputs=[back])
    stages.append(first)
    if random.random() < 0.5:  # each turn takes a message from outside, too
        fed = InputPlan(1, None, "FAULT", [random.choice(single)], places=random.choice([None, 2, 4]))
        first.inputs.insert(random.randrange(2), fed)
        first.count *= random.randrange(2)
        first.period = random.choice([0, 0, 11])
    for source in range(head, last):
        stage = StagePlan("middle", is_single=True, period=random.choice([0, 0, 0, 11]))
        stage.inputs.append(InputPlan(1, None, "FAULT", [source], places=random.choice([None, None, 3])))
        if random.random() < 0.3:
            stage.inputs.append(InputPlan(1, None, "FAULT", [random.choice(single)], places=2))
        stages.append(stage)


def unruly(random: Random, faults: bool = False) -> Plan:
    stages = [StagePlan("count", count=random.randrange(1, 15), period=random.choice([0, 0, 9]))]
    for _ in range(random.randrange(2, 9)):
        kind = random.choice(["count", "event", "middle", "middle", "middle", "middle"])
        stage = StagePlan(
            kind,
            count=random.randrange(0, 10),
            period=random.choice([0, 0, 0, 17]),
            burst=random.choice([0, 1, 1, 1, 2, 3]),
            waits=random.random() < 0.7,
            asks_for_room=random.random() < 0.7,
            moody=random.random() < 0.2,
            any_input=random.random() < 0.2,
        )
        stages.append(stage)
        if kind != "middle":
            continue
        for _ in range(random.randrange(1, 3)):
            least = random.choice([None, None, 1])
            policy = random.choice(["POP", "REJECT"])
            size = random.choice([-1, 1, 1, 2, 3])
            stage.inputs.append(InputPlan(size, least, policy))
    middles = [stage for stage in stages if stage.kind == "middle"]
    for stage in middles:
        for port in stage.inputs:
            for _ in range(random.choice([1, 1, 2, 3])):
                # Any stage may feed any other, itself included, so there are cycles; the first feeds each
                # of them so that none waits for nothing but itself.
                port.sources.append(random.randrange(len(stages)))
            port.sources = sorted({*port.sources, 0})
    for stage in stages:
        stage.count = stage.count or (40 if stage.kind == "middle" else 0)
    if faults:
        random.choice(stages).fails_at = random.randrange(1, 8)
    return Plan(stages)


def _emits(stage: StagePlan) -> int:
    """How many messages one compute of a stage may emit."""
    if stage.kind != "middle" or stage.is_single:
        return 1
    taken = sum(len(port.sources) if port.size == -1 else port.size for port in stage.inputs)
    return max(1, taken * stage.burst)


class Moody(Condition):
    """A condition that says WAIT every other time it is asked; nothing announces that it changed its mind."""

    asked = 0

    def check(self, timestamp: int) -> tuple[SchedulingStatusType, int | None]:
        self.asked += 1
        return (SchedulingStatusType.READY if self.asked % 2 else SchedulingStatusType.WAIT), None


class Stage(Operator):
    """A stage of a plan; notes what it emits and receives, and whether it was ever run twice at once."""

    def __init__(self, fragment: Any, number: int, plan: Plan, **kwargs: Any) -> None:
        self.number, self.plan, self.stage = number, plan, plan.stages[number]
        self.ticks = 0
        self.emitted: list[tuple[int, int]] = []
        self.received: dict[str, list[tuple[int, int]]] = {}
        self.overlapped = False
        self.outside: list[threading.Thread] = []
        self._alone = threading.Lock()
        super().__init__(fragment, name=f"s{number}", **kwargs)
        stage = self.stage
        if stage.kind != "middle" or stage.count:
            self.add_arg(CountCondition(fragment, stage.count))
        if stage.period:
            self.add_arg(PeriodicCondition(fragment, stage.period))
        if stage.moody:
            self.add_arg(Moody(fragment))
        self.event: AsynchronousCondition | None = None
        if stage.kind == "event":
            self.event = AsynchronousCondition(fragment)
            self.add_arg(self.event)

    def setup(self, spec: OperatorSpec) -> None:
        for n, port in enumerate(self.stage.inputs):
            size = IOSpec.ANY_SIZE if port.size == -1 else port.size
            declared = spec.input(f"in{n}", size=size, policy=POLICIES[port.policy])
            self.received[f"in{n}"] = []
            if port.least == 0:
                declared.condition(ConditionType.NONE)
            elif port.least is not None:
                declared.condition(ConditionType.MESSAGE_AVAILABLE, min_size=port.least)
        if self.stage.any_input and len(self.stage.inputs) > 1:
            spec.or_combine_port_conditions([f"in{n}" for n in range(len(self.stage.inputs))])
        places = 1 if any(port.policy != "FAULT" for port in self.stage.inputs) else _emits(self.stage)
        out = spec.output("out", size=places)
        if not self.stage.waits:
            out.condition(ConditionType.NONE)
        elif self.stage.asks_for_room:
            out.condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=places)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self._alone.acquire(blocking=False):
            self.overlapped = True
            return
        try:
            self._step(op_input, op_output)
        finally:
            self._alone.release()

    def _step(self, op_input: Any, op_output: Any) -> None:
        self.ticks += 1
        if self.ticks == self.stage.fails_at:
            raise ZeroDivisionError(f"{self.name} fails on purpose")
        if self.event is not None:
            self._wait_for_outside()
        got = 0
        for name, kept in self.received.items():
            taken = op_input.receive(name)
            batch = taken if self.spec.inputs[name].gives_tuple else (taken,)
            for message in batch or ():
                if message is not None:
                    kept.append(message)
                    got += 1
        is_fixed = self.stage.kind != "middle" or self.stage.is_single
        for _ in range(1 if is_fixed else got * self.stage.burst):
            self.emitted.append((self.number, len(self.emitted)))
            op_output.emit(self.emitted[-1], "out")

    def _wait_for_outside(self) -> None:
        event = self.event
        assert event is not None
        event.event_state = AsynchronousEventState.EVENT_WAITING
        done = AsynchronousEventState.EVENT_DONE
        self.outside.append(threading.Thread(target=lambda: setattr(event, "event_state", done)))
        self.outside[-1].start()


class EndingStage(Stage):
    """A stage that emits one more message when it ends."""

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.emitted.append((self.number, len(self.emitted)))
        op_output.emit(self.emitted[-1], "out")


def make_stage(fragment: Any, number: int, plan: Plan) -> Stage:
    return (EndingStage if plan.stages[number].says_end else Stage)(fragment, number, plan)


class Group(Fragment):
    """The stages of one part."""

    def __init__(self, application: PlanApp, name: str, numbers: list[int], on_loss: str) -> None:
        super().__init__(application, name, on_loss=on_loss)
        self._numbers = numbers

    def compose(self) -> None:
        plan = self._headrace.application.plan
        stages = {number: make_stage(self, number, plan) for number in self._numbers}
        self._headrace.application.stages.update(stages)
        for stage in stages.values():
            self.add_operator(stage)
        for source, target, port in flows_of(plan):
            if source in stages and target in stages:
                size = places_at(plan, target, port)
                self.add_flow(stages[source], stages[target], {("out", port)}, size=size)


class PlanApp(Application):
    """A plan whose stages are in parts: `places` has the number of the part of each stage.

    `policies` has what becomes of the run if a part is lost.
    """

    def __init__(
        self, plan: Plan, places: list[int], scheduler: MakeScheduler, policies: Sequence[str] = ()
    ) -> None:
        super().__init__([])
        self.plan, self.places, self.stages = plan, places, {}
        self._policies = policies or ("stop",) * (1 + max(places))
        self._make_scheduler = scheduler

    def compose(self) -> None:
        self.scheduler(self._make_scheduler(self))
        parts = {
            part: Group(
                self,
                f"p{part}",
                [n for n, place in enumerate(self.places) if place == part],
                self._policies[part],
            )
            for part in sorted(set(self.places))
        }
        for part in parts.values():
            self.add_fragment(part)
        for source, target, port in flows_of(self.plan):
            ends = parts[self.places[source]], parts[self.places[target]]
            if ends[0] is not ends[1]:
                size = places_at(self.plan, target, port)
                self.add_flow(*ends, {(f"s{source}.out", f"s{target}.{port}")}, size=size)


def flows_of(plan: Plan) -> list[tuple[int, int, str]]:
    """Return the flows of a plan: the numbers of the stages, and the input."""
    return [
        (source, target, f"in{n}")
        for target, stage in enumerate(plan.stages)
        for n, port in enumerate(stage.inputs)
        for source in port.sources
    ]


def places_at(plan: Plan, target: int, port: str) -> int | None:
    """Return the places that the flows into an input say."""
    return plan.stages[target].inputs[int(port[2:])].places


def places_of(plan: Plan, random: Random, parts: int) -> list[int]:
    """Return a random part for each stage."""
    return [random.randrange(parts) for _ in plan.stages]


def received(plan: Plan, stages: dict[int, Any]) -> dict[str, Any]:
    """Return what each stage received, by port; those of several stages in one queue come in any order."""
    return {
        f"{stage.name}.{port}": in_order(plan, stage.number, port, kept)
        for stage in stages.values()
        for port, kept in stage.received.items()
    }


def in_order(plan: Plan, target: int, port: str, kept: list[Any]) -> Any:
    """Return what a port has received, as it must be in every run.

    If several stages send to one queue, who comes first is a matter of time. How many come is not.
    """
    declared = plan.stages[target].inputs[int(port[2:])]
    if declared.size == -1 or len(declared.sources) < 2:
        return kept
    by_source = {source: [n for origin, n in kept if origin == source] for source in declared.sources}
    assert all(numbers == list(range(len(numbers))) for numbers in by_source.values()), (port, by_source)
    return len(kept)
