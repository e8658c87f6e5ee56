"""A function that yields reads its message in every step, and the message lives until the last of them is done."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition, gpu, op
from headrace.resources import CudaStreamPool
from tests.harness import MS, MakeScheduler, Producer, read_frame, run

STEPS = 20  # more than may be unfinished at once: what the first step kept is let go of before the last


@pytest.mark.parametrize("checks", ["", "streams"])
def test_a_frame_that_is_read_in_several_steps_is_right_in_each(
    scheduler: MakeScheduler, checks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", checks)
    seen: list[int] = []
    passed_on: list[int] = []

    @op
    def read(frame: Any) -> Any:
        for step in range(STEPS):
            stream = gpu.current_stream()
            read_frame(stream, MS, frame, seen)
            if step == STEPS - 1:
                del frame  # and its last kernel has not begun
            yield step

    @op
    def note(step: int) -> None:
        passed_on.append(step)

    def compose(app: Any) -> None:
        pool = CudaStreamPool(app)
        producer = Producer(app, CountCondition(app, 6), name="producer")
        reader = read(app, pool)
        app.add_flow(producer, reader, note(app, pool))

    run(compose, scheduler)
    assert seen == [number for number in range(6) for _ in range(STEPS)]
    assert passed_on == [*range(STEPS)] * 6
