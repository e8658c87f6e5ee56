"""Runs that are looked at by their outcome."""

from __future__ import annotations

from typing import Any

from headrace import Outcome
from tests.harness import App, MakeScheduler, Step, greedy


def outcome_of(compose: Any, scheduler: MakeScheduler = greedy, **settings: Any) -> Outcome:
    """Run a pipeline and return its outcome."""
    return App(compose, scheduler, **settings).run()


def join(app: Any, taken: list[Any] | None = None, name: str = "join") -> Step:
    """Return an operator that takes one message of each of two inputs."""
    kept = [] if taken is None else taken
    return Step(
        app,
        inputs=["left", "right"],
        body=lambda op, i, o: kept.append((i.receive("left"), i.receive("right"))),
        name=name,
    )


def doubling(app: Any, name: str = "twice") -> Step:
    """Return an operator that emits each message twice."""
    return Step(
        app,
        inputs=["in"],
        outputs=[("out", {"size": 2})],
        body=lambda op, i, o: [o.emit(n) for n in [i.receive()] * 2],
        name=name,
    )
