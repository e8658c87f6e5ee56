"""Small operators and applications for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.conditions import CountCondition
from penstock.core import Application, Operator, OperatorSpec, Scheduler
from penstock.resources import ManualClock
from penstock.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler

Make = Callable[..., Scheduler]


def greedy(app: Application, **kwargs: Any) -> Scheduler:
    return GreedyScheduler(app, clock=kwargs.pop("clock", None) or ManualClock(app), **kwargs)


def multi_thread(app: Application, **kwargs: Any) -> Scheduler:
    clock = kwargs.pop("clock", None) or ManualClock(app)
    return MultiThreadScheduler(app, clock=clock, worker_thread_number=3, **kwargs)


def event_based(app: Application, **kwargs: Any) -> Scheduler:
    clock = kwargs.pop("clock", None) or ManualClock(app)
    return EventBasedScheduler(app, clock=clock, worker_thread_number=2, **kwargs)


SCHEDULERS: list[Make] = [greedy, multi_thread, event_based]


class App(Application):
    """An application whose compose is a function, in virtual time unless it sets a scheduler."""

    def __init__(self, compose: Callable[[App], None], make: Make = greedy, **settings: Any) -> None:
        super().__init__([])
        self._compose = compose
        self._make = make
        self._settings = settings

    def compose(self) -> None:
        self.scheduler(self._make(self, **self._settings))
        self._compose(self)


def run(compose: Callable[[App], None], make: Make = greedy, **settings: Any) -> App:
    app = App(compose, make, **settings)
    app.run()
    return app


class Body(Operator):
    """An operator with the ports and the compute it is given; `ticks` counts its computes."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        inputs: Iterable[Any] = (),
        outputs: Iterable[Any] = (),
        body: Callable[..., Any] | None = None,
        setup: Callable[[OperatorSpec], None] | None = None,
        **kwargs: Any,
    ) -> None:
        self._inputs, self._outputs, self._body, self._setup = inputs, outputs, body, setup
        self.ticks = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec) -> None:
        for port in self._inputs:
            spec.input(port) if isinstance(port, str) else spec.input(port[0], **port[1])
        for port in self._outputs:
            spec.output(port) if isinstance(port, str) else spec.output(port[0], **port[1])
        if self._setup is not None:
            self._setup(spec)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.ticks += 1
        if self._body is not None:
            self._body(self, op_input, op_output)


def source(app: Any, values: Iterable[Any], *args: Any, name: str = "source", **kwargs: Any) -> Body:
    """An operator that emits the values one by one and then never runs again."""
    values = list(values)
    return Body(
        app,
        CountCondition(app, len(values)),
        *args,
        outputs=["out"],
        body=lambda self, i, o: o.emit(values[self.ticks - 1], "out"),
        name=name,
        **kwargs,
    )


def sink(app: Any, taken: list[Any], *args: Any, name: str = "sink", **kwargs: Any) -> Body:
    """An operator that keeps what it receives."""
    return Body(
        app, *args, inputs=["in"], body=lambda self, i, o: taken.append(i.receive("in")), name=name, **kwargs
    )


def through(app: Any, *args: Any, name: str, change: Callable[[Any], Any] = lambda value: value) -> Body:
    """An operator that passes on what it receives."""
    return Body(
        app,
        *args,
        inputs=["in"],
        outputs=["out"],
        body=lambda self, i, o: o.emit(change(i.receive("in")), "out"),
        name=name,
    )
