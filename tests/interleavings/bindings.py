"""Bindings: every name of headrace's runtime that the harness knows. A change of the runtime is followed here.

Three things are bound: which modules are traced and get controlled primitives, how a worker parks and is woken,
and what an engine says about itself. The scenarios use the public interface, except for `Throttle`. The faults
that are planted are texts of the source, in `plants`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headrace._runtime.scheduling.engine import Engine
from headrace._runtime.scheduling.evaluated_conditions import ENDED, NOTHING, THROTTLED, Awaited
from headrace._runtime.scheduling.ready_queue import Parker, ReadyQueue
from headrace.conditions import AsynchronousCondition, BooleanCondition
from headrace.core import Condition
from headrace.core import clock as core_clock
from headrace.core.clock import LONGEST_TURN
from headrace.link import loop as link_loops
from headrace.link.loop import LinkLoop
from headrace.parts.link_operators import LinkOperator
from headrace.resources import clocks as resource_clocks

from .controller import Abort, Controller
from .primitives import ControlledThreading, ControlledTime

if TYPE_CHECKING:
    from .system import System
    from .watch import Watch

__all__ = [
    "HIDDEN_WRITES",
    "PATIENCE_NS",
    "TURN_NS",
    "Throttle",
    "controlled",
    "guard_of",
    "has_timers",
    "has_wake_up",
    "is_shared_time",
    "is_stopping",
    "left_behind",
    "misjudged",
    "next_time",
    "queue_of",
    "state_of",
    "takes_turns",
    "time_patience",
    "traced_files",
    "unfinished",
    "watched",
    "work_in",
    "work_patience",
]

# Where any line may be the last before another thread goes on. Their `threading` and `time` are the controller's.
_MODULES = [
    "headrace._runtime.scheduling.gate",
    "headrace._runtime.scheduling.evaluated_conditions",
    "headrace._runtime.contexts.input",
    "headrace._runtime.contexts.output",
    "headrace._runtime.scheduling.engine",
    "headrace._runtime.scheduling.node",
    "headrace._runtime.scheduling.ready_queue",
    "headrace._runtime.messages.queue",
    "headrace._runtime.messages.ports",
    "headrace._runtime.scheduling.queue_state",
    "headrace._runtime.scheduling.workers",
    "headrace._runtime.scheduling.waiting",
    "headrace.core.condition",
    "headrace.conditions.ending",
    "headrace.conditions.periodic",
    "headrace.resources.clocks",
    "headrace.core.clock",
    "headrace.link.end",
    "headrace.link.loop",
    "headrace.link.receiver",
    "headrace.link.sender",
    "headrace.link.memory",
    "headrace.parts.link_operators",
    "headrace.waits",
]

# How long ready work may wait for its turn while a worker of its queue is parked: twice as long as a turn may keep
# others from theirs, because the worker that stands by may have seen another compute when it began to.
TURN_NS = 1_000_000
PATIENCE_NS = 2 * TURN_NS

_REPLACED = (
    "threading",
    "time",
    "monotonic_ns",
    "monotonic",
)

# What a line writes that does not show in it: `take` is the `popleft` of a queue (`InputPort`).
HIDDEN_WRITES = {"take": "queue"}


@cache
def _modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in _MODULES]


def traced_files() -> list[str]:
    """Return the files whose lines are switch points."""
    return [str(module.__file__) for module in _modules()]


@contextmanager
def controlled(control: Controller, system: System | None = None) -> Iterator[None]:
    """Give the modules controlled primitives for a time, and the link's loop another system."""
    threads, time = ControlledThreading(control), ControlledTime(control)
    kept: list[tuple[Any, str, Any]] = []
    module: Any
    for module in _modules():
        for name in _REPLACED:
            if hasattr(module, name):
                kept.append((module, name, getattr(module, name)))
                replaced = {"threading": threads, "time": time}.get(name) or getattr(time, name)
                setattr(module, name, replaced)
    if system is not None:
        for name, make in (("os", lambda: system), ("select", lambda: system), ("_default", LinkLoop)):
            kept.append((link_loops, name, getattr(link_loops, name)))
            setattr(link_loops, name, make())
    # A simulated device that another test left in use has threads and a time of its own.
    for module in (core_clock, resource_clocks):
        kept.append((module, "clock_in_use", module.clock_in_use))
        module.clock_in_use = lambda: None
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


# Parking.


