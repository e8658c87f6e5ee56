"""Random programs do what the model says, in every mode; a program that does not is shown as small as it gets."""

from __future__ import annotations

import pytest

from headrace.gpu import sim
from headrace.tensor import register_library
from tests.harness.libraries import fresh_registry
from tests.limits import THOROUGH
from tests.random_programs.frames import ArrayLibrary, Frames, SimulatedFrames
from tests.random_programs.making import make
from tests.random_programs.model import differences, faults, is_wrong
from tests.random_programs.program import Program, is_orderly
from tests.random_programs.running import run_program
from tests.random_programs.shrinking import shrink

SEEDS = 5000 if THOROUGH else 200
IN_A_TEST = 50


@pytest.mark.parametrize("first", range(0, SEEDS, IN_A_TEST))
def test_a_program_does_what_the_model_says(first: int) -> None:
    for seed in range(first, first + IN_A_TEST):
        program = make(seed)
        if is_wrong(program):
            smallest = shrink(program, is_wrong)
            assert not faults(smallest, run_program(smallest)), f"seed {seed}: {smallest}"
            pytest.fail(f"seed {seed} goes wrong now and then: {program}")


ON_STREAMS = 1000 if THOROUGH else 100


@pytest.mark.parametrize("first", range(0, ON_STREAMS, 25))
def test_a_program_on_streams_does_the_same_and_no_frame_is_wrong(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(first, first + 25):
        # Every other program runs under the checker, which has nothing to say: its warnings are errors here.
        monkeypatch.setenv("HEADRACE_CHECK", "streams" if seed % 2 else "")
        fresh_registry(monkeypatch)
        if seed % 3:
            register_library(ArrayLibrary())
        program = make(seed)
        program.clock = "device"
        with sim.Machine("h200"):
            library = SimulatedFrames(seed, makes_arrays=bool(seed % 3))
            found = faults(program, run_program(program, Frames(program, library)))
        assert not found, f"{program}: {found}"
        assert library.mistakes == [], f"wrong frames (number, found) in {program}"
        assert library.looked_at == library.asked, f"some work was not done when run() returned: {program}"


def _orderly(count: int) -> list[Program]:
    programs = (make(seed) for seed in range(100_000))
    return [program for program, _ in zip(filter(is_orderly, programs), range(count), strict=False)]


@pytest.mark.parametrize("scheduler", ["greedy", "event-based"])
def test_an_orderly_program_gives_the_same_messages_under_every_scheduler(scheduler: str) -> None:
    for program in _orderly(200 if THOROUGH else 15):
        other = make(program.seed)
        other.scheduler, other.workers, other.clock = scheduler, 3, "virtual"
        found = list(differences(program, run_program(program), other, run_program(other)))
        assert not found, f"{program}: {found}"


def test_an_orderly_program_gives_the_same_messages_with_replicas() -> None:
    count = 0
    for program in _orderly(300 if THOROUGH else 30):
        other = make(program.seed)
        for stage in other.stages:
            is_plain = not (stage.retries or stage.on_error or stage.join or stage.after or stage.routes)
            is_plain = is_plain and not stage.ends  # each replica ends
            has_batches = any(port.size != 1 or port.name == "back" for port in stage.ports)
            if stage.kind == "step" and stage.is_pure and is_plain and not has_batches:
                stage.workers, count = 2, count + 1
        found = list(differences(program, run_program(program), other, run_program(other)))
        assert not found, f"{other}: {found}"
    assert count > 20
