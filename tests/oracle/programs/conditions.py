"""Conditions: counts, switches, periods, events, several inputs, and those of a program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, operator, program


@program
def the_sum_of_messages_over_ports(sdk: SimpleNamespace, log: list) -> None:
    def setup(self: Any, spec: Any) -> None:
        none = (sdk.ConditionType.NONE, {})
        spec.input("left", size=4).condition(none[0])
        spec.input("right", size=4).condition(none[0])
        spec.multi_port_condition(
            kind=sdk.ConditionType.MULTI_MESSAGE_AVAILABLE,
            port_names=["left", "right"],
            sampling_mode="SumOfAll",
            min_sum=4,
        )

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = []
        for port in ("left", "right"):
            while (message := i.receive(port)) is not None:
                taken.append(message)
        log.append(len(taken))

    def compose(app: Any) -> None:
        sink = operator(sdk, [], [], take, setup=setup)(app, name="sink")
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 3), name="a"), sink, {("out", "left")})
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 5), name="b"), sink, {("out", "right")})

    application(sdk, compose).run()


@program
def a_timeout_over_a_port(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, name="greedy"))
        arguments = {"execution_frequency": "100", "sampling_mode": "SumOfAll", "min_sum": 2}
        kind = (sdk.ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT, arguments)
        sink = operator(
            sdk,
            [("in", {"size": 4}, kind)],
            [],
            lambda self, i, o, c: log.append([clock.timestamp(), i.receive("in")]),
        )
        app.add_flow(
            counter(sdk)(app, sdk.PeriodicCondition(app, 30), sdk.CountCondition(app, 7), name="a"),
            sink(app, sdk.CountCondition(app, 4), name="b"),
        )

    application(sdk, compose).run()
