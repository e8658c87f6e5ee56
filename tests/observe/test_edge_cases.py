"""What an observation counts, and leaves alone, in unusual programs."""

from __future__ import annotations

from typing import Any

from penstock.core import op
from penstock.observe import Flows, Watcher, watch
from tests.harness.application import App


class Ways(Watcher):
    """Collects the computes that each message passed."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def flowed(self, flows: list[Flows]) -> None:
        for each in flows:
            self.rows += map(tuple, each.computes.tolist())


def test_a_function_that_yields_begins_the_next_message_in_the_compute_that_ends_the_last() -> None:
    @op
    def source() -> Any:
        yield from range(3)

    @op
    def twice(value: int) -> Any:
        yield value
        yield value

    received: list[int] = []

    @op
    def sink(value: int) -> None:
        received.append(value)

    def compose(app: Any) -> None:
        first, second, last = source(app), twice(app), sink(app)
        app.add_flow(first, second)
        app.add_flow(second, last)

    app = App(compose)
    ways = Ways()
    watch(app, ways)
    app.run()
    assert received == [0, 0, 1, 1, 2, 2]
    assert [row[0] for row in ways.rows] == received
