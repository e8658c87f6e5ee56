"""AsynchronousCondition: an operator waits for an event of another thread."""

from __future__ import annotations

import threading

from headrace import CountCondition
from headrace.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
)
from tests.harness import PATIENCE, App, MakeScheduler, Step, sink, source


def test_an_event_outstanding_is_not_a_deadlock_even_where_a_message_is_missing_too(
    scheduler: MakeScheduler,
) -> None:
    """The operator that waits for the event also waits for a message that only then can come."""
    taken: list[int] = []
    go = threading.Event()

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.EVENT_WAITING
        held = Step(
            app,
            event,
            CountCondition(app, 1),
            inputs=["in"],
            outputs=["out"],
            body=lambda op, i, o: o.emit(i.receive()),
        )
        app.add_flow(source(app, [7]), held, sink(app, taken))

        def release() -> None:
            assert go.wait(PATIENCE)
            event.event_state = AsynchronousEventState.EVENT_DONE

        threading.Thread(target=release).start()

    app = App(compose, scheduler)
    future = app.run_async()
    go.set()
    future.result(timeout=PATIENCE)
    assert taken == [7]
