"""PacedSource: frames at their times, also after a pause."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from headrace.operators.paced_source import PacedSource
from tests.harness import App, MakeScheduler, sink

MS = 1_000_000


class Numbers(PacedSource[int]):
    """Emits numbers, 10 ms apart, and pauses the run after the third."""

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def frames(self) -> Generator[int, None, None]:
        yield from range(6)

    def time_of(self, number: int, frame: int) -> int:
        return 10 * MS * number

    def emit_frame(self, frame: int, op_output: Any, context: Any) -> None:
        op_output.emit((frame, context.timestamp // MS), "out")
        if frame == 2:
            self.fragment.pause()


def test_frames_go_on_after_a_pause_as_if_no_time_had_passed(scheduler: MakeScheduler) -> None:
    taken: list[tuple[int, int]] = []

    def compose(app: Any) -> None:
        app.source = Numbers(app, name="source")
        app.add_flow(app.source, sink(app, taken))

    app: Any = App(compose, scheduler)
    future = app.run_async()
    app.wait_until_paused()
    app.scheduler().clock.sleep_until(1_000 * MS)
    app.resume()
    future.result()
    assert taken == [(0, 0), (1, 10), (2, 20), (3, 1_000), (4, 1_010), (5, 1_020)]
    assert app.source.frames_late == 0
