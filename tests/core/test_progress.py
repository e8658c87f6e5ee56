"""What a run has done so far, read from any thread."""

from __future__ import annotations

import pickle
from typing import Any

from headrace.core import IOSpec, Progress
from tests.harness import App, MakeScheduler, Step, run, sink, source, through


def test_a_run_can_be_read_while_it_is_in_progress(scheduler: MakeScheduler) -> None:
    seen: list[Progress] = []

    def look(self: Step, op_input: Any, op_output: Any) -> None:
        op_input.receive("in")
        seen.append(self.fragment.progress())

    def compose(app: App) -> None:
        middle = through(app, name="middle")
        app.add_flow(source(app, [1, 2, 3]), middle, Step(app, inputs=["in"], body=look, name="end"))

    app = run(compose, scheduler)
    assert [progress.computes["end"] for progress in seen] == [0, 1, 2]
    assert all(progress.computes["middle"] > progress.computes["end"] for progress in seen)
    assert all(progress.is_running for progress in seen)
    assert seen[0].sources == ("source",)
    after = app.progress()
    assert after.computes == {"source": 3, "middle": 3, "end": 3}
    assert not after.is_running
    assert pickle.loads(pickle.dumps(after)) == after


def test_waiting_and_dropped_messages_are_counted_by_port() -> None:
    seen: list[Progress] = []

    def burst(self: Step, op_input: Any, op_output: Any) -> None:
        for number in range(5):
            op_output.emit(number, "out")
        seen.append(self.fragment.progress())

    def compose(app: App) -> None:
        from headrace.conditions import CountCondition

        app.add_flow(
            Step(app, CountCondition(app, 1), outputs=["out"], body=burst, name="burst"),
            sink(app, [], name="slow"),
            size=2,
            policy=IOSpec.QueuePolicy.POP,
        )

    run(compose)
    assert seen[0].waiting == {"slow.in": 2}
    assert seen[0].dropped == {"slow.in": 3}
