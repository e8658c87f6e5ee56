"""Chains and joins of operators that do no work: headrace and the Holoscan SDK by the same code, and by hand."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from itertools import pairwise
from typing import Any

from benchmarks.chain import bare_loop, measured_chain
from benchmarks.common import load

STEPS = 100_000
BRANCHES = 8


def messages_of(length: int, share: float) -> int:
    """Return how many messages go through a chain, so that all lengths take about as long."""
    return max(int(STEPS * share) // length, 50)


def of_sdk(package: str, scheduler: str, length: int, *, share: float) -> tuple[float, int]:
    """Return the microseconds per step of a chain, and the sum of what arrived."""
    return measured_chain(package, scheduler, messages_of(length, share), length)


def of_functions(length: int, *, share: float) -> tuple[float, int]:
    """Return the same for plain functions and deques with the same rules of readiness."""
    messages = messages_of(length, share)
    cost = bare_loop(messages, length)
    return cost, messages * (messages + 1) // 2


def of_tasks(length: int, *, share: float) -> tuple[float, int]:
    """Return the same for tasks of asyncio with queues of one place."""
    messages = messages_of(length, share)

    async def program() -> tuple[float, int]:
        queues: list[asyncio.Queue[int]] = [asyncio.Queue(1) for _ in range(length - 1)]

        async def through(inside: asyncio.Queue[int], outside: asyncio.Queue[int]) -> None:
            for _ in range(messages):
                await outside.put(await inside.get())

        async def source() -> None:
            for number in range(1, messages + 1):
                await queues[0].put(number)

        began = time.perf_counter_ns()
        tasks = [asyncio.create_task(source())]
        tasks += [asyncio.create_task(through(one, other)) for one, other in pairwise(queues)]
        total = 0
        for _ in range(messages):
            total += await queues[-1].get()
        cost = (time.perf_counter_ns() - began) / 1e3 / (messages * length)
        await asyncio.gather(*tasks)
        return cost, total

    return asyncio.run(program())


def fan_out(package: str, *, share: float) -> tuple[float, int]:
    """Return the microseconds per frame, and the sum of the sums."""
    sdk = load(package)
    frames = max(int(20_000 * share), 50)
    times: list[int] = []
    totals: deque[int] = deque([0], maxlen=1)

    class Source(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.sent = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if not self.sent:
                times.append(time.perf_counter_ns())
            self.sent += 1
            op_output.emit(self.sent, "out")

    class Branch(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in") + 1, "out")

    class Join(sdk.Operator):  # type: ignore[name-defined]
        def setup(self, spec: Any) -> None:
            for number in range(BRANCHES):
                spec.input(f"in{number}")

        def start(self) -> None:
            self.received = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            totals[0] += sum(op_input.receive(f"in{number}") for number in range(BRANCHES))
            self.received += 1
            if self.received == frames:
                times.append(time.perf_counter_ns())

    class Program(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            self.scheduler(sdk.GreedyScheduler(self, name="scheduler"))
            source = Source(self, sdk.CountCondition(self, frames), name="source")
            join = Join(self, name="join")
            for number in range(BRANCHES):
                branch = Branch(self, name=f"branch{number}")
                self.add_flow(source, branch)
                self.add_flow(branch, join, {("out", f"in{number}")})

    Program().run()
    return (times[1] - times[0]) / 1e3 / frames, totals[0]


def tracked(package: str, is_tracked: bool, *, share: float) -> tuple[float, int]:
    """Return the microseconds per step of a chain of five, and the sum of what arrived."""
    return measured_chain(package, "greedy", messages_of(5, share / 4), 5, is_tracked=is_tracked)
