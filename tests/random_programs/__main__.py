"""Minutes of random programs: ``make soak``, or ``python -m tests.random_programs --minutes 5``.

Each round takes a seed and runs the program of that seed, or a program on frames of a simulated device. A program
that goes wrong is shown as small as it gets; ``--seed N`` runs that round again. A round that hangs prints where
every thread is and ends the program.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import sys
import threading
import time
from collections import Counter
from random import Random

from headrace import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from headrace.gpu import sim
from tests.harness import MakeScheduler
from tests.random_programs.frames import SimulatedFrames, run_on_streams
from tests.random_programs.making import make
from tests.random_programs.model import verdict
from tests.random_programs.shrinking import shrink

# Those take the clock of the simulated device.
ON_DEVICE: list[MakeScheduler] = [
    GreedyScheduler,
    lambda app: MultiThreadScheduler(app, worker_thread_number=3),
    lambda app: EventBasedScheduler(app, worker_thread_number=2),
    lambda app: EventBasedScheduler(app, worker_thread_number=5),
]


def one_round(seed: int) -> str:
    """Run one round and return what kind it was; anything wrong raises."""
    if seed % 5 == 0:
        one_program(seed)
        return "frames"
    program = make(seed)
    found = verdict(program)
    if found:
        print(f"\n{found}: {program}", file=sys.stderr)  # should a smaller one hang
        raise AssertionError(f"{found}: {shrink(program, verdict)}")
    return program.scheduler


def one_program(seed: int) -> int:
    """Run a random program on frames and return how many were looked at; a wrong one raises."""
    scheduler = Random(seed).choice(ON_DEVICE)
    with sim.Machine("h200"):
        library = SimulatedFrames(seed)
        program = run_on_streams(seed, library, scheduler)
    assert not library.mistakes, f"wrong frames (number, found): {library.mistakes[:9]} in {program}"
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
    logging.getLogger("headrace").setLevel(logging.CRITICAL)
    first = time.time_ns() % 1_000_000_000
    end = time.monotonic() + options.minutes * 60
    kinds: Counter[str] = Counter()
    seed = first
    print(f"from seed {first}, for {options.minutes} minutes")
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(60, exit=True)
        print(f"\rseed {seed} after {sum(kinds.values())} rounds: {dict(kinds)} ", end="", flush=True)
        try:
            kinds[one_round(seed)] += 1
        except BaseException:
            print(f"\nseed {seed} went wrong: python -m tests.random_programs --seed {seed}", file=sys.stderr)
            raise
        seed += 1
        if not seed % 100:
            gc.collect()
    faulthandler.cancel_dump_traceback_later()
    names = [thread.name for thread in threading.enumerate()]
    # A process that has used its simulated device keeps it: an array library was registered for the frames.
    left = [name for name in names if name.startswith("headrace") and name != "headrace-sim"]
    assert not left, f"threads left running: {left}"
    print(f"\n{sum(kinds.values())} rounds, all well: {dict(kinds)}")


if __name__ == "__main__":
    main()
