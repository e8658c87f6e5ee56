"""Random graphs that write down what they do, and what follows from that for every figure.

A graph has joins, flows that divide and meet again, batches, queues with policies, joins by time, errors that are
skipped, tried again or sent on, replicas, sources with a clock or with acquisition timestamps, and kernels of known
length. A message knows the compute that sent it, and a compute what it received. Where a frame went, and how long
that took, is found by going along these, without the numbers and tables of headrace.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from headrace import aligned, dead_letter, gpu, retry
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import IOSpec
from headrace.core.error_policy import skip
from headrace.gpu import sim
from tests.harness.operators import Step

MS = 1_000_000
POP, REJECT = IOSpec.QueuePolicy.POP, IOSpec.QueuePolicy.REJECT


@dataclass
class Input:
    """An input: who sends to it through which output, how many messages a compute takes, and its queue."""

    source: str
    output: str = "out"
    batch: int = 1
    policy: Any = None
    places: int = 1


@dataclass
class Plan:
    """An operator: what it takes is in milliseconds, its kernel and its times in nanoseconds."""

    name: str
    inputs: list[Input] = field(default_factory=list)
    takes: list[int] = field(default_factory=lambda: [0])
    emits: int = 1
    silent: float = 0.0
    fails: float = 0.0
    retries: int = 0
    backoff: int = 0
    has_letters: bool = False
    tolerance: int = 0
    workers: int = 1
    is_parallel: bool = False
    kernel: int = 0
    count: int = 0
    period: int = 0
    is_acquired: bool = False
    is_sink: bool = True


@dataclass(eq=False)
class Compute:
    """What one compute did: from when to when, what it received and sent, and when its kernel ran."""

    name: str
    began: int
    plan: Plan
    received: list[Message] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    ended: int = 0
    kernel: tuple[int, int] | None = None
    has_failed: bool = False
    is_retried: bool = False

    @cached_property
    def work(self) -> int:
        """When the device had completed its kernel, and what it came after."""
        return max(self.kernel[1] if self.kernel else 0, *(each.compute.work for each in self.received), 0)

    @property
    def done(self) -> int:
        """When all of its work was complete; a frame whose kernels still run has not arrived."""
        return max(self.ended, self.work)

    @property
    def names(self) -> tuple[str, ...]:
        """The operators of headrace that do what it did; a replica is between two others."""
        name = self.plan.name
        return (name,) if self.plan.workers == 1 else (name, self.name, f"{name}[results]")


@dataclass(eq=False)
class Message:
    """A message; a dead letter is one that stands for another."""

    compute: Compute
    emitted: int
    origin: int
    output: str = "out"
    number: int = field(default_factory=count().__next__)


@dataclass(eq=False)
class Frame:
    """What became of a message of a goal's first operator."""

    origin: int
    arrivals: list[Compute] = field(default_factory=list)
    has_failed: bool = False
    is_waiting: bool = False

    @property
    def latency(self) -> int:
        return max((each.done - self.origin for each in self.arrivals), default=0)

    def fate(self, bound: int) -> str:
        if self.is_waiting:
            return "outstanding"
        if self.has_failed:
            return "failed"
        return ("late" if self.latency > bound else "arrived") if self.arrivals else "dropped"


class Beside(Step):
    """Computes beside others."""

    parallel = True


