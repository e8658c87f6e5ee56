"""Random graphs whose stages are in several parts."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from headrace import Application, Fragment
from tests.harness import MakeScheduler
from tests.random_programs.graphs import Plan, make_stage


class Group(Fragment):
    """The stages of one part."""

    def __init__(self, application: PlanApp, name: str, numbers: list[int], on_loss: str) -> None:
        super().__init__(application, name, on_loss=on_loss)
        self._numbers = numbers

    def compose(self) -> None:
        plan = self._headrace.application.plan
        stages = {number: make_stage(self, number, plan) for number in self._numbers}
        self._headrace.application.stages.update(stages)
        for stage in stages.values():
            self.add_operator(stage)
        for source, target, port in flows_of(plan):
            if source in stages and target in stages:
                size = places_at(plan, target, port)
                self.add_flow(stages[source], stages[target], {("out", port)}, size=size)


class PlanApp(Application):
    """A plan whose stages are in parts: `places` has the number of the part of each stage.

    `policies` has what becomes of the run if a part is lost.
    """

    def __init__(
        self, plan: Plan, places: list[int], scheduler: MakeScheduler, policies: Sequence[str] = ()
    ) -> None:
        super().__init__([])
        self.plan, self.places, self.stages = plan, places, {}
        self._policies = policies or ("stop",) * (1 + max(places))
        self._make_scheduler = scheduler

    def compose(self) -> None:
        self.scheduler(self._make_scheduler(self))
        parts = {
            part: Group(
                self,
                f"p{part}",
                [n for n, place in enumerate(self.places) if place == part],
                self._policies[part],
            )
            for part in sorted(set(self.places))
        }
        for part in parts.values():
            self.add_fragment(part)
        for source, target, port in flows_of(self.plan):
            ends = parts[self.places[source]], parts[self.places[target]]
            if ends[0] is not ends[1]:
                size = places_at(self.plan, target, port)
                self.add_flow(*ends, {(f"s{source}.out", f"s{target}.{port}")}, size=size)


def flows_of(plan: Plan) -> list[tuple[int, int, str]]:
    """Return the flows of a plan: the numbers of the stages, and the input."""
    return [
        (source, target, f"in{n}")
        for target, stage in enumerate(plan.stages)
        for n, port in enumerate(stage.inputs)
        for source in port.sources
    ]


def places_at(plan: Plan, target: int, port: str) -> int | None:
    """Return the places that the flows into an input say."""
    return plan.stages[target].inputs[int(port[2:])].places


def places_of(plan: Plan, random: Random, parts: int) -> list[int]:
    """Return a random part for each stage."""
    return [random.randrange(parts) for _ in plan.stages]


def received(plan: Plan, stages: dict[int, Any]) -> dict[str, Any]:
    """Return what each stage received, by port; those of several stages in one queue come in any order."""
    return {
        f"{stage.name}.{port}": in_order(plan, stage.number, port, kept)
        for stage in stages.values()
        for port, kept in stage.received.items()
    }


def in_order(plan: Plan, target: int, port: str, kept: list[Any]) -> Any:
    """Return what a port has received, as it must be in every run.

    If several stages send to one queue, who comes first is a matter of time. How many come is not.
    """
    declared = plan.stages[target].inputs[int(port[2:])]
    if declared.size == -1 or len(declared.sources) < 2:
        return kept
    by_source = {source: [n for origin, n in kept if origin == source] for source in declared.sources}
    assert all(numbers == list(range(len(numbers))) for numbers in by_source.values()), (port, by_source)
    return len(kept)