@contextmanager
def watched(control: Controller, watch: Watch) -> Iterator[None]:
    """Tell a watch of every park, wake-up and announcement, and when an engine finds itself done."""
    park, unpark, announce, stop = Parker.park, Parker.unpark, Engine.announce, Engine.request_stop
    notify, disable = Condition.notify_scheduler, BooleanCondition.disable_tick
    event_state: Any = AsynchronousCondition.event_state
    on_event = LinkOperator.on_event

    def watched_park(parker: Parker, seconds: float | None) -> bool:
        task = control.current
        if task is None:
            return park(parker, seconds)
        watch.parks(parker)
        task.parker = parker
        try:
            return park(parker, seconds)
        finally:
            task.parker = None

    def watched_unpark(parker: Parker) -> None:
        if control.aborting:
            raise Abort  # a loop that wakes all would not end
        watch.woken(parker, again=has_wake_up(parker))
        unpark(parker)

    def watched_announce(engine: Engine, node: Any) -> None:
        with watch.announcing():
            announce(engine, node)

    def watched_stop(engine: Engine, ended_by: str = "stopped") -> None:
        if ended_by != "stopped" and not control.aborting:  # the engine finds itself done
            watch.ended(engine)
        stop(engine, ended_by)

    def changing(change: Callable[..., Any]) -> Any:
        def watched_change(changed: Condition | LinkOperator, *args: Any) -> Any:
            with watch.changing(changed._headrace.node):
                return change(changed, *args)

        return watched_change

    Parker.park, Parker.unpark = watched_park, watched_unpark  # type: ignore[assignment,method-assign]
    Engine.announce, Engine.request_stop = watched_announce, watched_stop  # type: ignore[assignment,method-assign]
    Condition.notify_scheduler = changing(notify)  # type: ignore[method-assign]
    BooleanCondition.disable_tick = changing(disable)  # type: ignore[method-assign]
    LinkOperator.on_event = changing(on_event)  # type: ignore[method-assign]
    AsynchronousCondition.event_state = property(event_state.fget, changing(event_state.fset))  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Condition.notify_scheduler = notify  # type: ignore[method-assign]
        BooleanCondition.disable_tick = disable  # type: ignore[method-assign]
        LinkOperator.on_event = on_event  # type: ignore[method-assign]
        AsynchronousCondition.event_state = event_state  # type: ignore[method-assign]
        Parker.park, Parker.unpark = park, unpark  # type: ignore[method-assign]
        Engine.announce, Engine.request_stop = announce, stop  # type: ignore[method-assign]


def has_wake_up(parker: Parker) -> bool:
    """Say whether a worker was woken and has not noticed yet."""
    return not parker._permit.locked()


def queue_of(parker: Parker) -> ReadyQueue:
    """Return the ready queue that the worker of a parker serves."""
    return parker.ready_queue


# What an engine says about itself.


def guard_of(engine: Engine, control: Controller) -> Any:
    """Return the lock of an engine that is about to run; None if there is one worker, which takes none."""
    pools = engine.nodes[0].operator.fragment._headrace.thread_pools
    return engine.lock if engine.scheduler.workers > 1 or pools else None


def takes_turns(app: Any, name: str) -> bool:
    """Say whether an operator computes while none of the others that take turns does."""
    return any(
        node.name == name and node.ready_queue.beside is not None for node in app._headrace.engine.nodes
    )


def work_in(engine: Engine, ready_queue: ReadyQueue) -> list[str]:
    """Return what waits for the workers of a ready queue: ready nodes, and announcements that nobody looked at."""
    queues = [queue for queue in (ready_queue, ready_queue.beside) if queue is not None]
    ready = [
        node.name
        for queue in queues
        for node in (*queue.now, *queue.later)
        if not node.blockers and engine.gate.allows(queue)
    ]
    return ready + [
        f"an announcement for {'anyone' if node is None else node.name}"
        for node in engine.inbox
        if node is None or node.ready_queue in queues
    ]


def work_patience(engine: Engine) -> int:
    """Return for how many nanoseconds ready work may wait for its turn."""
    return 2 * round(LONGEST_TURN * 1e9) if engine.clock.is_virtual else PATIENCE_NS


def is_stopping(engine: Engine) -> bool:
    """Say whether the run is to end."""
    return engine.stopping


def next_time(engine: Engine) -> int | None:
    """Return in how many nanoseconds the next timer is due, or None if there is none that passes by itself."""
    until = None if engine.gate.is_still else engine.next_time()
    seconds = None if until is None or not engine.clock.passes else engine.clock.seconds_until(until)
    return None if seconds is None else round(seconds * 1e9)


