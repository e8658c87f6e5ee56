"""Random programs do what the model says, in every mode; a program that does not is shown as small as it gets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import MultiThreadScheduler, gpu
from headrace.core.errors import PeerAborted
from headrace.gpu import sim
from headrace.tensor import register_library
from tests.harness.libraries import fresh_registry
from tests.limits import THOROUGH
from tests.random_programs.building import PlannedError, Record
from tests.random_programs.frames import (
    ArrayLibrary,
    Captured,
    Frames,
    InMemory,
    OnSlices,
    Planned,
    SimulatedFrames,
    run_on_streams,
    run_planned,
)
from tests.random_programs.making import make
from tests.random_programs.model import differences, faults, flow_faults, verdict
from tests.random_programs.parts import LINKS, can_be_cut, cut, places_of, run_in_parts
from tests.random_programs.processes import run_in_processes, run_with_process_replicas
from tests.random_programs.program import (
    Program,
    is_orderly,
    on_device,
    with_calls,
    with_plan,
    with_replay,
    with_segment,
)
from tests.random_programs.running import run_program, run_replay
from tests.random_programs.shrinking import shrink

SEEDS = 5000 if THOROUGH else 80
IN_A_TEST = 40


@pytest.mark.parametrize("first", range(0, SEEDS, IN_A_TEST))
def test_a_program_does_what_the_model_says(first: int) -> None:
    for seed in range(first, first + IN_A_TEST):
        program = make(seed)
        if found := verdict(program):
            pytest.fail(f"seed {seed}: {found} in {shrink(program, verdict)}")


ON_STREAMS = 1000 if THOROUGH else 24
PLANNED = 500 if THOROUGH else 3
PLAYED = 500 if THOROUGH else 4
CALLED = 300 if THOROUGH else 5
ON_SLICES = 1000 if THOROUGH else 4
IN_EVERY_WAY = 3000 if THOROUGH else 8


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh_registry(monkeypatch)
    register_library(ArrayLibrary())


def _on_streams(program: Program, kind: Callable[..., Frames] = Frames) -> tuple[Program, Record]:
    """Run a program on the streams of a simulated device; its frames are buffers, or arrays of a library."""
    other = on_device(program)
    with sim.Machine("h200"):
        library = SimulatedFrames(program.seed, makes_arrays=bool(program.seed % 3))
        record = run_program(other, kind(other, library))
    assert library.mistakes == [], f"wrong frames (number, found) in {program}"
    assert library.looked_at == library.asked, f"some work was not done when run() returned: {program}"
    return other, record


@pytest.mark.parametrize("first", range(0, ON_STREAMS, 24))
def test_a_program_on_streams_does_what_the_model_says_and_no_frame_is_wrong(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 24):
        # Every other program runs under the checker, which has nothing to say: its warnings are errors here.
        monkeypatch.setenv("HEADRACE_CHECK", "streams" if seed % 2 else "")
        program, record = _on_streams(make(seed))
        assert not faults(program, record), program


def test_a_program_that_is_called_does_what_the_model_says() -> None:
    called = filter(None, (with_calls(make(seed)) for seed in itertools.count()))
    for program in itertools.islice(called, CALLED):
        assert not faults(program, run_program(program)), program


def test_a_program_whose_sources_are_played_does_what_the_model_says() -> None:
    pytest.importorskip("mcap")
    played = filter(None, (with_replay(make(seed)) for seed in itertools.count()))
    for program in itertools.islice(played, PLAYED):
        record = run_replay(program)
        assert not faults(program, record), program
        original = replace(program, plays=False)
        if is_orderly(original):
            assert not list(differences(original, run_program(original), program, record)), program


def test_a_program_on_slices_does_what_the_model_says_on_no_other_sms() -> None:
    """No frame is wrong, and no operator works on the whole device."""
    seen: set[int] = set()

    def on_slices(program: Program, library: SimulatedFrames) -> Frames:
        traffic = OnSlices(program, library)
        traffic.seen = seen
        return traffic

    for seed in range(ON_STREAMS, ON_STREAMS + ON_SLICES):
        program, record = _on_streams(make(seed), on_slices)
        assert not faults(program, record), program
    assert seen == {16, 40, 76}, "the slices of 132 SMs"


def test_a_program_with_a_plan_does_what_the_model_says_on_no_other_sms() -> None:
    """No frame is wrong."""
    seen: set[int] = set()
    planned = filter(None, (with_plan(make(seed)) for seed in itertools.count()))
    for program in itertools.islice(planned, PLANNED):
        with sim.Machine("h200"):
            library = SimulatedFrames(program.seed, makes_arrays=bool(program.seed % 3))
            traffic = Planned(program, library)
            record = run_planned(program, traffic)
        assert library.mistakes == [], f"wrong frames (number, found) in {program}"
        assert not faults(program, record), program
        seen |= traffic.seen
    assert seen == {16, 40, 76}, "the slices of 132 SMs"


@pytest.mark.parametrize("first", range(0, ON_STREAMS // 2, 12))
def test_a_program_with_a_captured_segment_does_what_the_model_says(first: int) -> None:
    replayed = 0
    for seed in range(first, first + 12):
        if (found := _captured(make(seed))) is not None:
            assert not faults(*found), found[0]
            replayed += sum(segment.replayed for segment in found[1].outcome.segments)
    assert replayed > 12


def _under_another_scheduler(program: Program) -> tuple[Program, Record]:
    kind = "greedy" if program.scheduler == "event-based" else "event-based"
    other = replace(program, scheduler=kind, workers=3, clock="virtual")
    return other, run_program(other)


def _as_replicas(program: Program) -> tuple[Program, Record]:
    """Run what each stage computes by itself in two replicas; each replica has an end, so none that has one."""
    other = deepcopy(program)
    for stage in other.stages:
        is_alone = not (
            stage.retries
            or stage.on_error
            or stage.join
            or stage.routes
            or stage.ends
            or stage.after
            or any(stage.name in each.after for each in other.stages)
        )
        has_batches = any(port.size != 1 or port.name == "back" for port in stage.ports)
        if stage.kind == "step" and stage.is_pure and is_alone and not has_batches:
            stage.workers = 2
    return other, run_program(other)


def _captured(program: Program) -> tuple[Program, Record] | None:
    """Run with the longest chain of stages captured that may be."""
    other = with_segment(program)
    if other is None:
        return None
    with sim.Machine("h200"):
        return other, run_program(other, InMemory(), captured=Captured)


def _in_parts(program: Program) -> tuple[Program, Record] | None:
    if not can_be_cut(program):
        return None
    run, record = run_in_parts(program, places_of(program), LINKS[program.seed % len(LINKS)]())
    assert not run.errors, program
    return program, record


WAYS = (_under_another_scheduler, _on_streams, _as_replicas, _captured, _in_parts)


def test_an_orderly_program_gives_the_same_messages_in_every_way() -> None:
    programs = filter(is_orderly, map(make, itertools.count()))
    ways: Counter[str] = Counter()
    for program in itertools.islice(programs, IN_EVERY_WAY):
        for stage in program.stages:
            stage.group = ""  # a subgraph stays in one part
        alone = run_program(program)
        for way in WAYS:
            if (found := way(program)) is not None:
                ways[way.__name__] += 1
                assert not list(differences(program, alone, *found)), f"{way.__name__}: {found[0]}"
    assert min(ways[way.__name__] for way in WAYS) > IN_EVERY_WAY // 5, ways


IN_PARTS = 1000 if THOROUGH else 8


def test_every_message_between_parts_is_in_one_count_whatever_drops_it_or_fails() -> None:
    programs = filter(None, (cut(make(seed)) for seed in itertools.count(100_000)))
    for program in itertools.islice(programs, IN_PARTS):
        run, record = run_in_parts(program, places_of(program), LINKS[program.seed % len(LINKS)]())
        assert {type(error) for error in run.errors.values()} <= {PlannedError, PeerAborted}, program
        assert not flow_faults(program, record), program


IN_PROCESSES = 100 if THOROUGH else 1


def test_a_program_gives_the_same_messages_in_real_processes(tmp_path: Path) -> None:
    programs = (
        program for program in map(make, itertools.count()) if is_orderly(program) and can_be_cut(program)
    )
    chosen = list(itertools.islice(programs, IN_PROCESSES))
    for program, record in zip(chosen, run_in_processes(chosen, tmp_path), strict=True):
        alone = run_program(program)
        assert not list(differences(program, alone, program, record)), program
        assert str(alone.outcome.ended_by) == record.outcome.ended_by, program


def test_a_program_does_what_the_model_says_with_replicas_in_processes() -> None:
    runs = (run_with_process_replicas(make(seed)) for seed in itertools.count())
    for program, record in itertools.islice(filter(None, runs), 2 * IN_PROCESSES):
        assert not faults(program, record), program
        original = make(program.seed)
        if is_orderly(original):
            assert not list(differences(original, run_program(original), program, record)), program


def test_a_program_waits_once_for_each_fence_that_frees_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    when_done = gpu.when_done

    def counted(*args: Any, **options: Any) -> None:
        nonlocal asked
        asked += 1
        assert asked < 1000  # one callback for each question would double them from fence to fence
        when_done(*args, **options)

    monkeypatch.setattr(gpu, "when_done", counted)
    with sim.Machine("h200"):
        library = SimulatedFrames(406914195)
        run_on_streams(406914195, library, lambda app: MultiThreadScheduler(app, worker_thread_number=3))
    assert library.mistakes == []
