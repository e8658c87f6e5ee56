"""Flows between operators, and those that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


@program
def an_unconnected_output_is_allowed(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(
            sdk, [], ["out"], lambda self, i, o, c: (o.emit(self.ticks, "out"), log.append(self.ticks))
        )
        app.add_operator(source(app, sdk.CountCondition(app, 3), name="a"))

    application(sdk, compose).run()


@program
def an_unconnected_input(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["left", "right"], [], lambda self, i, o, c: log.append(i.receive("left")))
        app.add_flow(
            counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"), {("out", "left")}
        )

    application(sdk, compose).run()


@program
def default_ports_with_two_inputs(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["left", "right"], [])
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def an_unknown_port_in_receive(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["in"], [], lambda self, i, o, c: i.receive("nothing"))
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def an_unknown_port_in_emit(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(sdk, [], ["out"], lambda self, i, o, c: o.emit(1, "nothing"))
        app.add_flow(source(app, sdk.CountCondition(app, 2), name="a"), logger(sdk, log)(app, name="b"))

    application(sdk, compose).run()