def has_timers(engine: Engine) -> bool:
    """Say whether there is a time that a worker has to keep."""
    return engine.timed


def is_shared_time(engine: Engine) -> bool:
    """Say whether several workers may wake up for the next time: for the end of the run, or one on standby."""
    return engine.next_time() == engine.limit or any(
        queue.standby is not None for queue in engine.ready_queues
    )


def time_patience(engine: Engine) -> int:
    """Return by how many nanoseconds a timer may be late: not at all, unless a worker is on standby."""
    return (
        PATIENCE_NS if any(ready_queue.standby is not None for ready_queue in engine.ready_queues) else 1_000
    )


def unfinished(engine: Engine) -> list[str]:
    """Return why an engine should not find itself done now."""
    now = engine.clock.timestamp()
    if engine.limit is not None and now >= engine.limit:
        return []
    queues = engine.ready_queues
    found = [f"{node.name} is ready" for queue in queues for node in (*queue.now, *queue.later)]
    if engine.running:
        found.append(f"{engine.running} running")
    if any(node.awaited.outstanding for node in engine.nodes):
        found.append("a node waits for an event")
    if engine.timers.next() is not None:
        found.append("a node waits for a time")
    return found


def misjudged(engine: Engine, changing: Callable[[Any], bool]) -> list[str]:
    """Return where what an engine holds about waiting nodes differs from what a new evaluation finds.

    A node may be behind the times if that is about to be found out: it is in a ready queue or runs, it was
    announced or is being announced (`changing`), its time has come, or it is polled. A link looks at the queue that
    it sends from, or that it receives into, and is evaluated after the compute that changes it.
    """
    found = _miscounted(engine)
    now = engine.clock.timestamp()
    for node in engine.nodes:
        awaited = node.awaited
        is_about_to_be_evaluated = (
            node.busy
            or node in engine.inbox
            or changing(node)
            or node is engine.alone.node
            or (node.beyond is not None and any(map(_computes, _neighbours(node))))
            or (awaited.until is not None and awaited.until <= now)
        )
        if awaited is ENDED or engine.stopping or is_about_to_be_evaluated:
            continue
        fresh = _evaluate_anew(node, now)
        if fresh is NOTHING and not node.blockers:
            if not awaited.is_polled:
                found.append(f"{node.name} can run, and waits for {_words(awaited)}")
        elif _words(fresh) != _words(awaited):
            found.append(f"{node.name} should wait for {_words(fresh)}, and waits for {_words(awaited)}")
    return found


def _neighbours(node: Any) -> list[Any]:
    """Return the nodes that send to a node, and that it sends to."""
    return [feeder for queue in node.inputs for feeder in queue.feeders] + [
        queue.consumer for queue in node.outputs
    ]


def _computes(node: Any) -> bool:
    """Say whether a node was taken and is not finished."""
    return node.busy and node not in node.ready_queue.now and node not in node.ready_queue.later


def _miscounted(engine: Engine) -> list[str]:
    """Return which counts and lists do not follow from what the nodes wait for."""
    found = []
    outstanding = sum(node.awaited.outstanding for node in engine.nodes)
    if engine.outstanding != outstanding:
        found.append(f"{engine.outstanding} counted as outstanding, and {outstanding} are")
    alive = sum(node.awaited is not ENDED for node in engine.nodes)
    if engine.alive != alive:
        found.append(f"{engine.alive} counted as alive, and {alive} are")
    if set(engine.polling.nodes) != {node for node in engine.nodes if node.awaited.is_polled}:
        found.append(f"{[node.name for node in engine.polling.nodes]} polled")
    for ready_queue in engine.ready_queues:
        found += [
            f"{node.name} in a ready queue with {node.blockers} blockers"
            for node in (*ready_queue.now, *ready_queue.later)
            if node.blockers and node.may_compute
        ]
    armed = {(node, until) for until, _, _, node in engine.timers._heap}
    for node in engine.nodes:
        if node.awaited.until is not None and (node, node.awaited.until) not in armed:
            found.append(f"no timer for {node.name}")
        closed = [not state.available for state in node.input_states]
        closed += [
            state.producer is node and not state.affordable
            for state in node.output_states
            if state.line is None and state.requests
        ]
        for state in node.output_states:
            if state.line is not None:
                waiting = [request for group in state.line._waiting.values() for _, request in group]
                closed += [request.node is node for request in waiting]
        blockers = sum(closed) + node.awaited.blocks
        if node.blockers != blockers and node.may_compute:
            found.append(f"{node.blockers} blockers of {node.name}, and {blockers} are")
    return found


