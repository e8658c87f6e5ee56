"""Explore interleavings for as long as you like, or replay one: ``python -m tests.interleavings --help``."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time

os.environ.setdefault("HEADRACE_DEVICE", "sim")

from headrace._runtime.scheduling.engine import is_compiled

from .exploring import Found, explore, replay, sample
from .link_scenarios import SCENARIOS
from .planting import planted
from .plants import PLANTS
from .scenario import Scenario


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interleavings", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "names", nargs="*", help="words that the names of the scenarios have; all unless given"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long to go on, for all scenarios together"
    )
    parser.add_argument(
        "--preemptions", type=int, help="run every schedule with so many at most, however long it takes"
    )
    parser.add_argument("--seed", type=int, help="run the schedule of one seed")
    parser.add_argument("--replay", metavar="SCHEDULE", help="run the schedule of a report")
    parser.add_argument("--plants", action="store_true", help="plant each fault and say what finds it")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    options = parser.parse_args()
    if is_compiled():
        print("the compiled modules have no lines to switch at: run make pure first", file=sys.stderr)
        return 2
    if options.replay:
        outcome = replay(options.replay, SCENARIOS)
        print(outcome.fault.report() if outcome.fault else f"no fault, in {outcome.steps} steps")
        return int(outcome.fault is not None)
    if options.plants:
        return _plant(options.names)
    chosen = [
        s for name, s in SCENARIOS.items() if not options.names or any(w in name for w in options.names)
    ]
    if options.list:
        print("\n".join(scenario.name for scenario in chosen))
        return 0
    if options.seed is not None:
        return sum(
            _say(scenario, sample(scenario, range(options.seed, options.seed + 1))) for scenario in chosen
        )
    if options.preemptions is not None:
        return sum(_say(scenario, explore(scenario, options.preemptions)) for scenario in chosen)
    first = time.time_ns() % 1_000_000_000
    print(f"{len(chosen)} scenarios, {options.seconds:g} s, seeds from {first}")
    each = options.seconds / max(len(chosen), 1)
    failed = 0
    for scenario in chosen:
        found = explore(scenario, 2, seconds=each / 2)
        if found.fault is None:
            by_seed = sample(scenario, itertools.count(first), seconds=each / 2)
            found.fault = by_seed.fault
            found.runs += by_seed.runs
            found.wake_ups += by_seed.wake_ups
            found.idle_wake_ups += by_seed.idle_wake_ups
            found.most_since_event = max(found.most_since_event, by_seed.most_since_event)
        failed += _say(scenario, found)
    print(f"{failed} of {len(chosen)} scenarios have a fault")
    return int(failed > 0)


def _say(scenario: Scenario, found: Found) -> int:
    verdict = "all schedules within the bound" if found.complete else "a part of the schedules"
    if found.fault is not None:
        verdict = found.fault.report()
    wake_ups = (
        f"{found.wake_ups} wake-ups, {found.idle_wake_ups} idle, at most {found.most_since_event} at once"
    )
    print(f"{scenario.name:20s} {found.runs:6d} runs, {wake_ups}: {verdict}", flush=True)
    return int(found.fault is not None)


def _plant(words: list[str]) -> int:
    missed = 0
    for plant in PLANTS:
        if words and not any(word in plant.what for word in words):
            continue
        with planted(plant):
            found = explore(SCENARIOS[plant.scenario], plant.preemptions, runs=2000)
        is_found = found.fault is not None and found.fault.kind in plant.kinds
        missed += not is_found
        seen = found.fault.kind.value if found.fault is not None else "nothing"
        print(
            f"{'found ' if is_found else 'MISSED'} {plant.what}: {seen}, {plant.scenario}, {found.runs} runs",
            flush=True,
        )
        if words and found.fault is not None:
            print(found.fault.report())
    return missed


if __name__ == "__main__":
    sys.exit(main())
