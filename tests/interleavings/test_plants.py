"""Every planted fault is found, and the schedule that is reported leads to it again."""

from __future__ import annotations

import pytest

from .exploring import explore, replay
from .link_scenarios import SCENARIOS
from .planting import Plant, planted
from .plants import PLANTS


@pytest.mark.parametrize(
    "plant",
    [pytest.param(plant, marks=[pytest.mark.thorough] * plant.is_dear, id=plant.what) for plant in PLANTS],
)
def test_a_planted_fault_is_found_and_replayed(plant: Plant) -> None:
    scenario = SCENARIOS[plant.scenario]
    with planted(plant):
        found = explore(scenario, plant.preemptions, runs=400, order=plant.order)
        assert found.fault is not None, f"nothing found in {found.runs} runs"
        assert found.fault.kind in plant.kinds, found.fault.report()
        again = replay(found.fault.schedule, SCENARIOS)
    assert again.fault is not None
    assert again.fault.report() == found.fault.report()


def test_the_source_is_as_it_was_after_a_plant() -> None:
    from headrace._runtime.scheduling.engine import Engine

    before = Engine.announce.__code__
    with planted(PLANTS[0]):
        assert Engine.announce.__code__ is not before
    assert Engine.announce.__code__ is before


def test_a_plant_whose_text_is_gone_says_so() -> None:
    plant = Plant("gone", "headrace._runtime.scheduling.engine", "no such text", "", "chain-1", ())
    text = "'gone' is planted in a text that headrace._runtime.scheduling.engine has 0 times"
    with pytest.raises(LookupError, match=text), planted(plant):
        pass
