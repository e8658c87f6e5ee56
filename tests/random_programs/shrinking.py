"""Makes a program that goes wrong smaller, as long as it goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import fields

from tests.random_programs.program import Program, Stage


def shrink(program: Program, verdict: Callable[[Program], object], tries: int = 1) -> Program:
    """Return a program that goes wrong in a like way in one of several tries, of which nothing can be left out."""
    kind = type(verdict(program))  # a program that is refused says nothing of one whose messages are lost
    while True:
        for smaller in _smaller(program):
            if any((found := verdict(smaller)) and type(found) is kind for _ in range(tries)):
                program = smaller
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    for stage in program.stages if len(program.stages) > 1 else ():
        yield _without(program, stage.name)
    for n in range(len(program.changes)):
        smaller = deepcopy(program)
        del smaller.changes[n]
        yield smaller
    plain = Program(program.seed)
    for each in fields(Program):
        is_own = each.name not in ("seed", "stages", "changes")
        if is_own and getattr(program, each.name) != getattr(plain, each.name):
            smaller = deepcopy(program)
            setattr(smaller, each.name, getattr(plain, each.name))
            yield smaller
    for n, stage in enumerate(program.stages):
        plain_stage = Stage(stage.name)
        for each in fields(Stage):
            if each.name in ("name", "kind", "ports") or (each.name == "count" and stage.is_source):
                continue
            if getattr(stage, each.name) != getattr(plain_stage, each.name):
                smaller = deepcopy(program)
                setattr(smaller.stages[n], each.name, getattr(plain_stage, each.name))
                yield smaller
        if stage.kind in ("yields", "async"):
            smaller = deepcopy(program)
            smaller.stages[n].kind = "source" if stage.is_source else "step"
            yield smaller
        if stage.count > 1:
            smaller = deepcopy(program)
            smaller.stages[n].count = stage.count // 2
            yield smaller
        for place in range(len(stage.ports)):
            if len(stage.ports) > 1:
                smaller = deepcopy(program)
                del smaller.stages[n].ports[place]
                yield smaller


def _without(program: Program, name: str) -> Program:
    """Return a program without a stage and the flows from it."""
    smaller = deepcopy(program)
    smaller.stages = [stage for stage in smaller.stages if stage.name != name]
    for stage in smaller.stages:
        stage.after = [each for each in stage.after if each != name]
        had = bool(stage.ports)
        for port in stage.ports:
            port.sources = [each for each in port.sources if each.partition(".")[0] != name]
        stage.ports = [port for port in stage.ports if port.sources]
        if had and not stage.ports and stage.kind in ("step", "source"):
            stage.kind, stage.count = "source", stage.count or 5
    smaller.changes = [change for change in smaller.changes if name not in (change.at, change.stage)]
    if smaller.stop is not None and smaller.stop[0] == name:
        smaller.stop = None
    return smaller
