"""Exploring: which schedules are run, how a failing one is made short, and how it is written down.

A schedule is the list of decisions that were not the default one. The default is to go on with the thread that
runs and, when it cannot go on, with the next one in turn; so a schedule is as short as what is special about
it, and the empty one is a run without preemption. Written down, ``chain-2:14=worker-1,37=caller`` says that in
the scenario ``chain-2`` the 14th decision goes to worker-1 and the 37th to the caller.

Exhaustive search is bounded by preemptions, as in CHESS (Musuvathi and Qadeer, 2007): a switch away from a
thread that could go on costs one, and so does time that passes although a thread could go on. Which of several
threads goes on after one that cannot costs nothing, unless `delays` is set: then it costs one as well (Emmi,
Qadeer and Rakamarić, 2011), which keeps three and more workers within reach.

Search by seed takes a random walk or PCT (Burckhardt and others, 2010): random priorities, lowered at a few
random decisions, which finds a fault of depth d with a probability that can be computed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from .controller import Line, Task
from .effects import Effects
from .faults import Fault
from .scenario import Outcome, Scenario, run

__all__ = ["Found", "Replay", "Schedule", "explore", "format_schedule", "parse_schedule", "replay", "sample"]

Schedule = tuple[tuple[int, str], ...]


class Replay:
    """Follows a schedule, and the default after it."""

    def __init__(self, schedule: Schedule) -> None:
        self._choices = dict(schedule)

    def choose(self, number: int, options: list[Task], costs: list[int]) -> int:
        name = self._choices.get(number)
        if name is None:
            return 0
        for position, option in enumerate(options):
            if option.name == name:
                return position
        return self._missing(number, name, options)

    def _missing(self, number: int, name: str, options: list[Task]) -> int:
        raise LookupError(
            f"decision {number} cannot go to {name}, only to {', '.join(option.name for option in options)}: "
            "the code is not the one that this schedule was found in"
        )


class _Lenient(Replay):
    """Follows what it can of a schedule; for making schedules shorter."""

    def _missing(self, number: int, name: str, options: list[Task]) -> int:
        return 0


class _Walk:
    """Takes another option than the default now and then."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._often = random.choice([0.01, 0.05, 0.2, 0.5])

    def choose(self, number: int, options: list[Task], costs: list[int]) -> int:
        if self._random.random() >= self._often:
            return 0
        return self._random.randrange(len(options))


class _Priorities:
    """PCT: the highest priority goes on; at a few decisions, whoever would have gone on falls to the bottom."""

    def __init__(self, random: Random, depth: int, decisions: int) -> None:
        self._random = random
        self._priority: dict[str, float] = {}
        self._changes = {random.randrange(max(decisions, 1)): -float(n) for n in range(depth)}

    def choose(self, number: int, options: list[Task], costs: list[int]) -> int:
        for option in options:
            self._priority.setdefault(option.name, self._random.random())
        # Time passes as if it were a thread of low priority: only where nobody else can go on, or now and then.
        ready = [n for n, cost in enumerate(costs) if not cost or options[n].state == "ready"] or [0]
        if self._random.random() < 0.01:
            ready = list(range(len(options)))
        best = max(ready, key=lambda n: self._priority[options[n].name])
        lowered = self._changes.get(number)
        if lowered is not None:
            self._priority[options[best].name] = lowered - 1.0
            best = max(ready, key=lambda n: self._priority[options[n].name])
        return best


@dataclass
class Found:
    """What a search came to."""

    fault: Fault | None = None
    runs: int = 0
    # Whether every schedule within the bound was run.
    complete: bool = False
    # The most wake-ups between two things that happened; all wake-ups; those after which nothing was run.
    most_since_event: int = 0
    wake_ups: int = 0
    idle_wake_ups: int = 0

    def count(self, outcome: Outcome) -> None:
        """Take note of one more run."""
        self.runs += 1
        self.most_since_event = max(self.most_since_event, outcome.most_since_event)
        self.wake_ups += outcome.wake_ups
        self.idle_wake_ups += outcome.idle_wake_ups


