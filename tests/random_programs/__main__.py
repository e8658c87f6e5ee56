"""Minutes of random graphs with faults injected: ``make soak``, or ``python -m tests.random_programs --minutes 5``.

Each round takes a seed, makes a plan of it, and runs it under a scheduler chosen by the same seed: orderly
plans under all three, whose outcomes must agree; unruly plans, with or without an operator that fails or a stop
from another thread in the middle; programs that hold, change, batch and pass on frames of a simulated device,
of which none may be wrong. A round that goes wrong prints its seed; ``--seed N`` runs that one round again. A
round that hangs prints where every thread is and ends the program.
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

from headrace import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from headrace.gpu import sim
from headrace.resources import RealtimeClock
from tests.harness import SCHEDULERS, App, MakeScheduler
from tests.random_programs.frames import RandomFrames
from tests.random_programs.graphs import (
    Outcome,
    check_conserved,
    check_nothing_ready,
    orderly,
    run_plan,
    unruly,
)
from tests.random_programs.simulated_frames import SimulatedFrames


def real_event_based(app: App, **kwargs: Any) -> Any:
    return EventBasedScheduler(app, worker_thread_number=4, clock=RealtimeClock(app), **kwargs)


def real_multi_thread(app: App, **kwargs: Any) -> Any:
    return MultiThreadScheduler(app, worker_thread_number=2, clock=RealtimeClock(app), **kwargs)


# Those take the clock of the simulated device.
ON_DEVICE = [
    GreedyScheduler,
    lambda app: MultiThreadScheduler(app, worker_thread_number=3),
    lambda app: EventBasedScheduler(app, worker_thread_number=2),
    lambda app: EventBasedScheduler(app, worker_thread_number=5),
]
MAKERS: list[MakeScheduler] = [*SCHEDULERS, real_event_based, real_multi_thread]


def one_round(seed: int) -> str:
    """Run one round and return what kind it was; anything wrong raises."""
    random = Random(seed)
    kind = random.choice(["orderly", "unruly", "faulty", "stopped", "frames"])
    if kind == "frames":
        one_program(seed)
        return kind
    if kind == "orderly":
        plan = orderly(random)
        outcomes: list[Outcome] = [run_plan(plan, scheduler) for scheduler in MAKERS]
        for outcome in outcomes:
            check_conserved(plan, outcome)
            check_nothing_ready(plan, outcome)
            assert outcome.received() == outcomes[0].received(), "two schedulers disagree"
        return kind
    scheduler = random.choice(MAKERS)
    plan = unruly(random, faults=kind == "faulty")
    if kind == "stopped":
        after = random.random() * 0.002

        def stopping(app: App, **kwargs: Any) -> Any:
            threading.Timer(after, app.stop_execution).start()
            return scheduler(app, **kwargs)

        outcome = run_plan(plan, stopping)
        check_conserved(plan, outcome)
        return kind
    raised: list[str] = []
    try:
        check_conserved(plan, run_plan(plan, scheduler))
    except ZeroDivisionError as error:
        raised = error.__notes__
    failing = [n for n, stage in enumerate(plan.stages) if stage.fails_at]
    assert raised in ([], [f"raised in compute of operator 's{n}' (Stage)" for n in failing])
    return "failed" if raised else kind


def one_program(seed: int) -> int:
    """Run a random program on frames and return how many were looked at; a wrong one raises."""
    scheduler = Random(seed).choice(ON_DEVICE)
    with sim.Machine("h200"):
        library = SimulatedFrames(seed)
        app = RandomFrames(seed, 60, library, scheduler)
        app.run()
    assert not library.mistakes, f"wrong frames (number, found): {library.mistakes[:9]} in {app.plan}"
    assert library.looked_at == library.asked, "some work was not done when run() returned"
    return library.looked_at


def soak_frames(frames: int) -> None:
    """Run random programs on frames until so many were looked at."""
    seed = first = time.time_ns() % 1_000_000_000
    looked_at = 0
    while looked_at < frames:
        faulthandler.dump_traceback_later(60, exit=True)
        try:
            looked_at += one_program(seed)
        except BaseException:
            command = f"python -m tests.random_programs --frames 1 --seed {seed}"
            print(f"\nseed {seed} went wrong: {command}", file=sys.stderr)
            raise
        seed += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"{looked_at} frames looked at in {seed - first} programs from seed {first}, none wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="run only this round")
    parser.add_argument("--frames", type=int, help="only programs on frames, until so many were looked at")
    options = parser.parse_args()
    if options.frames is not None:
        soak_frames(options.frames) if options.seed is None else print(one_program(options.seed))
        return
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
            print(f"\nseed {seed} went wrong: python -m tests.random_programs --seed {seed}", file=sys.stderr)
            raise
        seed += 1
        if not seed % 100:
            gc.collect()
            print(f"\r{sum(kinds.values())} rounds: {dict(kinds)}", end="", flush=True)
    faulthandler.cancel_dump_traceback_later()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace")]
    assert not left, f"threads left running: {left}"
    print(f"\n{sum(kinds.values())} rounds, all well: {dict(kinds)}")


if __name__ == "__main__":
    main()
