"""Queues: bursts, policies, batches, and several connections to one port."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, operator, program


def _burst(sdk: SimpleNamespace, log: list, port: Any, burst: int, out: Any = "out", rounds: int = 1) -> None:
    """Emit several messages in one compute into one port; the sink logs what it takes per compute."""

    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        for n in range(burst):
            o.emit(self.ticks * 100 + n, "out")

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = []
        for _ in range(burst + 1):
            message = i.receive("in")
            if message is None:
                break
            taken.append(message)
        log.append(taken)

    def compose(app: Any) -> None:
        a = operator(sdk, [], [out], send)(app, sdk.CountCondition(app, rounds), name="a")
        app.add_flow(a, operator(sdk, [port], [], take)(app, name="b"))

    application(sdk, compose).run()


@program
def a_burst_into_a_long_queue_is_a_batch(sdk: SimpleNamespace, log: list) -> None:
    _burst(sdk, log, ("in", {"size": 3}, None), 3, ("out", {"size": 3}, None))
