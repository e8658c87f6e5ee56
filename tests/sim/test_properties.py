"""What holds for every request and every program on a simulated device."""

import heapq
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import gpu
from penstock.gpu import sim
from penstock.gpu.sim.processors import Grid, Processors, indices_of
from penstock.gpu.sim.timeline import Timeline

profiles = st.sampled_from(sorted(sim.PROFILES))
drivers = st.sampled_from([(12, 4), (13, 0), (13, 1), (13, 3)])


@given(profiles, drivers, st.lists(st.integers(1, 140), min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
@pytest.mark.filterwarnings("ignore::penstock.gpu.PartitionRounded")
def test_partitions_are_disjoint_and_sum_to_the_device(profile, driver, counts):
    with sim.Machine(profile, driver=driver):
        device = sim.Device(0)
        total = device.resources.sm.sm_count
        least = device.resources.sm.min_partition_size
        step = 2 if driver >= (13, 1) else least
        rounded = sum(max(-(-count // step) * step, least) for count in counts)
        refused = ""
        try:
            plan = gpu.partition(device, counts, dry_run=True)
        except gpu.PartitionError as error:
            refused = str(error)
        if refused:  # only where whole groups do not fit
            assert rounded > total
            assert f"has {total}, in groups of" in refused
            return
        with gpu.partition(device, counts) as partitions:
            sets = [set(indices_of(partition.context._state.sms)) for partition in partitions]
            assert sum(map(len, sets)) == len(set.union(*sets)) == total
            assert [len(sms) for sms in sets] == [share.sm_count for share in plan]
            for partition, count in zip(partitions, counts, strict=False):
                assert partition.sm_count >= count
        if all(share.sm_count == count for share, count in zip(plan, counts, strict=False)):
            gpu.partition(device, counts, exact=True).close()
        else:
            with pytest.raises(gpu.PartitionError):
                gpu.partition(device, counts, exact=True)


# -- blocks on SMs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    arrival: int
    blocks: int
    period: int
    priority: int
    sms: int
    threads: int = 1


def run_model(jobs: list[Job], sm_count: int, threads_per_sm: int, slots: int, watch=None) -> list[int]:
    """Return when each job ends, by the model under test."""
    timeline = Timeline(virtual=True)
    processors = Processors(timeline, sm_count, threads_per_sm, slots)
    ends = [-1] * len(jobs)
    for number, job in enumerate(jobs):

        def ended(grid: Grid, number: int = number) -> None:
            ends[number] = timeline.now

        grid = Grid(
            blocks=job.blocks,
            threads=job.threads,
            period=job.period,
            sms=job.sms,
            priority=job.priority,
            on_end=ended,
        )
        timeline.at(job.arrival, lambda grid=grid: processors.submit(grid))
    if watch is not None:
        processors.on_place = watch
    timeline.wait(lambda: all(end >= 0 for end in ends))
    return ends


def run_block_by_block(jobs: list[Job], sm_count: int, slots: int) -> list[int]:
    """Return the same by brute force: every block by itself, all blocks the same size."""
    free = [slots] * sm_count
    left = [job.blocks for job in jobs]
    running = [0] * len(jobs)
    ends = [-1] * len(jobs)
    line: list[tuple[int, int, int]] = []  # priority, arrival, job
    ending: list[tuple[int, int, int]] = []  # time, SM, job
    arrivals = sorted(range(len(jobs)), key=lambda number: (jobs[number].arrival, number))
    order = itertools.count()

    def place(now: int) -> None:
        for _, _, number in sorted(line):
            job = jobs[number]
            while left[number]:
                sm = max((i for i in range(sm_count) if job.sms >> i & 1), key=lambda i: free[i])
                if not free[sm]:
                    break
                free[sm] -= 1
                left[number] -= 1
                running[number] += 1
                heapq.heappush(ending, (now + job.period, sm, number))

    def settle(now: int) -> None:
        while ending and ending[0][0] <= now:
            _, sm, number = heapq.heappop(ending)
            free[sm] += 1
            running[number] -= 1
            if not running[number] and not left[number]:
                ends[number] = now

    while arrivals or ending:
        now = min([jobs[arrivals[0]].arrival] if arrivals else [ending[0][0]])
        if ending:
            now = min(now, ending[0][0])
        settle(now)
        arrived = False
        while arrivals and jobs[arrivals[0]].arrival == now:
            number = arrivals.pop(0)
            line.append((jobs[number].priority, next(order), number))
            place(now)
            arrived = True
        if not arrived:
            place(now)
    return ends


SMS = 6
job_lists = st.lists(
    st.builds(
        Job,
        arrival=st.integers(0, 60),
        blocks=st.integers(1, 80),
        period=st.integers(1, 12),
        priority=st.integers(-2, 0),
        sms=st.sampled_from([0b111111, 0b000011, 0b111100, 0b001111]),
    ),
    min_size=1,
    max_size=5,
)


@given(job_lists, st.integers(1, 3))
@settings(max_examples=400, deadline=None)
def test_cohorts_end_when_their_blocks_would(jobs, slots):
    assert run_model(jobs, SMS, threads_per_sm=64, slots=slots) == run_block_by_block(jobs, SMS, slots)


mixed_jobs = st.lists(
    st.builds(
        Job,
        arrival=st.integers(0, 60),
        blocks=st.integers(1, 500),
        period=st.integers(1, 50),
        priority=st.integers(-2, 0),
        sms=st.integers(1, 2**SMS - 1),
        threads=st.sampled_from([32, 96, 512, 1024]),
    ),
    min_size=1,
    max_size=12,
)


@given(mixed_jobs)
@settings(max_examples=200, deadline=None)
def test_no_block_runs_outside_its_context_nor_beyond_what_fits(jobs):
    threads_per_sm, slots = 2048, 8
    active: list[tuple[int, Grid, list[tuple[int, int]]]] = []  # end, grid, shares
    placed: dict[Grid, int] = {}

    def watch(grid, now, shares):
        placed[grid] = placed.get(grid, 0) + sum(blocks * sms.bit_count() for sms, blocks in shares)
        active[:] = [entry for entry in active if entry[0] > now]
        active.append((now + grid.period, grid, shares))
        threads, blocks_on = [0] * SMS, [0] * SMS
        for _, other, parts in active:
            for sms, blocks in parts:
                assert sms & ~other.sms == 0
                for sm in indices_of(sms):
                    threads[sm] += blocks * other.threads
                    blocks_on[sm] += blocks
        assert max(threads) <= threads_per_sm
        assert max(blocks_on) <= slots

    ends = run_model(jobs, SMS, threads_per_sm, slots, watch)
    for job, end in zip(jobs, ends, strict=True):
        assert end >= job.arrival + job.period


# -- streams and events ------------------------------------------------------------------------------


STREAMS = 4
programs = st.lists(
    st.one_of(
        st.tuples(st.just("kernel"), st.integers(0, STREAMS - 1), st.integers(1, 40), st.integers(1, 300)),
        st.tuples(st.just("host"), st.integers(0, STREAMS - 1)),
        st.tuples(st.just("copy"), st.integers(0, STREAMS - 1)),
        st.tuples(st.just("record"), st.integers(0, STREAMS - 1), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.integers(0, STREAMS - 1), st.integers(0, 3)),
        st.tuples(st.just("sleep"), st.integers(1, 100)),
    ),
    max_size=40,
)


def execute(program, partitioned: bool):
    """Run a program; return what happened when, and what had to come before what."""
    happened: list[tuple[int, float]] = []
    before: dict[int, set[int]] = {}
    with sim.Machine("h200") as machine:
        device = sim.Device(0)
        device.set_current()
        parts = list(gpu.partition(device, [16, 40])) if partitioned else []
        streams = [
            parts[i % 3].create_stream()
            if parts
            else device.create_stream(options=sim.StreamOptions(priority=-i))
            for i in range(STREAMS)
        ]
        events = [device.create_event() for _ in range(4)]
        known: list[set[int]] = [set() for _ in range(STREAMS)]  # what a stream is ordered after
        recorded: list[set[int]] = [set() for _ in range(4)]
        buffer = device.allocate(1 << 16, stream=streams[0])
        for step, (kind, *rest) in enumerate(program):
            if kind == "sleep":
                machine.sleep(rest[0] * 1e-6)
                continue
            stream = streams[rest[0]]
            if kind == "record":
                stream.record(events[rest[1]])
                recorded[rest[1]] = set(known[rest[0]])
                continue
            if kind == "wait":
                stream.wait(events[rest[1]])
                known[rest[0]] |= recorded[rest[1]]
                continue
            before[step] = set(known[rest[0]])
            known[rest[0]].add(step)

            def note(step: int = step) -> None:
                happened.append((step, machine.now))

            if kind == "kernel":
                config = sim.LaunchConfig(grid=rest[2], block=1024)
                sim.launch(stream, config, sim.Kernel("k", rest[1] * 1e-6, effect=note))
            elif kind == "host":
                gpu.launch_host(stream, note)
            else:
                buffer.fill(step % 256, stream=stream)
                gpu.launch_host(stream, note)
        device.sync()
    return happened, before


@given(programs, st.booleans())
@settings(max_examples=200, deadline=None)
def test_streams_are_in_order_and_events_order_them(program, partitioned):
    happened, before = execute(program, partitioned)
    position = {step: place for place, (step, _) in enumerate(happened)}
    assert position.keys() == before.keys()
    for step, earlier in before.items():
        assert all(position[other] < position[step] for other in earlier)


@given(programs, st.booleans())
@settings(max_examples=50, deadline=None)
def test_virtual_time_is_deterministic(program, partitioned):
    assert execute(program, partitioned) == execute(program, partitioned)
