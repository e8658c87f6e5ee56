"""Captured segments in a run that is watched from outside: progress, pauses, steps and stops."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core import EndedBy, Progress
from tests.harness import PATIENCE, App
from tests.harness.segments import chain

pytestmark = pytest.mark.usefixtures("machine")


def calling(app: Any, frames: int, call: Any, **options: Any) -> None:
    """Compose a chain whose sink calls a function with the number of each frame, before it receives it."""
    chain(app, frames, **options)
    original = app.sink.compute

    def compute(op_input: Any, op_output: Any, context: Any) -> None:
        call(len(app.sink.seen))
        original(op_input, op_output, context)

    app.sink.compute = compute


def test_progress_counts_replayed_frames_as_computes() -> None:
    seen: list[Progress] = []
    app = App(lambda app: calling(app, 20, lambda number: seen.append(app.progress())))
    app.run()
    for number, progress in enumerate(seen, 1):
        assert [progress.computes[name] for name in ("source", "one", "two", "three")] == [number] * 4
    assert seen[-1].waiting == {"sink.in": 1}
    assert app.progress().computes == dict.fromkeys(("source", "one", "two", "three", "sink"), 20)


def test_a_step_of_an_operator_steps_its_segment() -> None:
    app = App(lambda app: calling(app, 20, pause))
    steps: list[list[int]] = []

    def pause(number: int) -> None:
        if number == 10:
            app.pause()

    def counts() -> list[int]:
        return [app.progress().computes[name] for name in ("source", "one", "two", "three", "sink")]

    future = app.run_async()
    assert app.wait_until_paused(10)
    before = counts()
    assert before == [11, 11, 11, 11, 11]
    for name in ("source", "two", "sink"):
        app.step(op_name=name)
        assert app.wait_until_paused(10)
        steps.append(counts())
    app.resume()
    outcome = future.result(timeout=PATIENCE)
    assert steps == [[12, 11, 11, 11, 11], [12, 12, 12, 12, 11], [12, 12, 12, 12, 12]]
    assert outcome.segments[0].state == "captured"
    assert len(app.sink.seen) == 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_a_stop_of_an_operator_stops_its_segment(name: str) -> None:
    app = App(lambda app: calling(app, 20, lambda number: app.stop_execution(name) if number == 9 else None))
    outcome = app.run()
    assert app.sink.seen == list(range(3, 13))  # type: ignore[attr-defined]
    computes = {key: each.computes for key, each in outcome.operators.items()}
    assert [computes[key] for key in ("one", "two", "three", "sink")] == [10] * 4
    assert outcome.ended_by is EndedBy.FINISHED
    assert outcome.segments[0].replayed == 9


def test_a_stop_of_the_run_ends_a_segment_in_every_state() -> None:
    for at, state in ((0, "warming up"), (1, "captured"), (8, "captured")):
        app = App(
            lambda app, at=at: calling(app, 20, lambda number: app.stop_execution() if number == at else None)
        )
        outcome = app.run()
        assert outcome.ended_by is EndedBy.STOPPED
        assert outcome.segments[0].state == state
        assert len(app.sink.seen) == at + 1  # type: ignore[attr-defined]
