"""What holds for every request and every program on a simulated device."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import gpu
from headrace.gpu import sim
from headrace.gpu.sim.processors import Grid, Processors, indices_of
from headrace.gpu.sim.timeline import Timeline
from tests.gpu.sim.block_by_block import Job, Schedule, random_schedule, run_block_by_block, run_model
from tests.limits import examples

profiles = st.sampled_from(sorted(sim.PROFILES))
drivers = st.sampled_from([(12, 4), (13, 0), (13, 1), (13, 3)])


@given(profiles, drivers, st.lists(st.integers(1, 140), min_size=1, max_size=6))
@settings(max_examples=examples(100), deadline=None)
@pytest.mark.filterwarnings("ignore::headrace.gpu.PartitionRounded")
def test_partitions_are_disjoint_and_sum_to_the_device(profile: Any, driver: Any, counts: Any) -> None:
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


SMS = 6
job_lists = st.lists(
    st.builds(
        Job,
        arrival=st.integers(0, 60),
        blocks=st.integers(1, 80),
        period=st.integers(1, 12),
        priority=st.integers(-2, 0),
        sms=st.sampled_from([0b111111, 0b000011, 0b111100, 0b001111]),
        threads=st.sampled_from([1, 20, 33]),
    ),
    min_size=1,
    max_size=5,
)


@given(job_lists, st.integers(1, 3))
@settings(max_examples=examples(150), deadline=None)
def test_grids_end_when_they_would_if_each_block_were_simulated(jobs: Any, slots: Any) -> None:
    schedule = Schedule(jobs, SMS, threads_per_sm=64, blocks_per_sm=slots)
    assert run_model(schedule) == run_block_by_block(schedule)


# "python -m tests.gpu.sim.block_by_block" runs 22,000 of them.
def test_random_schedules_end_when_they_would_if_each_block_were_simulated() -> None:
    for seed in range(examples(200)):
        schedule = random_schedule(random.Random(seed))
        assert run_model(schedule) == run_block_by_block(schedule), f"seed {seed}"


def test_a_launch_is_in_line_for_room_that_comes_free_as_it_arrives_however_late_it_was_announced() -> None:
    timeline = Timeline()
    processors = Processors(timeline, 1, 64, 1)
    ends = {}

    def submit(name: str, priority: int) -> None:
        grid = Grid(
            left=1,
            threads=1,
            period=100,
            sms=1,
            key=(priority, 0),
            on_end=lambda grid: ends.update({name: timeline.now}),
        )
        processors.submit(grid)

    for name in ("first", "second"):
        timeline.call_at(0, lambda name=name: submit(name, 0))
    timeline.call_at(50, lambda: timeline.call_at(100, lambda: submit("urgent", -1)))
    timeline.wait(lambda: len(ends) == 3)
    assert ends == {"first": 100, "urgent": 200, "second": 300}


def test_the_cost_does_not_grow_with_the_number_of_blocks() -> None:
    counts = []
    for blocks in (1_000, 1_000_000):
        placements = []
        jobs = [Job(number, blocks, 1000 + 7 * number, 0, 2**SMS - 1) for number in range(3)]
        run_model(Schedule(jobs, SMS, 64, 4), lambda *_, placements=placements: placements.append(1))
        counts.append(len(placements))
    assert counts[1] < 2 * counts[0] < 1000


def test_a_grid_that_waits_for_other_sms_disturbs_nobody() -> None:
    placements = []
    jobs = [
        Job(0, 100_000, 10, 0, sms=0b000011),
        Job(0, 100_000, 10, 0, sms=0b111111),
    ]
    run_model(Schedule(jobs, SMS, 64, 1), lambda processors, grid, now, shares: placements.append(now))
    assert len(placements) < 20


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
@settings(max_examples=examples(80), deadline=None)
def test_no_block_runs_outside_its_context_nor_beyond_what_fits(jobs: Any) -> None:
    threads_per_sm, slots = 2048, 8
    placed: dict[Grid, int] = {}

    def watch(processors: Any, grid: Any, now: Any, shares: Any) -> None:
        placed[grid] = placed.get(grid, 0) + sum(blocks * sms.bit_count() for sms, blocks in shares)
        threads, blocks_on = [0] * SMS, [0] * SMS
        # What runs, by the model's own state (the blocks that took the places of others without a visit are
        # in it), and what is placed now.
        cohorts = [(other, cohort.shares) for other in processors._running for cohort in other.cohorts]
        for other, parts in [*cohorts, (grid, shares)]:
            for sms, blocks in parts:
                assert sms & ~other.sms == 0
                for sm in indices_of(sms):
                    threads[sm] += blocks * other.threads
                    blocks_on[sm] += blocks
        free = {sm: room for room, sms in processors._rooms.items() for sm in indices_of(sms)}
        assert [free[sm] for sm in range(SMS)] == [
            (threads_per_sm - used, slots - blocks) for used, blocks in zip(threads, blocks_on, strict=True)
        ]
        assert min(min(room) for room in free.values()) >= 0

    ends = run_model(Schedule(jobs, SMS, threads_per_sm, slots), watch)
    for job, end in zip(jobs, ends, strict=True):
        assert end >= job.arrival + job.period
    assert len(placed) == len(jobs)
    assert sum(placed.values()) <= sum(job.blocks for job in jobs)
    assert all(grid.left == 0 for grid in placed)


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


def execute(program: Any, partitioned: bool) -> Any:
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
@settings(max_examples=examples(80), deadline=None)
def test_streams_are_in_order_and_events_order_them(program: Any, partitioned: Any) -> None:
    happened, before = execute(program, partitioned)
    position = {step: place for place, (step, _) in enumerate(happened)}
    assert position.keys() == before.keys()
    for step, earlier in before.items():
        assert all(position[other] < position[step] for other in earlier)


@given(programs, st.booleans())
@settings(max_examples=examples(25), deadline=None)
def test_virtual_time_is_deterministic(program: Any, partitioned: Any) -> None:
    assert execute(program, partitioned) == execute(program, partitioned)
