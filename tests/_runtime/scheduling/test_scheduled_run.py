"""Workers of a scheduler that is written outside: who waits, and who is woken."""

from __future__ import annotations

import threading
from typing import Any

from headrace import Application, Operator, OperatorSpec, op
from tests.harness import PATIENCE, wait_until
from tests.outside.test_a_scheduler import CrewScheduler


@op
def once() -> Any:
    yield 1


class Meeting(Application):
    """A source whose compute waits until the other worker has nothing to do, and two operators behind it."""

    def __init__(self) -> None:
        super().__init__([])
        self.scheduler(CrewScheduler(self, crew=2))
        self.both, self.ran = threading.Barrier(2), []  # type: ignore[var-annotated]

    def compose(self) -> None:
        @op
        def wait(value: int) -> int:
            wait_until(
                lambda: self._headrace.engine.ready_queues[0].parked or self._headrace.engine.stopping,
                "an idle worker",
            )
            return value

        waiting = wait(self)
        self.add_flow(once(self), waiting)
        for name in ("left", "right"):
            self.add_flow(waiting, Meet(self, name=name))


class Meet(Operator):
    """Waits for another one before it receives: a receive would wake a worker, too."""

    def setup(self, spec: OperatorSpec) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        assert isinstance(self.fragment, Meeting)
        self.fragment.both.wait(PATIENCE)
        self.fragment.ran.append(op_input.receive("in"))


def test_a_run_does_not_end_while_a_worker_computes_and_wakes_the_other_for_what_is_left() -> None:
    app = Meeting()
    assert app.run().ended_by == "finished"
    assert app.ran == [1, 1], "both ran at once, on two threads"
