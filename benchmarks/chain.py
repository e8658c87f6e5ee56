"""Measure the cost of one compute in a chain of five: a source, three operators that pass on, a sink.

    python -m benchmarks.chain                                headrace
    python -m benchmarks.chain --holoscan PYTHON              also the Holoscan SDK, on an interpreter that has it

The time runs from the first compute of the source to the last of the sink, so that it includes no start-up. A
message is an int and the operators do no work, so the time is the cost of the system.

The default scheduler is measured without and with a queue that drops (in front of the sink), since it has several
workers only if there is one.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from itertools import pairwise
from typing import Any

from benchmarks.common import elsewhere, load, machine, result, table


def chain(package: str, scheduler: str, messages: int, length: int = 5) -> float:
    """Return the microseconds per compute."""
    sdk = load(package)
    times: list[int] = []

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
            if op_input.receive("in") == messages:
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
    app.run()
    dropped = sum(app.dropped().values()) if scheduler == "dropping" else 0
    return (times[1] - times[0]) / 1e3 / (messages * length - dropped)


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


def best(measure: Any, repeats: int) -> float:
    return min(measure() for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--holoscan", metavar="PYTHON", help="an interpreter that has the Holoscan SDK")
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("PACKAGE", "SCHEDULER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        result(chain(*options.one, options.messages))
        return

    print(f"machine: {machine()}")
    rows: list[list[Any]] = [
        ["plain functions and deques in a loop", best(lambda: bare_loop(options.messages), 3), ""]
    ]
    ours = {
        scheduler: best(lambda s=scheduler: chain("headrace", s, options.messages), options.repeats)
        for scheduler in ("greedy", "default", "event-based", "dropping")
    }
    rows.append(["headrace, greedy", ours["greedy"], ""])
    rows.append(["headrace, default", ours["default"], ""])
    rows.append(["headrace, event-based, 2 workers", ours["event-based"], ""])
    rows.append(["headrace, default, with a queue that drops", ours["dropping"], ""])
    if options.holoscan:
        for scheduler in ("greedy", "event-based"):
            arguments = ["--messages", str(options.messages // 10), "--one", "holoscan", scheduler]
            theirs = best(lambda a=arguments: elsewhere(options.holoscan, "chain", a), options.repeats)
            name = "greedy" if scheduler == "greedy" else "event-based, 2 workers"
            rows.append([f"Holoscan, {name}", theirs, f"{theirs / ours[scheduler]:.1f} times headrace"])
    table("cost of one compute in a chain of five", ["", "µs per compute", ""], rows)


if __name__ == "__main__":
    main()
