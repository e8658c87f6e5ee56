"""Small pipelines that several tests of streams share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from headrace import CountCondition
from headrace.gpu import sim
from tests.harness import (
    MS,
    MakeScheduler,
    Producer,
    Step,
    greedy,
    read_frame,
    run,
)

FRAMES = 12
ALL = list(range(FRAMES))


class Sending(Producer):
    """Sends frames wrapped in something."""

    seconds = MS / 20
    wrap: Callable[[Any], Any] = staticmethod(lambda data: data)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        class Output:
            set_cuda_stream = op_output.set_cuda_stream

            @staticmethod
            def emit(data: Any, port: str) -> None:
                op_output.emit(self.wrap(data), port)

        super().compute(op_input, Output, context)


def read_late(app: Any, stream: Any, data: Any) -> None:
    read_frame(stream, 2 * MS, data, app.seen)


def frames_seen(
    body: Callable[..., None],
    scheduler: MakeScheduler = greedy,
    wrap: Any = None,
    frames: int = FRAMES,
    **step: Any,
) -> list[int]:
    """Run a quick sender into an operator that reads late, and return what it read."""

    def compose(app: Any) -> None:
        app.seen = []
        sender = Sending(app, CountCondition(app, frames), name="sender")
        if wrap is not None:
            sender.wrap = wrap
        app.taker = Step(app, inputs=("in",), body=body, name="taker", **step)
        app.add_flow(sender, app.taker)

    return run(compose, scheduler).seen


def answers(body: Any, *args: Any, frames: int = 3, **step: Any) -> list[Any]:
    """Run a producer into a step and return what its body returned each time."""
    found: list[Any] = []

    def compose(app: Any) -> None:
        def note(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(body(self, op_input, op_output, context))

        given = [make(app) for make in args]
        step.setdefault("inputs", ("in",))
        taker = Step(app, *given, body=note, name="taker", **step)
        app.add_flow(Producer(app, CountCondition(app, frames), name="producer"), taker)

    run(compose)
    return found


class Tracked:
    """Data that is nobody's buffer, so that only its own life counts."""

    def __init__(self) -> None:
        self.died_at: list[float] = []


def track(machine: sim.Machine, deaths: list[float]) -> Any:
    """Return an object, and note the time on the machine at which it dies."""
    data = Tracked()
    weakref.finalize(data, lambda: deaths.append(machine.timeline.now / 1e9))
    return data
