"""Scenario: a small program, what other threads do to it, and what must come of it, run under a controller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headrace import Application, EventBasedScheduler, GreedyScheduler, Operator, OperatorSpec
from headrace.core import Clock, Scheduler
from headrace.resources import ManualClock, RealtimeClock, SyntheticClock

from . import bindings
from .controller import Controller, Decision, Line, Strategy
from .faults import Fault, Kind
from .system import System
from .watch import Watch

__all__ = ["Outcome", "Scenario", "World", "run"]

_CLOCKS: dict[str, Callable[[Any], Clock]] = {
    "real": RealtimeClock,
    "manual": ManualClock,
    "synthetic": SyntheticClock,
}


@dataclass(frozen=True)
class Scenario:
    """A program under the controller.

    Attributes
    ----------
    compose
        Makes the operators and flows.
    workers
        The number of worker threads; with 0, the greedy scheduler.
    others
        The threads beside the workers, by name: each is called with the world, once the run is about to begin.
    clock
        ``"real"`` (a RealtimeClock that shows the controller's time), ``"manual"`` or ``"synthetic"``.
    settings
        Arguments of the scheduler.
    check
        Asserts what must be so after the run.
    raises
        The exceptions that `run` may end with.
    """

    name: str
    compose: Callable[[World], object]
    workers: int = 2
    others: dict[str, Callable[[World], None]] = field(default_factory=dict)
    clock: str = "real"
    settings: dict[str, Any] = field(default_factory=dict)
    check: Callable[[World], None] = lambda world: None
    raises: tuple[type[BaseException], ...] = ()


@dataclass
class Outcome:
    """What came of one run."""

    fault: Fault | None
    record: list[Decision]
    lines: set[tuple[Line, bool]]
    steps: int
    wake_ups: int
    # Those after which the worker ran nothing before it parked again.
    idle_wake_ups: int
    most_since_event: int

    def schedule(self) -> tuple[tuple[int, str], ...]:
        """Return the decisions that were not the default ones: which, and who went on."""
        return tuple(
            (number, decision.options[decision.position].name)
            for number, decision in enumerate(self.record)
            if decision.position
        )


class World:
    """What a scenario's program, its other threads and its check share."""

    def __init__(self, scenario: Scenario, control: Controller, watch: Watch) -> None:
        self.scenario = scenario
        self.control = control
        self.watch = watch
        self.system = System(control)
        self.app: Application
        self.clock: Clock
        # Each compute that was finished: who, and when it began.
        self.computes: list[tuple[str, int]] = []
        self.received: dict[str, list[Any]] = {}
        self.notes: dict[str, Any] = {}
        self.error: BaseException | None = None
        self.is_over = False
        # Who computes now, and since when.
        self.inside: dict[str, int] = {}

    # For compose.

    def op(
        self,
        name: str,
        *args: Any,
        inputs: Iterable[Any] = (),
        outputs: Iterable[Any] = (),
        body: Callable[[Any, Any, Any], object] | None = None,
        start: Callable[[Any], object] | None = None,
        parallel: bool = False,
    ) -> Step:
        """Make an operator; ports are names, or pairs of a name and its arguments."""
        step = Step(self, name, args, inputs, outputs, body, start)
        step.parallel = parallel
        self.app.add_operator(step)
        return step

    def source(self, name: str, count: int, *args: Any, takes: int = 0) -> Step:
        """Make an operator that emits 0, 1, 2 and so on, each compute taking so many nanoseconds."""
        from headrace import CountCondition

        def body(op: Step, op_input: Any, op_output: Any) -> None:
            self.control.sleep(takes) if takes else None
            op_output.emit((name, op.ticks - 1), "out")

        return self.op(name, CountCondition(self.app, count), *args, outputs=["out"], body=body)

    def sink(self, name: str, waits: int = 0, takes: int = 0, size: dict[str, Any] | None = None) -> Step:
        """Make an operator that keeps what it receives, and takes time before and after it does."""
        self.received[name] = []

        def body(op: Step, op_input: Any, op_output: Any) -> None:
            self.control.sleep(waits) if waits else None
            self.received[name].append(op_input.receive("in"))
            self.control.point(f"{name} has received")
            self.control.sleep(takes) if takes else None

        return self.op(name, inputs=[("in", size or {})], body=body)

    def through(self, name: str, takes: int = 0, parallel: bool = False) -> Step:
        """Make an operator that passes on what it receives."""

        def body(op: Step, op_input: Any, op_output: Any) -> None:
            value = op_input.receive("in")
            self.control.point(f"{name} has received")
            self.control.sleep(takes) if takes else None
            op_output.emit(value, "out")

        return self.op(name, inputs=["in"], outputs=["out"], body=body, parallel=parallel)

    # For bodies, other threads and checks.

    def wait_for(self, name: str, count: int) -> None:
        """Wait until an operator has run so often, or the run is over."""
        self.control.wait_until(lambda: self.count(name) >= count or self.is_over)

    def count(self, name: str) -> int:
        """Return how many computes of an operator are finished."""
        return sum(who == name for who, _ in self.computes)

    def times(self, name: str) -> list[float]:
        """Return when the computes of an operator began, in ms of the controller's time."""
        return [began / 1e6 for who, began in self.computes if who == name]

    @property
    def is_on_time(self) -> bool:
        """Whether time moved only when nobody could go on, so that lateness is the runtime's fault."""
        return not self.control.haste

    def check_times(self, name: str, expected: list[float]) -> None:
        """Assert when the computes of an operator began, in ms, give or take what a short compute may hold up."""
        late = [time - wanted for time, wanted in zip(self.times(name), expected, strict=True)]
        patience = bindings.PATIENCE_NS / 1e6
        assert all(0 <= by <= patience for by in late), (
            f"the computes of {name} began at {self.times(name)} ms"
        )

    def enter(self, name: str) -> int:
        self.watch.begins(name)
        if name in self.inside:
            self.control.fail(Fault(Kind.WRONG_RESULT, f"two computes of {name} run at once"))
        self._judge_turn(name)
        began = self.control.now
        self.inside[name] = began
        self.control.point(f"compute of {name} begins")
        return began

    def _judge_turn(self, name: str) -> None:
        """Judge a compute that begins beside others: it has a turn of its own, or that of the others has lasted."""
        if not self.is_on_time or not bindings.takes_turns(self.app, name):
            return
        for other, began in self.inside.items():
            lasted = self.control.now - began
            if lasted < bindings.TURN_NS and bindings.takes_turns(self.app, other):
                what = f"{name} computes beside {other}, whose turn has lasted for {lasted / 1e6:g} ms"
                self.control.fail(Fault(Kind.WRONG_RESULT, what))

    def leave(self, name: str, began: int) -> None:
        self.control.event()
        self.control.point(f"compute of {name} ends")
        del self.inside[name]
        self.computes.append((name, began))


class Step(Operator):
    """An operator of a scenario."""

    def __init__(
        self,
        world: World,
        name: str,
        args: Iterable[Any],
        inputs: Iterable[Any],
        outputs: Iterable[Any],
        body: Callable[[Any, Any, Any], object] | None,
        start: Callable[[Any], object] | None,
    ) -> None:
        self._world, self._inputs, self._outputs = world, inputs, outputs
        self._body, self._start = body, start
        self.ticks = 0
        super().__init__(world.app, *args, name=name)

    def setup(self, spec: OperatorSpec) -> None:
        for port in self._inputs:
            spec.input(port) if isinstance(port, str) else spec.input(port[0], **port[1])
        for port in self._outputs:
            spec.output(port) if isinstance(port, str) else spec.output(port[0], **port[1])

    def start(self) -> None:
        if self._start is not None:
            self._start(self)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        began = self._world.enter(self.name)
        self.ticks += 1
        try:
            if self._body is not None:
                self._body(self, op_input, op_output)
        finally:
            self._world.leave(self.name, began)


def run(scenario: Scenario, strategy: Strategy, lines: bool = True) -> Outcome:
    """Run a scenario once; without `lines` only primitives are switch points."""
    control = Controller(strategy, bindings.traced_files() if lines else ())
    watch = Watch(control)
    world = World(scenario, control, watch)
    app = world.app = _Program(world)

    def call() -> None:
        try:
            app.run()
        except (Exception, KeyboardInterrupt) as error:
            world.error = error
            if not isinstance(error, scenario.raises):  # now: threads that nobody ends would hide it
                control._note_fault(Fault(Kind.ERROR, f"run raised {type(error).__name__}: {error}", error))
        world.is_over = True

    with bindings.controlled(control, world.system), bindings.watched(control, watch):
        control.run("caller", call)
        if control.fault is None:
            _judge(world, watch)
    return Outcome(
        control.fault,
        control.record,
        control.lines,
        control.steps,
        watch.wake_ups,
        watch.idle_wake_ups,
        watch.most_since_event,
    )


class _Program(Application):
    def __init__(self, world: World) -> None:
        super().__init__([])
        self._world = world

    def compose(self) -> None:
        world, scenario = self._world, self._world.scenario
        world.clock = _CLOCKS[scenario.clock](self)
        settings: dict[str, Any] = {**scenario.settings, "clock": world.clock}
        scheduler: Any
        if scenario.workers:
            scheduler = _Several(self, worker_thread_number=scenario.workers, **settings)
        else:
            scheduler = _Alone(self, **settings)
        scheduler.before, scheduler.after = self._begin, self._end
        self.scheduler(scheduler)
        scenario.compose(world)

    def _begin(self, engine: Any) -> None:
        world = self._world
        world.watch.watch_engine(engine)
        for name, act in world.scenario.others.items():
            task = world.control.spawn(name, partial(act, world), external=True)
            world.control.start(task)
        world.control.trace_lines()

    def _end(self) -> None:
        sys.settrace(None)
        self._world.control.guard = None


class _Watched(Scheduler):
    before: Callable[[Any], None]
    after: Callable[[], None]

    def execute(self, run: Any) -> None:
        self.before(run._engine)
        try:
            super().execute(run)
        finally:
            self.after()


class _Several(_Watched, EventBasedScheduler):
    pass


class _Alone(_Watched, GreedyScheduler):
    pass


def _judge(world: World, watch: Watch) -> None:
    """Judge a run that is over."""
    control = world.control
    try:
        watch.judge_end()
        world.scenario.check(world)
    except AssertionError as error:
        what = str(error).partition("\n")[0] or "the check of the scenario failed"
        control._note_fault(Fault(Kind.WRONG_RESULT, what, error))
    except BaseException as error:
        if control.fault is None:
            raise RuntimeError("the check of the scenario itself failed") from error
