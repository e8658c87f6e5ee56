"""Runs: their order, their end, and errors in them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


@program
def an_exception_in_compute(sdk: SimpleNamespace, log: list) -> None:
    def fail(self: Any, i: Any, o: Any, c: Any) -> None:
        if self.ticks == 2:
            raise ZeroDivisionError("on purpose")
        log.append(i.receive("in"))

    def compose(app: Any) -> None:
        source = operator(
            sdk, [], ["out"], lambda self, i, o, c: o.emit(self.ticks, "out"),
            start=lambda self: log.append("start"), stop=lambda self: log.append("stop"),
        )  # fmt: skip
        app.add_flow(
            source(app, sdk.CountCondition(app, 5), name="a"), operator(sdk, ["in"], [], fail)(app, name="b")
        )

    application(sdk, compose).run()


@program
def start_and_stop_are_called_once_each(sdk: SimpleNamespace, log: list) -> None:
    def hooks(name: str) -> dict:
        return {
            "start": lambda self: log.append(f"start {name}"),
            "stop": lambda self: log.append(f"stop {name}"),
        }

    def compose(app: Any) -> None:
        a = operator(
            sdk, [], ["out"], lambda self, i, o, c: (log.append("compute a"), o.emit(1, "out")), **hooks("a")
        )(app, sdk.CountCondition(app, 1), name="a")
        b = operator(
            sdk, ["in"], [], lambda self, i, o, c: (log.append("compute b"), i.receive("in")), **hooks("b")
        )(app, name="b")
        app.add_flow(a, b)

    application(sdk, compose).run()
    log[:] = [sorted(log[:2]), log[2:4], sorted(log[4:])]


@program
def stop_execution_ends_the_run(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(self.ticks)
        if self.ticks == 3:
            self.fragment.stop_execution()

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, name="a"))

    application(sdk, compose).run()


@program
def stop_execution_of_one_operator(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(f"a{self.ticks}")
        if self.ticks == 2:
            self.stop_execution()

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, name="a"))
        app.add_operator(
            operator(sdk, [], [], lambda self, i, o, c: log.append(f"b{self.ticks}"))(
                app, sdk.CountCondition(app, 4), name="b"
            )
        )

    application(sdk, compose).run()
    log.sort()


@program
def running_twice_composes_twice(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        log.append("compose")
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        app.add_flow(a, logger(sdk, log)(app, name="b"))

    app = application(sdk, compose)
    app.run()
    app.run()


@program
def max_duration_in_virtual_time(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, max_duration_ms=1, name="greedy"))
        body = lambda self, i, o, c: log.append(self.ticks)  # noqa: E731
        app.add_operator(operator(sdk, [], [], body)(app, sdk.PeriodicCondition(app, 300_000), name="a"))

    application(sdk, compose).run()


@program
def the_order_of_a_chain(sdk: SimpleNamespace, log: list) -> None:
    """One thread takes a message through the whole chain before it begins the next."""

    def named(name: str, inputs: list, outputs: list) -> type:
        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append(f"{name}{self.ticks}")
            for port in inputs:
                i.receive(port)
            for port in outputs:
                o.emit(1, port)

        return operator(sdk, inputs, outputs, body)

    def compose(app: Any) -> None:
        d = named("d", ["in"], [])(app, name="d")
        c = named("c", ["in"], ["out"])(app, name="c")
        b = named("b", ["in"], ["out"])(app, name="b")
        a = named("a", [], ["out"])(app, sdk.CountCondition(app, 3), name="a")
        app.add_flow(a, b)
        app.add_flow(b, c)
        app.add_flow(c, d)

    application(sdk, compose).run()
