"""A chain of operators that do no work: a source, some that pass on, a sink. `headrace bench chain-5` measures it.

The time runs from the first compute of the source to the last of the sink, so that it includes no start-up. A
message is an int and the operators do no work, so the time is the cost of the system.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import pairwise
from typing import Any

from benchmarks.common import load


def chain(package: str, scheduler: str, messages: int, length: int = 5) -> float:
    """Return the microseconds per compute."""
    return measured_chain(package, scheduler, messages, length)[0]


def measured_chain(
    package: str, scheduler: str, messages: int, length: int = 5, *, is_tracked: bool = False
) -> tuple[float, int]:
    """Return the microseconds per compute, and the sum of what arrived."""
    sdk = load(package)
    times: list[int] = []
    total = [0]

    class Source(sdk.Operator):  # type: ignore[name-defined]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.sent = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if not self.sent:
                times.append(time.perf_counter_ns())
            self.sent += 1
            op_output.emit(self.sent, "out")

    class Through(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

    class Sink(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            number = op_input.receive("in")
            total[0] += number
            if number == messages:
                times.append(time.perf_counter_ns())

    class Chain(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            if scheduler == "greedy":
                self.scheduler(sdk.GreedyScheduler(self, name="scheduler"))
            elif scheduler == "event-based":
                self.scheduler(sdk.EventBasedScheduler(self, worker_thread_number=2, name="scheduler"))
            last = Source(self, sdk.CountCondition(self, messages), name="source")
            for number in range(length - 2):
                stage = Through(self, name=f"through{number}")
                self.add_flow(last, stage)
                last = stage
            if scheduler == "dropping":
                self.add_flow(last, Sink(self, name="sink"), policy=sdk.IOSpec.QueuePolicy.POP)
            else:
                self.add_flow(last, Sink(self, name="sink"))

    app = Chain()
    if is_tracked:
        app.track()
    app.run()
    dropped = sum(app.dropped().values()) if scheduler == "dropping" else 0
    return (times[1] - times[0]) / 1e3 / (messages * length - dropped), total[0]


def bare_loop(messages: int, length: int = 5) -> float:
    """Return the same for plain functions and deques with the same readiness rules, the lower bound."""
    queues: list[deque[int]] = [deque() for _ in range(length - 1)]
    sent = 0
    done = False

    def source() -> None:
        nonlocal sent
        sent += 1
        queues[0].append(sent)

    def through(inside: deque[int], outside: deque[int]) -> Any:
        def step() -> None:
            outside.append(inside.popleft())

        return step

    def sink() -> None:
        nonlocal done
        done = queues[-1].popleft() == messages

    steps: list[tuple[Any, Any, Any]] = [(None, source, queues[0])]
    steps += [(a, through(a, b), b) for a, b in pairwise(queues)]
    steps.append((queues[-1], sink, None))
    began = time.perf_counter_ns()
    while not done:
        for inside, step, outside in steps:
            fed = inside is None or len(inside) >= 1
            room = outside is None or len(outside) < 1
            if fed and room and (inside is not None or sent < messages):
                step()
    return (time.perf_counter_ns() - began) / 1e3 / (messages * length)