def _evaluate_anew(node: Any, now: int) -> Awaited:
    """Return what a node should be found to wait for, and change nothing."""
    if node.throttled:
        return THROTTLED if node.lifetimes.is_still_full() else NOTHING
    if node.evaluated is None or (node.blockers and not node.evaluated.matter_while_blocked):
        return NOTHING
    conditions = [each for condition in node.conditions for each in (condition, *condition.terms)]
    kept = [condition._headrace.awaits_event for condition in conditions]
    fresh: Awaited = node.evaluated.combine(now)
    for condition, awaits_event in zip(conditions, kept, strict=True):
        condition._headrace.awaits_event = awaits_event
    return fresh.while_blocked() if node.blockers else fresh


def _words(awaited: Awaited) -> str:
    words = [f"{awaited.until} ns"] if awaited.until is not None else []
    words += ["an event"] if awaited.outstanding else []
    words += ["the device"] if awaited is THROTTLED else []
    words += ["a poll"] if awaited.is_polled else []
    words += ["its end"] if awaited is ENDED else []
    return " and ".join(words) or "nothing"


def left_behind(engine: Engine) -> list[str]:
    """Return what a run left in its engine that should be gone when every worker has left."""
    found = []
    if engine.running:
        found.append(f"{engine.running} counted as running")
    found += _miscounted(engine)
    if engine.lock.locked():
        found.append("a lock that is held")
    if engine.waiting.waking:
        found.append(f"{len(engine.waiting.waking)} workers counted as waking")
    for number, ready_queue in enumerate(engine.ready_queues):
        if ready_queue.parked:
            found.append(f"{len(ready_queue.parked)} workers counted as parked in queue {number}")
        if ready_queue.standby is not None:
            found.append(f"a worker that stands by in queue {number}")
        if ready_queue.current is not None:
            found.append(f"a turn in queue {number}")
    return found


def state_of(engine: Engine, name: Callable[[Any], str]) -> str:
    """Return the state of an engine, for people to read; `name` gives that of the worker of a parker."""
    lines = []
    lines.append(
        f"engine: stopping {engine.stopping}, running {engine.running}, outstanding {engine.outstanding}, "
        f"alive {engine.alive}, inbox {[node and node.name for node in engine.inbox]}, "
        f"held {engine.held}, paused {not engine.gate.is_open}, next time {engine.next_time()}, "
        f"waking {[name(parker) for parker in engine.waiting.waking]}"
    )
    for number, ready_queue in enumerate(engine.ready_queues):
        lines.append(
            f"  queue {number}: now {[node.name for node in ready_queue.now]}, "
            f"later {[node.name for node in ready_queue.later]}, "
            f"parked {[name(parker) for parker in ready_queue.parked]}, standby {name(ready_queue.standby)}, "
            f"turn of {ready_queue.current and ready_queue.current.name}"
        )
    for node in engine.nodes:
        lines.append(  # noqa: PERF401 (as the others)
            f"  node {node.name}: blockers {node.blockers}, busy {node.busy}, "
            f"waits for {_words(node.awaited)}, retired {node.retired}, "
            f"inputs {[len(queue) for queue in node.inputs]}"
        )
    return "\n".join(lines)


class Throttle:
    """Stands in for the streams of a node whose device has too much to do, until `complete` is called."""

    def __init__(self, operator: Any, control: Controller, watch: Watch) -> None:
        self._control = control
        self._watch = watch
        self.is_full = self.is_settling = False
        self._announce: Callable[[], None] | None = None
        self._node = operator._headrace.node
        self._node.lifetimes = self

    def submit(self) -> None:
        """Give the device as much as it may have; called in compute."""
        self.is_full = True
        self._node.has_extra_work = True

    def is_still_full(self) -> bool:
        return self.is_full

    def call_when_caught_up(self, callback: Callable[[], None]) -> None:
        self._announce = callback
        self._control.point("asks the device to say when it has caught up")

    @property
    def is_waited_for(self) -> bool:
        """Whether the engine asked to be told."""
        return self._announce is not None

    def complete(self) -> None:
        """Have the device catch up, and say so as its callback would."""
        with self._watch.changing(self._node):
            self.is_full = False
            announce, self._announce = self._announce, None
            if announce is not None:
                announce()