class Graph:
    """A random graph, and what happened in a run of it."""

    def __init__(self, seed: int, on_device: bool) -> None:
        self.seed, self._rng, self._on_device = seed, random.Random(seed), on_device
        self.plans: dict[str, Plan] = {}
        self.computes: list[Compute] = []
        self._launched: list[Compute] = []
        # The dead letters of messages, by the message and the operator that failed for it.
        self.letters: dict[tuple[int, str], Message] = {}
        self._make()

    @property
    def is_serial(self) -> bool:
        """Whether no operator has threads of its own."""
        return not any(plan.is_parallel or plan.workers > 1 for plan in self.plans.values())

    # Making.

    def _make(self) -> None:
        rng = self._rng
        self._is_acquired, self._has_threads = rng.random() < 0.4, rng.random() < 0.5
        for number in range(rng.choice([1, 1, 2])):
            plan = Plan(f"s{number}", count=rng.randint(4, 12), period=rng.choice([5, 10, 12]) * MS)
            plan.is_acquired, plan.emits = self._is_acquired, rng.choice([1, 1, 1, 3])
            plan.takes = rng.choices([0, 1, 2, 30], [4, 3, 3, 1], k=3)
            self._add(plan)
        for number in range(rng.randint(1, 6)):
            self._add(self._operator(f"n{number}"))
        for plan in list(self.plans.values()):
            if not plan.is_sink and plan.inputs and plan.inputs[0].policy is REJECT:
                plan.inputs[
                    0
                ].policy = POP  # of a queue that rejects, nobody knows which messages wait at last
            if plan.has_letters:
                self._add(Plan(f"letters-{plan.name}", [Input(plan.name, "bad", places=9)], [0, 1]))

    def _operator(self, name: str) -> Plan:
        rng, plan = self._rng, Plan(name)
        # Behind one of the last ones, so that there are ways of some length.
        plan.inputs = [Input(rng.choice(list(self.plans)[-3:])) for _ in range(rng.choice([1, 1, 2]))]
        plan.takes = [rng.randint(0, 6) for _ in range(rng.randint(1, 4))]
        plan.emits, plan.silent = rng.choice([1, 1, 1, 2]), rng.choice([0, 0, 0.2])
        if len(plan.inputs) == 2:
            plan.tolerance = rng.choice([0, 2, 4]) * MS * self._is_acquired
        else:
            plan.inputs[0].batch = rng.choice([1, 1, 1, 2])
            plan.inputs[0].policy = rng.choice([None, None, POP, POP if plan.inputs[0].batch > 1 else REJECT])
        for port in plan.inputs:
            port.places = rng.randint(port.batch, 3)
        if rng.random() < 0.4:
            plan.fails = rng.choice([0.1, 0.4])
            if not plan.tolerance:
                plan.has_letters = rng.random() < 0.5
                plan.retries, plan.backoff = rng.choice([0, 0, 1, 2]), rng.choice([0, 3 * MS])
        elif self._has_threads and len(plan.inputs) == 1 and plan.inputs[0].batch == 1 and rng.random() < 0.5:
            plan.workers, plan.emits = rng.randint(2, 3), 1
        plan.is_parallel = self._has_threads and rng.random() < 0.3
        plan.kernel = rng.choice([0, 200, 2_000, 5_000]) * 1000 if self._on_device else 0
        return plan

    def _add(self, plan: Plan) -> None:
        self.plans[plan.name] = plan
        for port in plan.inputs:
            source = self.plans[port.source]
            source.is_sink &= port.output == "bad"
            if (
                port.policy is None and port.output == "out"
            ):  # a sender waits for room for all that it may send
                port.places = max(port.places, source.emits)

    def compose(self, app: Any) -> None:
        """Build the application."""
        made: dict[str, Step] = {}
        spin = gpu.kernel("spin", source="", seconds=lambda length, number: length * 1e-9, effect=self._ran)
        for plan in self.plans.values():
            made[plan.name] = self._build(app, plan, spin)
            app.add_operator(made[plan.name])
            for place, port in enumerate(plan.inputs):
                ends = made[port.source], made[plan.name], {(port.output, "ab"[place])}
                app.add_flow(*ends, size=port.places, policy=port.policy)

    def _build(self, app: Any, plan: Plan, spin: Any) -> Step:
        def setup(spec: Any) -> None:
            if plan.tolerance:
                spec.join(aligned(f"{plan.tolerance}ns"))
            if plan.has_letters:
                spec.output("bad")

        operator = (Beside if plan.is_parallel else Step)(
            app,
            *((CountCondition(app, plan.count), PeriodicCondition(app, plan.period)) if plan.count else ()),
            inputs=[("ab"[at], {"size": port.batch}) for at, port in enumerate(plan.inputs)],
            outputs=[] if plan.is_sink else [("out", {"size": plan.emits})],
            body=_Body(self, app, plan, spin),
            setup=setup,
            name=plan.name,
            **({"workers": plan.workers} if plan.workers > 1 else {}),
        )
        if plan.fails:
            operator.on_error = skip() | dead_letter("bad") if plan.has_letters else skip()
            if plan.retries:
                operator.on_error = retry(times=plan.retries, backoff=plan.backoff * 1e-9) | operator.on_error
        return operator

    def launch(self, stream: Any, compute: Compute, spin: Any) -> None:
        """Launch the kernel of a compute."""
        self._launched.append(compute)
        config = gpu.LaunchConfig(grid=1, block=32)
        gpu.launch(stream, config, spin.on(gpu.Device()), compute.plan.kernel, len(self._launched) - 1)

    def _ran(self, length: int, number: int) -> None:
        launch = sim.launched()
        self._launched[number].kernel = round(launch.start * 1e9), round(launch.end * 1e9)

    # What happened.

    def consumer(self, message: Message, plan: Plan, port: str) -> Compute | None:
        """Return the compute that received a message for good."""
        return self._consumers.get((id(message), plan.name, port))

    def finish(self, outcome: Any) -> None:
        """Look up what the run has left."""
        self._consumers = {
            (id(message), each.plan.name, port): each
            for each in self.computes
            for message, port in zip(each.received, each.ports, strict=True)
            if not each.is_retried
        }
        self._waiting: set[tuple[int, str, str]] = set()
        self._unsent: set[int] = set()
        self.unreceived: dict[tuple[str, str], int] = {}
        for plan in self.plans.values():
            for place, port in enumerate(plan.inputs):
                left = [
                    (id(message), plan.name, "ab"[place])
                    for message in self.sent_to(port)
                    if (id(message), plan.name, "ab"[place]) not in self._consumers
                ]
                waiting = outcome.operators[plan.name].undelivered.get("ab"[place], 0)
                if (
                    self.plans[port.source].workers > 1
                ):  # behind its replicas, too, which have not sent them yet
                    inside = outcome.operators[f"{port.source}[results]"].undelivered.get("out", 0)
                    waiting += inside
                    sent = self.sent_to(port)
                    self._unsent.update(map(id, sent[len(sent) - inside :]))
                # A queue that refuses keeps the oldest; others, and joins, the newest.
                refuses = port.policy is None and not plan.tolerance
                self._waiting.update(left[:waiting] if refuses else left[len(left) - waiting :])
                self.unreceived[plan.name, "ab"[place]] = len(left) - waiting

    def sent_to(self, port: Input) -> list[Message]:
        """Return the messages that were sent towards an input, in order."""
        is_replicated = self.plans[port.source].workers > 1
        sent = [
            message
            for each in self.computes
            if each.plan.name == port.source
            for message in each.sent
            if message.output == port.output
        ]
        # Results of replicas go on in the order of what these received.
        return sorted(sent, key=lambda each: (each.compute.received[0] if is_replicated else each).number)

    # What follows from it.

    def by_operator(self) -> dict[str, list[Compute]]:
        """Return the computes of each operator, and of each replica."""
        found: defaultdict[str, list[Compute]] = defaultdict(list)
        for each in self.computes:
            found[each.name].append(each)
        return found

    def queues(self) -> dict[tuple[str, str], tuple[int, list[int], int]]:
        """Return of each input how many messages were received, how long they waited, and how many were dropped.

        How long is not known of what replicas send, and of what they are given.
        """
        found = {}
        for plan in self.plans.values():
            for place, port in enumerate(plan.inputs):
                sent = [(each, self.consumer(each, plan, "ab"[place])) for each in self.sent_to(port)]
                took = [(message, consumer) for message, consumer in sent if consumer is not None]
                waits = [max(consumer.began - message.emitted, 0) for message, consumer in took]
                is_known = plan.workers == 1 and self.knows_sending(port.source)
                received = len(took), waits if is_known else [], self.unreceived[plan.name, "ab"[place]]
                found[plan.name, "ab"[place]] = received
        return found

    def paths(self) -> dict[str, list[int]]:
        """Return the latencies of the messages on each path; what is the end of a goal is that of a path, too."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        ends = {last for _, last in self.pairs()} | {
            plan.name for plan in self.plans.values() if plan.is_sink
        }
        for each in self.computes:
            if each.plan.name in ends and not each.has_failed:
                for message in each.received:
                    for names, origin in self._ways(message):
                        found[",".join((*names, *each.names[:2]))].append(each.done - origin)
        return found

    def _ways(self, message: Message) -> Iterator[tuple[tuple[str, ...], int]]:
        compute = message.compute
        if not compute.received:
            yield compute.names, message.origin
        for before in compute.received:
            for names, origin in self._ways(before):
                yield (*names, *compute.names), origin

    def pairs(self) -> list[tuple[str, str]]:
        """Return the operators that have a goal: those between which messages go, or those that end at a sink."""
        return [
            (first, last)
            for first in self.plans
            for last, plan in self.plans.items()
            if (plan.is_sink or self.seed % 2) and self._leads(first, last)
        ]

    def _leads(self, first: str, last: str) -> bool:
        sources = {port.source for port in self.plans[last].inputs}
        return first in sources or any(self._leads(first, source) for source in sources)

    def knows_sending(self, name: str) -> bool:
        """Return whether it is known when an operator sends: not what replicas send in order, nor a dead letter."""
        return self.plans[name].workers == 1 and not self.plans[name].has_letters

    def frames(self, first: str, last: str) -> list[Frame]:
        """Return what became of the messages that one operator sent towards another, in order."""
        found = []
        for each in self.computes:
            if each.plan.name == first:
                for message in each.sent:
                    frame = Frame(message.origin if each.plan.count else message.emitted)
                    if id(message) not in self._unsent and self._follow(message, last, frame):
                        found.append(frame)
        return found

    def _follow(self, message: Message, last: str, frame: Frame) -> bool:
        """Note what became of a message on its way to an operator; return whether there is one."""
        is_on_way = False
        for plan in self.plans.values():
            for place, port in enumerate(plan.inputs):
                is_from = port.source == message.compute.plan.name and port.output == message.output
                if not is_from or not (plan.name == last or self._leads(plan.name, last)):
                    continue
                is_on_way = True
                consumer = self.consumer(message, plan, "ab"[place])
                if consumer is None:
                    frame.is_waiting |= (id(message), plan.name, "ab"[place]) in self._waiting
                elif plan.name == last:
                    frame.has_failed |= consumer.has_failed
                    frame.arrivals += [] if consumer.has_failed else [consumer]
                else:
                    went_on = [self._follow(each, last, frame) for each in consumer.sent]
                    frame.has_failed |= consumer.has_failed and not any(went_on)
        return is_on_way


class _Body:
    """What an operator does; it writes that down."""

    def __init__(self, graph: Graph, app: Any, plan: Plan, spin: Any) -> None:
        self._graph, self._app, self._plan, self._spin = graph, app, plan, spin
        self._chance = random.Random(f"{graph.seed} {plan.name}")
        self._turn = 0
        self._due: int | None = None
        self._attempts: Counter[int] = Counter()

    def __call__(self, operator: Any, op_input: Any, op_output: Any) -> None:
        app, plan, turn = self._app, self._plan, self._turn
        self._turn += 1
        compute = Compute(operator.name, app.now, plan)
        self._graph.computes.append(compute)
        stream = None
        for place, port in enumerate(plan.inputs):
            taken = op_input.receive("ab"[place])
            for message in self._opened(taken, port):
                compute.received.append(message)
                compute.ports.append("ab"[place])
            if plan.kernel:
                stream = op_input.receive_cuda_stream("ab"[place]).stream
        app.scheduler().clock.sleep_for(plan.takes[turn % len(plan.takes)] * MS)
        if self._graph.seed % 2 and turn % 3 == 0:  # figures add up from portions of any size
            app.data_flow_tracker().catch_up()
        if plan.kernel:
            self._graph.launch(stream, compute, self._spin)
        try:
            self._send(compute, op_output)
        finally:
            compute.ended = app.now

    def _opened(self, taken: Any, port: Input) -> list[Message]:
        """Return the messages that were received at an input; of those of a dead letter, the letter."""
        if port.output == "bad":
            taken = next(iter(taken.values())) if isinstance(taken, dict) else taken
            taken = taken[0] if isinstance(taken, tuple) else taken
            return [self._graph.letters[id(taken), port.source]]
        return taken if port.batch > 1 else [taken]

    def _send(self, compute: Compute, op_output: Any) -> None:
        app, plan = self._app, self._plan
        if self._chance.random() < plan.fails:
            key = id(compute.received[0])
            self._attempts[key] += 1
            compute.has_failed = True
            compute.is_retried = self._attempts[key] <= plan.retries
            if plan.has_letters and not compute.is_retried:
                compute.sent.append(Message(compute, app.now, 0, "bad"))
                self._graph.letters[key, plan.name] = compute.sent[0]
            raise ValueError("planned")
        origin, stamp = 0, {}
        if plan.count:
            # The first tick comes at once.
            origin = compute.began if self._due is None else self._due
            self._due = origin + plan.period
            if plan.is_acquired:
                origin = stamp["acq_timestamp"] = max(app.now - 7 * MS, 0)
        if plan.is_sink or self._chance.random() < plan.silent:
            return
        for _ in range(plan.emits):
            message = Message(compute, app.now, origin)
            compute.sent.append(message)
            op_output.emit(message, "out", **stamp)
