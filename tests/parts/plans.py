"""Random graphs whose stages are in several parts."""

from __future__ import annotations

from random import Random
from typing import Any

from headrace import Application, Fragment
from tests.harness import MakeScheduler
from tests.random_programs.graphs import Plan, Stage


class Group(Fragment):
    """The stages of one part."""

    def __init__(self, application: PlanApp, name: str, numbers: list[int]) -> None:
        super().__init__(application, name)
        self._numbers = numbers

    def compose(self) -> None:
        plan = self._application.plan
        stages = {number: Stage(self, number, plan) for number in self._numbers}
        self._application.stages.update(stages)
        for stage in stages.values():
            self.add_operator(stage)
        for source, target, port in flows_of(plan):
            if source in stages and target in stages:
                self.add_flow(stages[source], stages[target], {("out", port)})


class PlanApp(Application):
    """A plan whose stages are in parts: `places` has the number of the part of each stage."""

    def __init__(self, plan: Plan, places: list[int], scheduler: MakeScheduler) -> None:
        super().__init__([])
        self.plan, self.places, self.stages = plan, places, {}
        self._make_scheduler = scheduler

    def compose(self) -> None:
        self.scheduler(self._make_scheduler(self))
        parts = {
            part: Group(self, f"p{part}", [n for n, place in enumerate(self.places) if place == part])
            for part in sorted(set(self.places))
        }
        for part in parts.values():
            self.add_fragment(part)
        for source, target, port in flows_of(self.plan):
            ends = parts[self.places[source]], parts[self.places[target]]
            if ends[0] is not ends[1]:
                self.add_flow(*ends, {(f"s{source}.out", f"s{target}.{port}")})


def flows_of(plan: Plan) -> list[tuple[int, int, str]]:
    """Return the flows of a plan: the numbers of the stages, and the input."""
    return [
        (source, target, f"in{n}")
        for target, stage in enumerate(plan.stages)
        for n, port in enumerate(stage.inputs)
        for source in port.sources
    ]


def places_of(plan: Plan, random: Random, parts: int) -> list[int]:
    """Return a random part for each stage."""
    return [random.randrange(parts) for _ in plan.stages]


def received(stages: dict[int, Any]) -> dict[str, Any]:
    """Return what each stage received, by port."""
    return {
        f"{stage.name}.{port}": kept for stage in stages.values() for port, kept in stage.received.items()
    }
