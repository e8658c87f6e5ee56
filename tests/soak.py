"""Minutes of random graphs with faults injected: ``make soak``, or ``python tests/soak.py --minutes 5``.

Each round takes a seed, makes a plan of it, and runs it under a scheduler chosen by the same seed: orderly
plans under all three, whose outcomes must agree; unruly plans, with or without an operator that fails or a
stop from another thread in the middle. A round that goes wrong prints its seed; ``--seed N`` runs that one
round again. A round that hangs prints where every thread is and ends the program.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import sys
import threading
import time
from collections import Counter
from random import Random
from typing import Any

from pipelines import SCHEDULERS, App, Make
from random_graphs import Outcome, check_conserved, check_nothing_ready, orderly, run_plan, unruly

from penstock import EventBasedScheduler, MultiThreadScheduler
from penstock.resources import RealtimeClock


def real_event_based(app: App, **kwargs: Any) -> Any:
    return EventBasedScheduler(app, worker_thread_number=4, clock=RealtimeClock(app), **kwargs)


def real_multi_thread(app: App, **kwargs: Any) -> Any:
    return MultiThreadScheduler(app, worker_thread_number=2, clock=RealtimeClock(app), **kwargs)


MAKES: list[Make] = [*SCHEDULERS, real_event_based, real_multi_thread]


def one_round(seed: int) -> str:
    """Run one round and give what kind it was; anything wrong raises."""
    random = Random(seed)
    kind = random.choice(["orderly", "unruly", "faulty", "stopped"])
    if kind == "orderly":
        plan = orderly(random)
        outcomes: list[Outcome] = [run_plan(plan, make) for make in MAKES]
        for outcome in outcomes:
            check_conserved(plan, outcome)
            check_nothing_ready(plan, outcome)
            assert outcome.received() == outcomes[0].received(), "two schedulers disagree"
        return kind
    make = random.choice(MAKES)
    plan = unruly(random, faults=kind == "faulty")
    if kind == "stopped":
        after = random.random() * 0.002

        def stopping(app: App, **kwargs: Any) -> Any:
            threading.Timer(after, app.stop_execution).start()
            return make(app, **kwargs)

        outcome = run_plan(plan, stopping)
        check_conserved(plan, outcome)
        return kind
    raised: list[str] = []
    try:
        check_conserved(plan, run_plan(plan, make))
    except ZeroDivisionError as error:
        raised = error.__notes__
    failing = [n for n, stage in enumerate(plan.stages) if stage.fails_at]
    assert raised in ([], [f"raised in compute of operator 's{n}' (Stage)" for n in failing])
    return "failed" if raised else kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="run only this round")
    options = parser.parse_args()
    if options.seed is not None:
        print(one_round(options.seed))
        return
    first = time.time_ns() % 1_000_000_000
    end = time.monotonic() + options.minutes * 60
    kinds: Counter[str] = Counter()
    seed = first
    print(f"from seed {first}, for {options.minutes} minutes")
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            kinds[one_round(seed)] += 1
        except BaseException:
            print(f"\nseed {seed} went wrong: python tests/soak.py --seed {seed}", file=sys.stderr)
            raise
        seed += 1
        if not seed % 100:
            gc.collect()
            print(f"\r{sum(kinds.values())} rounds: {dict(kinds)}", end="", flush=True)
    faulthandler.cancel_dump_traceback_later()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    assert not left, f"threads left running: {left}"
    print(f"\n{sum(kinds.values())} rounds, all well: {dict(kinds)}")


if __name__ == "__main__":
    main()
