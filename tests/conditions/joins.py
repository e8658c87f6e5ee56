"""An operator with two inputs, for the conditions that look at several."""

from __future__ import annotations

from typing import Any

from headrace import ConditionType, PeriodicCondition
from tests.harness import App, Step, source


def two_inputs(app: App, taken: list[Any], *conditions: Any, **multi: Any) -> Step:
    """Return an operator that notes when it took which messages of its two inputs."""

    def setup(spec: Any) -> None:
        spec.input("left", size=4)
        spec.input("right", size=4)
        if multi:
            spec.multi_port_condition(
                multi.pop("kind", ConditionType.MULTI_MESSAGE_AVAILABLE), ["left", "right"], **multi
            )

    def take(op: Step, i: Any, o: Any) -> None:
        taken.append((op.fragment.now, i.receive("left") or (), i.receive("right") or ()))

    return Step(app, *conditions, setup=setup, body=take, name="join")


def feed(app: App, join: Step, left: int, right: int, period: int = 10) -> None:
    """Send so many messages to each of the two inputs."""
    for name, count in (("left", left), ("right", right)):
        app.add_flow(
            source(app, range(count), PeriodicCondition(app, period), name=name), join, {("out", name)}
        )
