"""Faults that the runtime once had, to be put back: random programs must find each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.interleavings.planting import Plant


@dataclass(frozen=True)
class Cause:
    """A fault, and programs in which it shows.

    Attributes
    ----------
    plant
        What is put into the source.
    of_stage, of_run
        The features of the programs.
    seeds
        How many programs are tried at most.
    first
        The seed of the first program, from which it is found soon; from any other it takes longer.
    """

    plant: Plant
    of_stage: frozenset[str] = field(default_factory=frozenset)
    of_run: frozenset[str] = field(default_factory=frozenset)
    seeds: int = 60
    first: int = 0


def _cause(
    what: str,
    module: str,
    old: str,
    new: str,
    of_stage: str = "",
    of_run: str = "",
    seeds: int = 60,
    first: int = 0,
) -> Cause:
    def split(text: str) -> frozenset[str]:
        return frozenset(text.split(", ")) if text else frozenset()

    plant = Plant(what, f"headrace.{module}", old, new, scenario="", kinds=())
    return Cause(plant, split(of_stage), split(of_run), seeds, first)


CAUSES = [
    _cause(
        "a block ends feeds and results by the names of attributes",
        "application.runner",
        "elif isinstance(operator, ResultsOp):",
        'elif hasattr(operator, "results"):',
        of_run="running()",
    ),
    _cause(
        "a source is an operator that declares no input",
        "core.graph",
        "return not operator._headrace.incoming and operator._headrace.beyond is None",
        "return not operator.spec.every_input and operator._headrace.beyond is None",
        of_run="max_messages",
    ),
    _cause(
        "a change begins the conditions of all operators anew",
        "_runtime.lifecycle.changes",
        "    for node in changed:\n        if not node.retired:\n            _attach(node, engine)\n",
        "    for node in engine.nodes:\n        if not node.retired:\n            _attach(node, engine)\n"
        "            for condition in node.operator.conditions.values():\n"
        "                condition.initialize()\n",
        of_stage="timeout",
        of_run="changes",
        seeds=200,
    ),
    _cause(
        "a time of a grid is waited for since time 0",
        "conditions.joiner",
        "return JoinedSet(tick, min(reached), {})",
        "return JoinedSet(tick, 0, {})",
        of_stage="join by time",
        seeds=300,
        first=16,
    ),
    _cause(
        "a join drops the oldest of a queue that refuses the newest",
        "conditions.join",
        "is_bounded = queue.policy is not _POP",
        'is_bounded = queue.policy.name == "FAULT"',
        of_stage="join by time, REJECT",
        seeds=300,
    ),
    _cause(
        "a message is received by the attempt that failed",
        "observe.events.queues",
        "self.is_put_off = bool(policy.retries and policy.same_message)",
        "self.is_put_off = False",
        of_stage="retry",
        of_run="tracking",
        seeds=200,
        first=4,
    ),
    _cause(
        "an operator with a timeout ends with messages left",
        "conditions.ports",
        "self._is_stuck = self._is_over and self._count() >= self._waiting",
        "self._is_stuck = self._is_over",
        of_stage="timeout",
    ),
    _cause(
        "metadata by port is that of the first message of a batch",
        "core.metadata",
        "*(dict(each or {}) for each in entries)]",
        "*(dict(each or {}) for each in list(entries)[:1])]",
        of_stage="metadata by port, batch",
        first=2,
    ),
    _cause(
        "virtual time goes on while a function awaits",
        "core.async_function",
        "self._clock.hold()  # virtual time stands still as in a compute",
        "self._clock.hold(); self._clock.release()",
        of_stage="async function",
        of_run="event-based scheduler",
        seeds=200,
        first=3,
    ),
    _cause(
        "after a change, producers of a queue do not share its room again",
        "_runtime.lifecycle.changes",
        "    share_rooms(sharing)\n",
        "    pass\n",
        of_stage="several flows, one queue",
        of_run="changes",
        first=27,
    ),
    _cause(
        "a full queue that refuses the newest drops the oldest",
        "_runtime.messages.queue",
        "if self.policy is _POP or self.policy is _LATEST:\n            self.add(item)",
        "if self.policy is not None:\n            self.add(item)",
        of_stage="REJECT",
        first=36,
    ),
    _cause(
        "a dropped message is not counted",
        "_runtime.messages.queue",
        "            self.dropped += 1\n            return self.popleft()",
        "            return self.popleft()",
        of_stage="POP",
        first=36,
    ),
    _cause(
        "results of replicas leave as they come",
        "replicas.crew",
        "return ticket if self.is_ordered else next(self._done)",
        "return next(self._done)",
        of_stage="replicas",
        first=3,
    ),
    _cause(
        "a join takes what its operator holds up for late",
        "conditions.join",
        "if full is not None:",
        "if False:",
        of_stage="join by time",
        seeds=300,
        first=56,
    ),
    _cause(
        "the last incomplete batch of replicas reaches no end",
        "replicas.crew",
        "return self.operator.declared._headrace.has_end",
        "return False",
        of_stage="replicas, batch, end",
        seeds=100,
        first=1,
    ),
    _cause(
        "an operator that is connected and disconnected at once waits for nothing",
        "_runtime.lifecycle.changes",
        "left = [queue for queue in gone if len(queue) or not found]",
        "left = [queue for queue in gone if len(queue)]",
        of_run="changes",
        seeds=300,
    ),
    _cause(
        "a queue that drops joins a run on one thread",
        "schedulers",
        "if self._workers > 1 or self.clock.is_virtual:",
        "if self._workers >= 0:",
        of_run="changes, default scheduler, real time",
        seeds=300,
        first=84,
    ),
    _cause(
        "a reference waits as long as messages may be late",
        "conditions.joiner",
        "return min((entry.arrived for entry in self._buffer.entries), default=None)",
        "return None",
        of_stage="join by time",
        seeds=300,
        first=181,
    ),
    _cause(
        "a second Ctrl-C leaves a block whose run is alive",
        "application.running",
        "interrupts.install()\n        try:\n            self._let_end(error)\n            self._future",
        "try:\n            self._let_end(error)\n            self._future",
        of_run="running()",
    ),
    _cause(
        "what is left at the end of a run is in no count",
        "_runtime.lifecycle.tear_down",
        "queue.undelivered = len(queue)",
        "queue.undelivered = 0",
        of_stage="count",
    ),
    _cause(
        "a count on a function counts what it yields",
        "core.function",
        "if not self.operator.goes_on or not count:",
        "if self.calls_left is None:",
        of_stage="generator, count",
    ),
]
