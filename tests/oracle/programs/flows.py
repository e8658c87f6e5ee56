"""Flows between operators, and those that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


@program
def a_chain_of_three(sdk: SimpleNamespace, log: list) -> None:
    middle = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in") * 10, "out"))

    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 4), name="a")
        b = middle(app, name="b")
        c = logger(sdk, log)(app, name="c")
        app.add_flow(a, b)
        app.add_flow(b, c, {("out", "in")})

    application(sdk, compose).run()


@program
def one_output_to_many(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        for n in range(3):
            sink = operator(sdk, ["in"], [], lambda self, i, o, c, n=n: log.append([n, i.receive("in")]))
            app.add_flow(a, sink(app, name=f"b{n}"))

    application(sdk, compose).run()
    log.sort()


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
def an_unknown_port_in_a_port_map(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        app.add_flow(a, logger(sdk, log)(app, name="b"), {("out", "inn")})

    application(sdk, compose).run()


@program
def default_ports_with_two_inputs(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["left", "right"], [])
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def two_operators_with_one_name(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), logger(sdk, log)(app, name="a"))

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


@program
def a_cycle_with_a_seed_message(sdk: SimpleNamespace, log: list) -> None:
    def turn(self: Any, i: Any, o: Any, c: Any) -> None:
        value = i.receive("in") or 0
        log.append(value)
        o.emit(value + 1, "out")

    def compose(app: Any) -> None:
        none = (sdk.ConditionType.NONE, {})
        a = operator(sdk, [("in", {}, none)], ["out"], turn)(app, sdk.CountCondition(app, 4), name="a")
        b = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))(
            app, name="b"
        )
        app.add_flow(a, b)
        app.add_flow(b, a)

    application(sdk, compose).run()


@program
def two_connections_between_the_same_operators(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = operator(
            sdk, [], ["x", "y"], lambda self, i, o, c: (o.emit(self.ticks, "x"), o.emit(-self.ticks, "y"))
        )(app, sdk.CountCondition(app, 2), name="a")
        b = operator(sdk, ["p", "q"], [], lambda self, i, o, c: log.append([i.receive("p"), i.receive("q")]))(
            app, name="b"
        )
        app.add_flow(a, b, {("x", "p"), ("y", "q")})

    application(sdk, compose).run()
