"""Runs that are looked at by their outcome."""

from __future__ import annotations

from typing import Any

from penstock import Outcome
from tests.harness import SCHEDULERS, App, MakeScheduler, Step


def outcome_of(compose: Any, scheduler: MakeScheduler = SCHEDULERS[0], **settings: Any) -> Outcome:
    return App(compose, scheduler, **settings).run()


def join(app: Any, taken: list[Any] | None = None, name: str = "join") -> Step:
    kept = [] if taken is None else taken
    return Step(
        app,
        inputs=["left", "right"],
        body=lambda op, i, o: kept.append((i.receive("left"), i.receive("right"))),
        name=name,
    )
