"""Random graphs, cut into parts at random flows: the same messages, ends and outcomes as in one process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from headrace.core.errors import PeerAborted
from tests.harness import event_based, greedy, multi_thread
from tests.parts.plans import PlanApp, flows_of, places_of, received
from tests.parts.running import MemoryLinks, PartsRun, UnixLinks, run_parts
from tests.random_programs.graphs import Plan, Stage, looped, orderly, unruly

LINKS: dict[str, Callable[[], Any]] = {
    "deques": MemoryLinks,
    "little memory": lambda: MemoryLinks(memory=1),
    "sockets": UnixLinks,
}
# Each program runs under the next one of these.
SCHEDULERS = [greedy, multi_thread, *(partial(event_based, workers=workers) for workers in (2, 3, 5))]
PROGRAMS = 6


def run_cut(plan: Plan, places: list[int], scheduler: Any, links: Any) -> tuple[PartsRun, dict[int, Stage]]:
    """Run the parts of a plan, and return the stages as they ran, each in its part."""
    parts = [f"p{place}" for place in sorted(set(places))]
    result = run_parts(lambda: PlanApp(plan, places, scheduler), parts, links)
    stages = {n: result.cuts[f"p{place}"].application.stages[n] for n, place in enumerate(places)}
    for stage in stages.values():
        for thread in stage.outside:
            thread.join()
    return result, stages


@pytest.mark.parametrize("links", LINKS)
def test_a_cut_program_does_what_the_whole_program_does(links: str) -> None:
    for seed in range(PROGRAMS):
        random = Random(f"{links} {seed}")
        plan = (orderly if seed % 2 else looped)(random)
        places = places_of(plan, random, 3)
        whole = PlanApp(plan, places, greedy)
        outcome = whole.run()
        result, stages = run_cut(plan, places, SCHEDULERS[seed % 5], LINKS[links]())
        assert not result.errors, seed
        assert received(plan, stages) == received(plan, whole.stages), seed
        assert result.by_port("undelivered") == outcome.undelivered, seed
        assert result.by_port("dropped") == outcome.dropped, seed
        starved = {each.operator for part in result.outcomes.values() for each in part.starved}
        # What waits in a circle through several parts starves in one process alone.
        assert starved <= {each.operator for each in outcome.starved}, seed


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("has_faults", [False, True], ids=["to the end", "with an error"])
def test_every_message_between_parts_is_counted_once(has_faults: bool, links: str) -> None:
    for seed in range(PROGRAMS):
        random = Random(f"{links} {seed}")
        plan = unruly(random, has_faults)
        for stage in plan.stages:
            stage.asks_for_room = False  # in a queue that drops, which is refused
        places = places_of(plan, random, 3)
        result, stages = run_cut(plan, places, SCHEDULERS[seed % 5], LINKS[links]())
        kinds = {type(error) for error in result.errors.values()}
        assert kinds <= ({ZeroDivisionError, PeerAborted} if has_faults else set()), seed
        assert not kinds or ZeroDivisionError in kinds
        dropped, undelivered = result.by_port("dropped"), result.by_port("undelivered")
        for target, port in {(target, port) for _, target, port in flows_of(plan)}:
            sources = [source for source, *to in flows_of(plan) if to == [target, port]]
            kept, name = stages[target].received[port], f"p{places[target]}.s{target}.{port}"
            for source in sources:
                numbers = [number for origin, number in kept if origin == source]
                assert numbers == sorted(set(numbers)), (seed, name)
            sent = sum(len(stages[source].emitted) for source in sources)
            assert sent == len(kept) + dropped.get(name, 0) + undelivered.get(name, 0), (seed, name)
