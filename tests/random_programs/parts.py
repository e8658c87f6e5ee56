"""A random program in parts, which are processes in a run; here they run side by side in one, over links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from headrace import Fragment
from tests.parts.running import MemoryLinks, PartsRun, UnixLinks, run_parts
from tests.random_programs.building import RandomApp, Record
from tests.random_programs.program import Program

PARTS = 3
LINKS: list[Callable[[], Any]] = [MemoryLinks, lambda: MemoryLinks(memory=1), UnixLinks]


class Part(Fragment):
    """The stages of one part."""

    def __init__(self, app: PartsApp, name: str, **settings: Any) -> None:
        super().__init__(app, name, **settings)
        self._app = app

    def compose(self) -> None:
        app = self._app
        inside = {stage.name for stage in app.program.stages if app.part_of(stage.name) == self.name}
        for stage in app.program.stages:
            if stage.name in inside:
                app.made[stage.name] = app.make(stage, self)
                self.add_operator(app.made[stage.name])
        for source, stage, port in app.program.flows():
            if {source.partition(".")[0], stage.name} <= inside:
                app.connect(source, stage, port, self.add_flow)


class PartsApp(RandomApp):
    """The application of a program in parts; `places` has the number of the part of each stage."""

    part: ClassVar[type[Part]] = Part

    def __init__(
        self, program: Program, places: dict[str, int], scheduler: Any = None, **settings: Any
    ) -> None:
        super().__init__(program, scheduler=scheduler)
        self.places, self._part_settings = places, settings

    def part_of(self, name: str) -> str:
        """Return the name of the part of a stage."""
        return f"p{self.places[name.partition('.')[0]]}"

    def _connect(self) -> None:
        parts = {name: self.part(self, name, **self._part_settings) for name in parts_of(self.places)}
        for part in parts.values():
            self.add_fragment(part)
        for source, stage, port in self.program.flows():
            ends = self.part_of(source), self.part_of(stage.name)
            if ends[0] != ends[1]:
                begin = f"{source.partition('.')[0]}.{self.output_name(source)}"
                pair = {(begin, f"{stage.name}.{self.port_name(stage, port)}")}
                self.add_flow(parts[ends[0]], parts[ends[1]], pair, size=port.places)


def parts_of(places: dict[str, int]) -> list[str]:
    """Return the names of the parts."""
    return [f"p{place}" for place in sorted(set(places.values()))]


def can_be_cut(program: Program) -> bool:
    """Return whether a program can be put into parts, and does there what it does in one process.

    Flows without data, chosen flows, segments and subgraphs stay in one part. The queues of one input are in the
    order in which their flows were added, and those between parts are added last.
    """
    return not (
        program.block
        or program.stop
        or program.changes
        or program.max_messages
        or any(port.size == 0 for stage in program.stages for port in stage.ports)
        or any(stage.after or stage.routes or stage.group or stage.captured for stage in program.stages)
    )


def cut(program: Program) -> Program | None:
    """Return a program that runs in parts, in real time, or None if it cannot; nobody watches or sets it there."""
    if not can_be_cut(program):
        return None
    return replace(program, clock="real", track=False, records=False, pause=None, settings=[])


def places_of(program: Program, parts: int = PARTS) -> dict[str, int]:
    """Return a random part for each stage."""
    random = Random(f"parts {program.seed}")
    return {stage.name: random.randrange(parts) for stage in program.stages}


def run_in_parts(program: Program, places: dict[str, int], links: Any) -> tuple[PartsRun, Record]:
    """Run a program in parts, and return what was seen in all of them."""
    run = run_parts(lambda: PartsApp(program, places), parts_of(places), links)
    record = Record()
    for part, cut in run.cuts.items():
        app: Any = cut.application
        record.computes.update(
            {name: found for name, found in app.record.computes.items() if app.part_of(name) == part}
        )
    record.outcome = SimpleNamespace(
        ended_by="failed" if run.errors else "finished",
        operators={},
        dropped=by_stage(run.by_port("dropped")),
        undelivered=by_stage(run.by_port("undelivered")),
    )
    return run, record


def by_stage(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of ports with the names that they have in one part; those of replicas together."""
    found: Counter[str] = Counter()
    for name, count in counts.items():
        found[re.sub(r"^p\d+\.|\[\d+\]", "", name)] += count
    return dict(found)
