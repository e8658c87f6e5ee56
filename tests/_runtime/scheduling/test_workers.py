"""Workers: operators run side by side, and none waits for one that takes long."""

from __future__ import annotations

import threading
from typing import Any

from headrace import CountCondition
from tests.harness import (
    PATIENCE,
    App,
    MakeScheduler,
    Step,
    run,
    threaded,
)
from tests.harness.internals import has_standby


@threaded
def test_a_compute_that_lasts_does_not_hold_up_its_producer(
    scheduler: MakeScheduler,
) -> None:
    """It does not tell of the room that it made; the worker that stands by does."""
    made = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        def make_one(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks)
            made.set()

        def sometimes_slow(op: Step, i: Any, o: Any) -> None:
            made.clear()
            stands_by = has_standby(op)
            i.receive()
            if stands_by and not seen:
                seen.append(made.wait(PATIENCE))  # only the producer ends this
                op.fragment.stop_execution()

        producer = Step(app, CountCondition(app, 20_000), outputs=["out"], body=make_one, name="producer")
        app.add_flow(producer, Step(app, inputs=["in"], body=sometimes_slow, name="sometimes_slow"))

    run(compose, scheduler)
    assert seen == [True]
