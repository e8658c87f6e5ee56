"""A running application with a dashboard, for the tests of its server and of its page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from headrace import PeriodicCondition
from headrace.core import IOSpec, Operator, OperatorSpec
from headrace.observe import Dashboard
from headrace.resources import RealtimeClock
from headrace.schedulers import EventBasedScheduler
from tests.harness import App, Step

HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_LINE = "</script><script>alert(2)</script><b>bold</b>"


class Filter(Operator):
    """Has a live parameter of each kind."""

    gain: float
    taps: int
    is_on: bool
    mode: str
    label: str

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("gain", 1.0, live=True, minimum=0.0, maximum=8.0, headline="How loud")
        spec.param("taps", 3, live=True, check=lambda value: value % 2 == 1)
        spec.param("is_on", True, live=True)
        spec.param("mode", "soft", live=True, choices=["soft", "hard"])
        spec.param("label", HOSTILE, live=True)
        spec.param("table", [1, 2], live=True)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in") * self.gain, "out")


class Watched:
    """A source, a filter and two sinks, one of which drops; the sink's name and the log hold markup."""

    def __init__(self, period: str = "5ms", **options: Any) -> None:
        self.taken: list[float] = []
        self.filter: Any = None
        self.app = App(lambda app: self._compose(app, period), self._scheduler)
        self.goal = self.app.expect(f"source->{HOSTILE}", p99="1ns")
        self.app.expect(f"slow->{HOSTILE}", p99="1s")  # no message takes this way
        urls: SimpleQueue[str] = SimpleQueue()
        self.dashboard = Dashboard(
            self.app, **{"announce": urls.put, "interval": "50ms", "token": "the-token", **options}
        )
        self.future: Future[Any] = self.app.run_async()
        self.future.add_done_callback(lambda done: urls.put(""))  # of a run that could not begin
        urls.get()

    def _scheduler(self, app: Any, **settings: Any) -> Any:
        return EventBasedScheduler(app, worker_thread_number=2, clock=RealtimeClock(app))

    def _compose(self, app: Any, period: str) -> None:
        def emit(step: Any, op_input: Any, op_output: Any) -> None:
            if step.ticks % 20 == 1:
                logging.getLogger("test.log").warning(HOSTILE_LINE)
            op_output.emit(1.0, "out")

        source = Step(app, PeriodicCondition(app, period), outputs=["out"], body=emit, name="source")
        self.filter = Filter(app, name="filter")
        take = Step(
            app,
            inputs=["in"],
            body=lambda step, op_input, op_output: self.taken.append(op_input.receive("in")),
            name=HOSTILE,
        )
        held = Step(
            app,
            PeriodicCondition(app, "1h"),
            inputs=[("in", {"policy": IOSpec.QueuePolicy.POP})],
            body=lambda step, op_input, op_output: op_input.receive("in"),
            name="slow",
        )
        app.add_flow(source, self.filter, take)
        app.add_flow(self.filter, held)

    @property
    def server(self) -> Any:
        return self.dashboard._page

    def end(self) -> Any:
        self.app.stop_execution()
        return self.future.result()


@contextmanager
def watched(**options: Any) -> Iterator[Watched]:
    """Run an application with a dashboard, and end it; no thread and no handler is left."""
    before, handlers = set(threading.enumerate()), list(logging.getLogger().handlers)
    one = Watched(**options)
    try:
        yield one
    finally:
        one.end()
    assert not [t.name for t in set(threading.enumerate()) - before if "headrace" in t.name]
    assert logging.getLogger().handlers == handlers