def explore(
    scenario: Scenario,
    preemptions: int = 1,
    *,
    delays: bool = False,
    lines: bool = True,
    runs: int | None = None,
    seconds: float | None = None,
    order: int = 0,
) -> Found:
    """Run every schedule with at most so many preemptions, the ones with fewer first, up to the first fault.

    Where there are more than `runs`, or it takes longer than `seconds`, a sample of the ones with most is left out.
    The order of those with equally many is random, with the seed `order`.
    """
    random = Random(order)
    waiting: list[list[Schedule]] = [[] for _ in range(preemptions + 1)]
    waiting[0].append(())
    effects = Effects()
    end = None if seconds is None else time.monotonic() + seconds
    found = Found()
    while any(waiting):
        if (runs is not None and found.runs >= runs) or (end is not None and time.monotonic() > end):
            return found
        spent = next(n for n, schedules in enumerate(waiting) if schedules)
        schedules = waiting[spent]
        # In no particular order, so that a bound on the number of runs cuts evenly.
        position = random.randrange(len(schedules))
        schedules[position], schedules[-1] = schedules[-1], schedules[position]
        schedule = schedules.pop()
        outcome = run(scenario, Replay(schedule), lines)
        found.count(outcome)
        if outcome.fault is not None:
            _write_down(scenario, outcome, lines)
            found.fault = outcome.fault
            return found
        if found.runs == runs and any(waiting):
            return found
        for more, total in effects.learn(outcome.lines):
            waiting[total].append(more)
        for more, cost, line in _further(outcome, schedule, delays, preemptions - spent):
            if effects.matters(line, more, spent + cost):
                waiting[spent + cost].append(more)
    found.complete = True
    return found


def _further(
    outcome: Outcome, schedule: Schedule, delays: bool, most: int
) -> Iterator[tuple[Schedule, int, tuple[Line, bool] | None]]:
    """Yield the schedules that go one decision further than one that was run, what that costs, and from where.

    Those that cost more than `most` are left out.
    """
    first = schedule[-1][0] + 1 if schedule else 0
    for number in range(first, len(outcome.record)):
        options, costs, _, line = outcome.record[number]
        for position in range(1, len(options)):
            cost = costs[position] or int(delays)
            if cost <= most:
                yield (*schedule, (number, options[position].name)), cost, line


def sample(
    scenario: Scenario, seeds: Iterator[int] | range, *, seconds: float | None = None, shrinks: bool = True
) -> Found:
    """Run one schedule for each seed, up to the first fault."""
    end = None if seconds is None else time.monotonic() + seconds
    found = Found()
    for seed in seeds:
        if end is not None and time.monotonic() > end:
            return found
        outcome = _run_seed(scenario, seed)
        found.count(outcome)
        if outcome.fault is not None:
            if shrinks:
                outcome = _shrink(scenario, outcome)
            assert outcome.fault is not None
            outcome.fault.seed = seed
            _write_down(scenario, outcome, lines=True)
            found.fault = outcome.fault
            return found
    return found


def _run_seed(scenario: Scenario, seed: int) -> Outcome:
    random = Random(seed)
    if random.random() < 0.5:
        return run(scenario, _Walk(random))
    decisions = random.choice([50, 300, 1000])
    return run(scenario, _Priorities(random, random.choice([1, 2, 3]), decisions))


def _shrink(scenario: Scenario, outcome: Outcome, tries: int = 150) -> Outcome:
    """Leave out decisions of a failing schedule as long as the same kind of fault is left."""
    assert outcome.fault is not None
    kind = outcome.fault.kind
    best = outcome
    size = max(len(best.schedule()) // 2, 1)
    while tries > 0:
        schedule = best.schedule()
        shorter = None
        for start in range(0, len(schedule), size):
            tries -= 1
            candidate = run(scenario, _Lenient(schedule[:start] + schedule[start + size :]))
            same = candidate.fault is not None and candidate.fault.kind is kind
            if same and len(candidate.schedule()) < len(schedule):
                shorter = candidate
                break
            if tries <= 0:
                break
        if shorter is not None:
            best = shorter
            size = min(size, max(len(best.schedule()) // 2, 1))
        elif size == 1:
            break
        else:
            size = max(size // 2, 1)
    return best


def _write_down(scenario: Scenario, outcome: Outcome, lines: bool) -> None:
    assert outcome.fault is not None
    outcome.fault.schedule = format_schedule(scenario.name, outcome.schedule(), lines)


def format_schedule(name: str, schedule: Schedule, lines: bool = True) -> str:
    """Return a schedule as text, to be given to `--replay`."""
    choices = ",".join(f"{number}={task}" for number, task in schedule)
    return f"{name}{'' if lines else '/primitives'}:{choices}"


def parse_schedule(text: str) -> tuple[str, Schedule, bool]:
    """Return the name of the scenario, the schedule, and whether lines are switch points."""
    name, colon, choices = text.strip().partition(":")
    if not colon:
        raise ValueError(f"a schedule is 'scenario:number=thread,...', not {text!r}")
    name, slash, _ = name.partition("/")
    schedule = []
    for choice in filter(None, choices.split(",")):
        number, _, task = choice.partition("=")
        schedule.append((int(number), task))
    return name, tuple(schedule), not slash


def replay(text: str, scenarios: dict[str, Scenario]) -> Outcome:
    """Run the schedule that a report gave once more."""
    name, schedule, lines = parse_schedule(text)
    outcome = run(scenarios[name], Replay(schedule), lines)
    if outcome.fault is not None:
        _write_down(scenarios[name], outcome, lines)
    return outcome
