"""Random programs find the faults that the runtime once had."""

from __future__ import annotations

import pytest

from tests.interleavings.planting import planted
from tests.random_programs.making import make
from tests.random_programs.model import is_wrong
from tests.random_programs.plants import CAUSES, Cause
from tests.random_programs.program import Program

# A run that a fault ends may leave a call that it had begun.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.plant.what)
def test_a_planted_fault_is_found(cause: Cause) -> None:
    def shows(program: Program) -> bool:
        with planted(cause.plant):
            is_found = is_wrong(program)
        return is_found and not is_wrong(program)

    seeds = range(cause.first, cause.first + cause.seeds)
    assert any(shows(make(seed, cause.of_stage, cause.of_run)) for seed in seeds)
