"""The judge of the simulated SMs: every block by itself, as plainly as can be, however long it takes.

``headrace.gpu.sim.processors`` keeps blocks together, skips rounds and hands slots over, to be quick. This does
none of it. The rules are the same: at each moment the blocks that end free their room, then the grids that arrive
join the line, then each grid in line, by priority and then by arrival, places as many blocks as fit, each on the
SM on which most more of them would fit, and the first such SM.

    python -m tests.gpu.sim.block_by_block [--schedules 22000] [--seed 0]

compares the two on random schedules and exits with 1 if any grid's end is off by more than 2%.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from typing import Any

from headrace.gpu.sim.processors import Grid, Processors
from headrace.gpu.sim.timeline import Timeline

TOLERANCE = 0.02


@dataclass(frozen=True)
class Job:
    """A grid, and when it arrives; times in nanoseconds."""

    arrival: int
    blocks: int
    period: int
    priority: int
    sms: int
    threads: int = 1


@dataclass(frozen=True)
class Schedule:
    """Jobs, and the SMs that they run on."""

    jobs: list[Job]
    sm_count: int
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32


def run_block_by_block(schedule: Schedule) -> list[int]:
    """Return when each job ends."""
    jobs = schedule.jobs
    threads_free = [schedule.threads_per_sm] * schedule.sm_count
    slots_free = [schedule.blocks_per_sm] * schedule.sm_count
    to_place = [job.blocks for job in jobs]
    ends = [-1] * len(jobs)
    line: list[int] = []  # the numbers of the jobs that have arrived, in the order they are served
    running: dict[int, list[tuple[int, int]]] = {}  # by the time at which they end: job and SM of each block
    arrivals = sorted(range(len(jobs)), key=lambda number: jobs[number].arrival)

    def fit(sm: int, threads: int) -> int:
        return min(threads_free[sm] // threads, slots_free[sm])

    def end_blocks(now: int) -> None:
        for number, sm in running.pop(now, []):
            threads_free[sm] += jobs[number].threads
            slots_free[sm] += 1
            ends[number] = now  # of its last block, in the end

    def place_blocks(now: int) -> None:
        for number in line:
            job = jobs[number]
            may_use = [sm for sm in range(schedule.sm_count) if job.sms >> sm & 1]
            while to_place[number]:
                sm = max(may_use, key=lambda sm: fit(sm, job.threads))  # the first of several
                if not fit(sm, job.threads):
                    break
                threads_free[sm] -= job.threads
                slots_free[sm] -= 1
                to_place[number] -= 1
                running.setdefault(now + job.period, []).append((number, sm))

    while arrivals or running:
        now = min([*running, *(jobs[number].arrival for number in arrivals[:1])])
        end_blocks(now)
        while arrivals and jobs[arrivals[0]].arrival == now:
            line.append(arrivals.pop(0))
            line.sort(key=lambda number: jobs[number].priority)  # stable: then by arrival
            place_blocks(now)
        place_blocks(now)
        line = [number for number in line if to_place[number]]
    return ends


def run_model(schedule: Schedule, watch: Any = None) -> list[int]:
    """Return the same by the model under test."""
    timeline = Timeline()
    sizes = schedule.sm_count, schedule.threads_per_sm, schedule.blocks_per_sm
    processors = Processors(timeline, *sizes)
    ends = [-1] * len(schedule.jobs)
    for number, job in enumerate(schedule.jobs):

        def ended(grid: Grid, number: int = number) -> None:
            ends[number] = timeline.now

        grid = Grid(
            left=job.blocks,
            threads=job.threads,
            period=job.period,
            sms=job.sms,
            key=(job.priority, 0),
            on_end=ended,
        )
        timeline.call_at(job.arrival, lambda grid=grid: processors.submit(grid))
    if watch is not None:
        processors.on_place = lambda grid, now, shares: watch(processors, grid, now, shares)
    timeline.wait(lambda: all(end >= 0 for end in ends))
    return ends


def random_schedule(random: random.Random) -> Schedule:
    """Return a schedule of one of many kinds: blocks of one size or of several, on all SMs or on some, ..."""
    sm_count = random.choice([1, 2, 3, 6, 12])
    everywhere = (1 << sm_count) - 1
    cut = random.randint(0, sm_count)
    low, high = everywhere & ((1 << cut) - 1), everywhere & ~((1 << cut) - 1)
    sets = random.choice(
        [[everywhere], [low or everywhere, high or everywhere], [everywhere, low or high], []]
    )
    sizes = random.choice([[256], [1024], [64, 128], [32, 96, 512, 1024], [640, 256, 1024]])
    about = random.choice([10, 100, 1_000, 10_000, 1_000_000])
    kind = random.choice(["alike", "near", "wide", "few"])
    few = [random.randint(about, 3 * about) for _ in range(3)]
    spread = random.choice([0, about // 2, 3 * about, 20 * about])
    most = random.choice([4, 40, 400])

    def period() -> int:
        if kind == "alike":
            return about
        if kind == "near":
            return about + random.randint(0, max(about // 100, 1))
        if kind == "few":
            return random.choice(few)
        return random.randint(max(about // 20, 1), about)

    jobs = [
        Job(
            arrival=random.randint(0, spread),
            blocks=random.randint(1, most),
            period=period(),
            priority=random.choice([0, 0, -1, -5]),
            sms=random.choice(sets) if sets else random.randint(1, everywhere),
            threads=random.choice(sizes),
        )
        for _ in range(random.randint(1, 16))
    ]
    return Schedule(jobs, sm_count, random.choice([1024, 1536, 2048]), random.choice([1, 2, 8, 16, 32]))


def off(schedule: Schedule) -> float:
    """Return by how much the model's time from arrival to end differs, for the job where it does so most."""
    worst = 0.0
    truths, ends = run_block_by_block(schedule), run_model(schedule)
    for job, truth, end in zip(schedule.jobs, truths, ends, strict=True):
        worst = max(worst, abs(end - truth) / (truth - job.arrival))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=22_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = inexact = 0
    worst = 0.0
    for number in range(options.schedules):
        difference = off(random_schedule(random.Random(options.seed + number)))
        worst = max(worst, difference)
        inexact += difference > 0
        if difference > TOLERANCE:
            wrong += 1
            print(f"seed {options.seed + number}: off by {difference:.1%}")
    print(
        f"{options.schedules} schedules: {inexact} not exact, {wrong} off by more than {TOLERANCE:.0%}, "
        f"at most by {worst:.2%}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
