"""The application of a random program, whose operators note what they receive and send."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace import (
    ConditionType,
    CountCondition,
    Input,
    IOSpec,
    Operator,
    PeriodicCondition,
    Subgraph,
    aligned,
    at_rate,
    dead_letter,
    latest_within,
    op,
    restart,
    retry,
    reuse_last,
    skip,
    window,
)
from headrace.core import MetadataPolicy
from headrace.core.errors import GraphError
from headrace.operators import FeedOp, ResultsOp
from headrace.resources import ManualClock, RealtimeClock
from headrace.schedulers import DefaultScheduler, EventBasedScheduler, GreedyScheduler
from tests.harness import PATIENCE, App
from tests.random_programs.program import Change, Join, Port, Program, Stage

POLICIES = IOSpec.QueuePolicy
FRAMES = 9  # put into each feed
MOST = 5000  # computes of one operator; one that runs for ever fails


class PlannedError(Exception):
    """The error of a compute that fails because the program says so."""


@dataclass
class Compute:
    """What an operator did in one compute.

    Attributes
    ----------
    received, stamps
        The messages of each input, and their timestamps.
    sent
        The messages that it sent, whether the compute failed then or not.
    route
        The stage that was chosen to receive them.
    by
        The operator: one of several if the stage has replicas.
    place, live
        Its place among all computes of the run, and the live parameter that it found.
    """

    time: int
    received: dict[str, list[Any]] = field(default_factory=dict)
    stamps: list[int] = field(default_factory=list)
    metadata: Any = None
    sent: list[Any] = field(default_factory=list)
    stamp: int | None = None
    is_end: bool = False
    has_failed: bool = False
    is_done: bool = False
    ended: int = -1
    route: str = ""
    by: str = ""
    place: int = 0
    live: int = 0


@dataclass
class Record:
    """What was seen of a run.

    Attributes
    ----------
    attached, refused
        The changes that attached a sink, and those that were refused because the run has one thread.
    was_over
        Whether the run was over when its block was left.
    live
        The stages whose live parameter was set, to which values, and how many computes had begun then.
    recorded
        What the recording has of each output, if there is one.
    answers
        What was put into feeds as calls, and how each was answered: with a value, or an exception.
    """

    computes: dict[str, list[Compute]] = field(default_factory=lambda: defaultdict(list))
    put: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    results: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    attached: list[Change] = field(default_factory=list)
    refused: list[Change] = field(default_factory=list)
    was_over: bool | None = None
    live: list[tuple[str, int, int]] = field(default_factory=list)
    begun: int = 0
    recorded: dict[str, list[Any]] | None = None
    answers: list[tuple[int, Any]] = field(default_factory=list)
    unsent: int = 0
    outcome: Any = None
    error: BaseException | None = None
    statistics: Any = None
    goals: dict[tuple[str, str], Any] = field(default_factory=dict)


def number_of(name: str, *of: Any) -> int:
    """Return the message that a stage makes of others."""
    return zlib.crc32(repr((name, of)).encode())


def fails_on(stage: Stage, received: dict[str, list[Any]]) -> bool:
    """Return whether a stage fails for what it received."""
    return bool(stage.fails) and sum(value for port in received.values() for value in flat(port)) % 3 == 0


def flat(values: Any) -> list[int]:
    """Return the numbers in what was received."""
    if isinstance(values, dict):
        values = list(values.values())
    return (
        [each for value in values for each in flat(value)] if isinstance(values, (list, tuple)) else [values]
    )


def results_of(stage: Stage, received: dict[str, list[Any]], turn: int) -> list[int]:
    """Return what a stage sends for what it received."""
    seen = sorted((name, [*map(repr, each)]) for name, each in received.items())
    own = () if stage.is_pure else (turn,)
    return [number_of(stage.name, *own, seen, place) for place in range(stage.emits)]


class Plain:
    """Lets the messages of a program be its values; `frames` has another way."""

    def compose(self, app: Any) -> None:
        """Set up an application."""

    def arguments(self, app: Any) -> list[Any]:
        """Return what an operator is given besides its conditions."""
        return []

    def declare(self, stage: Stage, spec: Any) -> None:
        """Declare more of an operator."""

    def open(self, name: str, message: Any) -> Any:
        """Return the value of a message that a stage received."""
        return message

    def work(self, name: str, op_input: Any, op_output: Any, context: Any, ports: list[str]) -> None:
        """Work with what was received at some inputs."""

    def message(
        self, name: str, value: Any, op_output: Any = None, context: Any = None
    ) -> tuple[Any, Any, bool]:
        """Return the message of a stage for a value, the event after its work, and whether it is constant."""
        return value, None, False

    def put(self, feed: Any, value: Any) -> None:
        """Put a value into a feed."""
        feed.put(value)

    def take_from(self, results: Any) -> None:
        """Prepare to take results out on this thread."""

    def let_go(self, name: str) -> None:
        """End a compute."""


class _Body:
    """What the operators of all kinds share."""

    def __init__(self, stage: Stage, app: Any) -> None:
        self.stage, self.app, self.turn = stage, app, 0
        self.record: Record = app.record
        self.attempts: dict[Any, int] = defaultdict(int)

    def begin(self, received: dict[str, list[Any]], time: int) -> Compute:
        compute = Compute(time, received)
        with self.app.lock:
            self.record.begun += 1
            compute.place = self.record.begun
            self.record.computes[self.stage.name].append(compute)
        self.turn += 1
        if self.turn > MOST:
            raise RuntimeError(f"{self.stage.name} has computed {MOST} times")
        self.app.change(self.stage.name, self.turn)
        return compute

    def check_failure(self, compute: Compute) -> None:
        """Raise if this compute fails."""
        if not fails_on(self.stage, compute.received):
            return
        key = repr(sorted(compute.received.items()))
        self.attempts[key] += 1
        if self.attempts[key] <= self.stage.fails:
            compute.has_failed = True
            raise PlannedError(f"{self.stage.name} fails on purpose")


class Working(Operator):
    """An operator of a class: a source, or one with inputs."""

    live: int

    def __init__(self, fragment: Any, *args: Any, stage: Stage, **kwargs: Any) -> None:
        self.stage = stage
        if stage.named:
            setattr(self, stage.named, [] if stage.named == "results" else object())
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        stage = self.stage
        for port in stage.ports:
            declare(declare_input(spec, port), stage, port)
        if stage.timeout:
            spec.multi_port_condition(
                ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT,
                [port.name for port in stage.ports],
                sampling_mode="SumOfAll",
                min_sum=1 + stage.ports[0].limit,
                execution_frequency=f"{stage.timeout}ns",
            )
        if stage.join is not None:
            main, rules = join_of(stage.join, stage)
            spec.join(main, **rules)
        spec.output("out", size=max(stage.emits, 1))
        spec.param("live", 0, live=True)
        self.fragment.application.traffic.declare(stage, spec)

    def initialize(self) -> None:
        self.body = _Body(self.stage, self.fragment.application)
        self.traffic = self.body.app.traffic

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        body, stage = self.body, self.stage
        compute = self._receive(op_input, context)
        received = [name for name, values in compute.received.items() if values]
        self.traffic.work(self.name, op_input, op_output, context, received)
        body.app.take(stage.takes)
        if not stage.sends_first:
            body.check_failure(compute)
        if stage.is_source:
            if body.turn > stage.delay:
                compute.sent = [number_of(stage.name, body.turn, place) for place in range(stage.emits)]
                compute.stamp = body.turn * stage.stamp if stage.stamp else None
        else:
            compute.sent = results_of(stage, compute.received, body.turn)
            compute.stamp = min(compute.stamps, default=None)
        self._send(compute, op_output, context)
        if stage.sends_first:
            body.check_failure(compute)
        compute.is_done = True

    def stop(self) -> None:
        self.fragment.application.stopping()

    def _receive(self, op_input: Any, context: Any, is_end: bool = False) -> Compute:
        received: dict[str, list[Any]] = {}
        stamps: list[int] = []
        stage = self.stage
        for port in stage.ports:
            received[port.name] = found = []
            while True:
                message = op_input.receive(port.name)
                taken = as_list(message, self.spec.inputs[port.name].gives_tuple or stage.is_window)
                found += (self.traffic.open(self.name, each) for each in taken)
                stamps += [t for t in op_input.get_acquisition_timestamps(port.name) if t is not None]
                if not is_end or not taken or port.policy == "LATEST":
                    break
        compute = self.body.begin(received, context.timestamp)
        compute.stamps, compute.is_end, compute.by, compute.live = stamps, is_end, self.name, self.live
        if stage.by_port:
            compute.metadata = {name: entries for name, entries in self.metadata.items() if name in received}
        return compute

    def _send(self, compute: Compute, op_output: Any, context: Any) -> None:
        if compute.sent:
            self.metadata.clear()
            self.metadata["v"] = compute.sent[0]
        if self.stage.is_source and compute.stamp is not None:
            context.acq_timestamp = compute.stamp
        for value in compute.sent:
            message, after, constant = self.traffic.message(self.name, value, op_output, context)
            op_output.emit(message, "out", after=after, constant=constant)
        self.traffic.let_go(self.name)


class Ending(Working):
    """An operator that sends one more message when it ends."""

    def end(self, op_input: Any, op_output: Any, context: Any) -> None:
        compute = self._receive(op_input, context, is_end=True)
        compute.sent = [
            number_of(self.name.rpartition(".")[2], "end", compute.received)
        ]  # own of each replica
        compute.stamp = min(compute.stamps, default=None)
        self._send(compute, op_output, context)
        compute.is_done = True


class Answering(ResultsOp):
    """Results that note what they receive, since answers go to their callers."""

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        app: Any = self.fragment.application
        super().compute(
            _Noting(op_input, app.record.results[self.name.rpartition(".")[2]]), op_output, context
        )


class _Noting:
    """The input of a compute, which notes what is received."""

    def __init__(self, op_input: Any, noted: list[Any]) -> None:
        self._input, self._noted = op_input, noted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._input, name)

    def receive(self, port: str) -> Any:
        self._noted.append(received := self._input.receive(port))
        return received


def as_list(message: Any, is_several: bool) -> list[Any]:
    """Return the messages that were received at an input."""
    if message is None:
        return []
    return [each for each in message if each is not None] if is_several else [message]


def declare_input(spec: Any, port: Port) -> Any:
    """Declare an input, and return the declaration."""
    return spec.input(port.name, **_settings(port))


def _settings(port: Port) -> dict[str, Any]:
    policy = {} if port.policy == "FAULT" else {"policy": getattr(POLICIES, port.policy)}
    return {"size": IOSpec.ANY_SIZE if port.size == 0 else port.size, **policy}


def declare(declared: Any, stage: Stage, port: Port) -> None:
    """Declare the condition of an input."""
    if port.least == 0 or stage.timeout:
        declared.condition(ConditionType.NONE)
    elif port.least is not None:
        declared.condition(ConditionType.MESSAGE_AVAILABLE, min_size=port.least)


def join_of(join: Join, stage: Stage) -> tuple[Any, dict[str, Any]]:
    """Return the rule of a join, and the rules of inputs that only follow."""
    limits = {} if join.wait is None else {"wait": f"{join.wait}ns"}
    last = stage.ports[-1].name
    match join.rule:
        case "aligned":
            return aligned(f"{join.tolerance}ns", lateness=f"{join.lateness}ns", **limits), {}
        case "reference":
            return aligned(
                f"{join.tolerance}ns", reference=stage.ports[0].name, lateness=f"{join.lateness}ns", **limits
            ), {}
        case "window":
            return window(join.length, step=join.step or join.length), {}
        case "reuse":
            return None, {last: reuse_last()}
        case "latest":
            return None, {last: latest_within(f"{join.tolerance}ns", **limits)}
    rules = {port.name: latest_within(f"{join.tolerance}ns", **limits) for port in stage.ports}
    return at_rate(f"{join.step}ns"), rules


def function_of(stage: Stage, app: Any) -> Any:
    """Return the operator function of a stage that is a generator or async."""
    body = _Body(stage, app)

    if stage.is_source and stage.kind == "yields":

        def make() -> Any:
            for _ in range(stage.count):
                compute = body.begin({}, app.now)
                compute.sent = [number_of(stage.name, body.turn, 0)]
                compute.is_done = True
                yield app.traffic.message(stage.name, compute.sent[0])[0]

        return op(make)
    if stage.is_source:

        async def make_async() -> Any:
            for _ in range(stage.count):
                await asyncio.sleep(0)
                compute = body.begin({}, app.now)
                compute.sent = [number_of(stage.name, body.turn, 0)]
                compute.is_done = True
                yield app.traffic.message(stage.name, compute.sent[0])[0]

        return op(make_async)
    name = stage.ports[0].name
    size = stage.ports[0].size

    def begin(message: Any) -> Compute:
        taken = as_list(message, size != 1 or stage.is_window)
        compute = body.begin({name: [app.traffic.open(stage.name, each) for each in taken]}, app.now)
        app.traffic.work(stage.name, None, None, None, [name])
        body.check_failure(compute)
        compute.sent = results_of(stage, compute.received, body.turn)
        return compute

    def work(message: Any) -> Any:
        compute = begin(message)
        del message
        for value in compute.sent:
            yield app.traffic.message(stage.name, value)[0]
        app.traffic.let_go(stage.name)
        compute.is_done = True

    async def work_async(message: Any) -> Any:
        compute = begin(message)
        del message
        for _ in range(9):
            await asyncio.sleep(0)
        compute.ended = app.now
        compute.is_done = True
        app.traffic.let_go(stage.name)
        return app.traffic.message(stage.name, compute.sent[0])[0]

    chosen: Any = work_async if stage.kind == "async" else work
    port = stage.ports[0]
    given = Input(**_settings(port))
    declare(given, stage, port)
    settings: dict[str, Any] = {"inputs": {"message": given}}
    if stage.join is not None:
        main, rules = join_of(stage.join, stage)
        settings["join"] = {"*": main, **rules}
    return op(**settings)(chosen)


class Group(Subgraph):
    """The stages of a subgraph."""

    def compose(self) -> None:
        app: Any = self.fragment
        inside = [stage for stage in app.program.stages if stage.group == app.composing]
        for stage in inside:
            app.made[stage.name] = app.make(stage, self)
            self.add_operator(app.made[stage.name])
        for source, stage, port in app.program.flows():
            ends = app.program.stage(source.partition(".")[0]), stage
            if ends[0] in inside and ends[1] in inside:
                app.connect(source, stage, port, self.add_flow)
            elif ends[1] in inside and (stage.name, port.name) not in app.inner:
                app.inner[stage.name, port.name] = self
                self.add_input(f"{stage.name}_{port.name}", app.made[stage.name][app.port_name(stage, port)])
            elif ends[0] in inside and source not in app.inner:
                app.inner[source] = self
                self.add_output(source.replace(".", "_"), app.made[ends[0].name][app.output_name(source)])


class RandomApp(App):
    """The application of a program.

    Parameters
    ----------
    traffic
        How messages travel.
    scheduler
        Makes the scheduler; that of the program unless given.
    captured, on_processes
        The classes of stages that are captured, and of those that have replicas in processes.
    """

    def __init__(
        self,
        program: Program,
        traffic: Any = None,
        scheduler: Any = None,
        captured: Any = None,
        on_processes: Any = None,
    ) -> None:
        super().__init__(lambda _: None, scheduler or self._scheduler)
        self.program, self.traffic = program, traffic or Plain()
        self.captured, self.on_processes = captured, on_processes

    def _scheduler(self, _: Any) -> Any:
        program = self.program
        clock: Any = None  # that of the simulated device
        if program.clock != "device":
            clock = ManualClock(self) if program.clock == "virtual" else RealtimeClock(self)
        if program.scheduler == "event-based":
            return EventBasedScheduler(self, worker_thread_number=program.workers, clock=clock)
        return {"greedy": GreedyScheduler, "default": DefaultScheduler}[program.scheduler](self, clock=clock)

    def compose(self) -> None:
        super().compose()
        program = self.program
        self.traffic.compose(self)
        self.record, self.lock = Record(), threading.Lock()
        self.interrupted, self.is_left = threading.Event(), False
        self.resuming: threading.Thread | None = None
        self.made: dict[str, Any] = {}
        self.inner: dict[Any, Any] = {}
        self.asked: dict[tuple[str, int], list[Change]] = defaultdict(list)
        self.aside: Any = None
        self.asides = 0
        for change in program.changes:
            self.asked[change.at, change.turn].append(change)
        self._connect()

    def _connect(self) -> None:
        """Make the operators and the flows."""
        program = self.program
        for stage in program.stages:
            if not stage.group:
                self.made[stage.name] = self.make(stage, self)
                self.add_operator(self.made[stage.name])
        for group in dict.fromkeys(stage.group for stage in program.stages if stage.group):
            self.composing = group
            Group(self, name=group)
        for source, stage, port in program.flows():
            groups = program.stage(source.partition(".")[0]).group, stage.group
            if not groups[0] or groups[0] != groups[1]:
                self.connect(source, stage, port, self.add_flow)
        for stage in program.stages:
            for before in stage.after:
                self.made[before].then(self.made[stage.name])
            if stage.routes:
                self.set_dynamic_flows(self.made[stage.name], partial(self._choose, stage))
        if captured := [self.made[stage.name] for stage in program.stages if stage.captured]:
            self.capture(*captured, name="segment")

    def port_name(self, stage: Stage, port: Port) -> str:
        """Return the name of an input of the operator of a stage."""
        return {"yields": "message", "async": "message", "results": "in"}.get(stage.kind, port.name)

    def output_name(self, source: str) -> str:
        """Return the name of the output of a source of a flow."""
        return source.partition(".")[2] or "out"

    def connect(self, source: str, stage: Stage, port: Port, add_flow: Callable[..., Any]) -> None:
        """Add a flow."""
        name = source.partition(".")[0]
        outer = add_flow == self.add_flow
        begin = self.made[name][self.output_name(source)]
        if outer and source in self.inner:
            begin = self.inner[source][source.replace(".", "_")]
        end = self.made[stage.name][self.port_name(stage, port)]
        if outer and (stage.name, port.name) in self.inner:
            end = self.inner[stage.name, port.name][f"{stage.name}_{port.name}"]
        add_flow(begin, end, size=port.places)

    def make(self, stage: Stage, fragment: Any) -> Any:
        """Return the operator of a stage."""
        conditions: list[Any] = []
        if stage.count and not (stage.kind in ("yields", "async") and stage.is_source):
            conditions.append(CountCondition(fragment, stage.count))
        if stage.period:
            conditions.append(PeriodicCondition(fragment, stage.period))
        arguments = self.traffic.arguments(fragment)
        settings: dict[str, Any] = {"name": stage.name}
        if stage.workers > 1:
            settings["workers"] = stage.workers
        policy = error_policy(stage)
        if policy is not None:
            settings["on_error"] = policy
        if stage.kind == "feed":
            size = FRAMES if self.program.calls else 2  # a call waits for no room
            return FeedOp(fragment, *conditions, size=size, name=stage.name)
        if stage.kind == "results":
            kind_of_results = Answering if self.program.calls else ResultsOp
            return kind_of_results(fragment, *conditions, size=2, name=stage.name)
        if stage.captured:
            return self.captured(fragment, stage=stage, name=stage.name)
        if stage.on_processes:
            return self.on_processes(fragment, stage=stage, workers=2, on="processes", name=stage.name)
        if stage.kind in ("yields", "async"):
            made = function_of(stage, self)(fragment, *conditions, *arguments, **settings)
        else:
            kind = Ending if stage.ends else Working
            made = kind(fragment, *conditions, *arguments, stage=stage, **settings)
        made.metadata_policy = MetadataPolicy.BY_PORT if stage.by_port else MetadataPolicy.UPDATE
        return made

    def take(self, time: int) -> None:
        """Let a compute take a time."""
        if time:
            self.scheduler().clock.sleep_for(time)

    # What happens in a run.

    def stopping(self) -> None:
        """Note that operators are stopped: in some programs the second Ctrl-C comes now."""
        if self.program.block == "twice" and self.is_left and not self.interrupted.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            self.interrupted.wait(PATIENCE)

    def change(self, name: str, turn: int) -> None:
        """Do what the program does in a compute beside its data."""
        try:
            self._change_graph(name, turn)
        except GraphError as error:
            # What has ended is not connected again, and another change may have disconnected the same.
            if "chooses its threads when a run begins" in str(error):
                self.record.refused += [each for each in self.asked[name, turn] if each.drops]
            elif not any(text in str(error) for text in ("has ended", "not connected")):
                raise
        for setting in self.program.settings:
            if (setting.at, setting.turn) == (name, turn):
                self.made[setting.stage].set_live("live", turn)
                self.record.live.append((setting.stage, turn, self.record.begun))
        if self.program.stop == (name, turn):
            self.stop_execution()
        if self.program.pause == (name, turn):
            self.pause()
            self.resuming = threading.Thread(target=self._step_and_resume, daemon=True)
            self.resuming.start()

    def _step_and_resume(self) -> None:
        """Let some computes begin one by one, if there are as many left, and then the others."""
        for steps in (1, 2):
            if self.wait_until_paused(0.1):
                self.step(steps)
        self.wait_until_paused(0.1)
        self.resume()

    def _change_graph(self, name: str, turn: int) -> None:
        for change in self.asked.get((name, turn), ()):
            if change.what != "toggle":
                self._change(change)
        if any(
            each.what == "toggle" and each.at == name and turn >= each.turn for each in self.program.changes
        ):
            self._toggle(name)

    def _change(self, change: Change) -> None:
        stage = self.program.stage(change.stage)
        if change.what == "stop":
            self.made[stage.name].stop_execution()
            return
        if change.what == "attach":
            port = Port("a", [stage.name], size=0 if change.is_brief else 1, places=3)
            port.policy = "POP" if change.drops else "FAULT"
            sink = Stage(f"new{len(self.record.attached)}", ports=[port])
            self.made[sink.name] = self.make(sink, self)
            self.connect(stage.name, sink, port, self.add_flow)
            self.record.attached.append(change)
            if change.is_brief:
                self.remove_flow(self.made[stage.name], self.made[sink.name])
            return
        port = stage.ports[0]
        flows = [
            (
                self.made[source.partition(".")[0]],
                self.made[stage.name],
                {(self.output_name(source), self.port_name(stage, port))},
            )
            for source in port.sources[: None if port.size == 0 else 1]
        ]
        for ends in flows:
            self.remove_flow(*ends)
        for ends in flows if change.what == "again" else ():
            self.add_flow(*ends, size=port.places)

    def _toggle(self, name: str) -> None:
        """Connect a new operator to a stage, or disconnect the last one."""
        if self.aside is not None:
            self.remove_flow(self.made[name], self.aside)
            self.aside = None
            return
        self.asides += 1
        sink = Stage(f"aside{self.asides}", ports=[Port("a", [name], places=9)])
        self.aside = self.made[sink.name] = self.make(sink, self)
        self.add_operator(self.aside)
        self.connect(name, sink, sink.ports[0], self.add_flow)

    def _choose(self, stage: Stage, operator: Any) -> None:
        targets = [target.name for target, _ in self.program.behind(stage.name)]
        computes = self.record.computes[stage.name]
        if targets and computes:
            turn = len(computes)
            computes[-1].route = targets[turn % len(targets)]
            operator.add_dynamic_flow(self.made[computes[-1].route])


def error_policy(stage: Stage) -> Any:
    """Return the error policy of a stage, or None."""
    parts: list[Any] = []
    if stage.retries:
        parts.append(retry(times=stage.retries, backoff=3e-9))
    if stage.on_error == "skip":
        parts.append(skip())
    elif stage.on_error == "restart":
        parts.append(restart(times=1000))
    elif stage.on_error == "dead_letter":
        parts.append(dead_letter("failed"))
    if not parts:
        return None
    policy = parts[0]
    for part in parts[1:]:
        policy = policy | part
    return policy
