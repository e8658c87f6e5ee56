"""Waiting for the start of a run."""

from __future__ import annotations

from threading import Event
from typing import Any

from headrace import Application, Operator
from tests.harness import PATIENCE


class Gated(Operator):
    """Waits in `start` for an event."""

    def start(self) -> None:
        self.fragment.may_start.wait(PATIENCE)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.fragment.has_computed.set()


class Program(Application):
    def __init__(self) -> None:
        super().__init__()
        self.may_start, self.has_computed = Event(), Event()

    def compose(self) -> None:
        self.add_operator(Gated(self, name="gated"))


def test_it_is_over_when_every_operator_has_started() -> None:
    app = Program()
    future = app.run_async()
    assert not app.wait_until_started(timeout=0), "its operator waits"
    app.may_start.set()
    assert app.wait_until_started()
    assert app.has_computed.wait(PATIENCE)
    app.stop_execution()
    future.result()


def test_a_run_that_ends_first_has_not_started() -> None:
    app = Program()
    future = app.run_async()
    app.stop_execution()
    app.may_start.set()
    future.result()
    assert not app.wait_until_started()
