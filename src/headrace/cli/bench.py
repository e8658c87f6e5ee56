"""Measure what one step of an operator costs: a chain of five operators that do no work,
without and with a stream for each, compared with plain functions in a loop.

examples:
  headrace bench
  headrace bench --messages 100000 --repeats 5
"""

# The operators pass on numbers and do no work, so the time is the cost of the system. In the second chain each
# operator has a stream whose work is done at once, so the cost of order and lifetimes is included, and that of the
# driver is not. The time runs from the start of the last operator to the end of the last compute.

from __future__ import annotations

import argparse
import os
import platform
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

from headrace._runtime import ManagedStream, StreamSource, is_compiled
from headrace.application import Application
from headrace.cli.run import checked
from headrace.conditions import CountCondition
from headrace.core import InputContext, Operator, OperatorSpec, OutputContext, Scheduler
from headrace.core.run_options import parse_count
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from headrace.version import __version__

LENGTH = 5
WORKERS = 2
_HANDLES = count(16)  # the lowest handles denote default streams


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--messages", type=checked(parse_count), default="10000", metavar="N", help="default 10000"
    )
    text = "the least of so many counts; default 3"
    parser.add_argument("--repeats", type=checked(parse_count), default="3", metavar="N", help=text)


def main(options: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    rows = bench(int(options.messages), int(options.repeats))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    build = "compiled" if is_compiled() else "pure Python"
    print(f"headrace {__version__} ({build}); {platform.python_implementation()} {platform.python_version()}")
    print(f"{cores} cores, {platform.machine()}, {platform.system()}\n")
    width = max(map(len, rows))
    print(f"{'a chain of five operators':<{width}}  µs per step")
    for name, cost in rows.items():
        print(f"{name:<{width}}  {cost:11.2f}")
    return 0


def bench(messages: int, repeats: int) -> dict[str, float]:
    """Return the microseconds per step of each case."""
    cases: dict[str, Callable[[], float]] = {
        "plain functions and deques in a loop": lambda: _bare_loop(messages)
    }
    for prefix, streams in (("headrace", False), ("with a stream each", True)):
        for scheduler, workers in (("greedy", 0), (f"event-based, {WORKERS} workers", WORKERS)):
            cases[f"{prefix}, {scheduler}"] = partial(_chain, messages, workers, streams)
    return {name: min(measure() for _ in range(repeats)) for name, measure in cases.items()}


def _chain(messages: int, workers: int, streams: bool) -> float:
    chain = _Chain(messages, workers, streams)
    outcome = chain.run()
    return (chain.ended - chain.began) / 1e3 / max(outcome.computes, 1)


class _Chain(Application):
    def __init__(self, messages: int, workers: int, streams: bool) -> None:
        super().__init__([])
        self.messages, self.workers, self.streams = messages, workers, streams
        self.began = self.ended = 0

    def compose(self) -> None:
        """Connect a source, three operators that pass on, and a sink."""
        scheduler: Scheduler = GreedyScheduler(self)
        if self.workers:
            scheduler = EventBasedScheduler(self, worker_thread_number=self.workers)
        self.scheduler(scheduler)
        parts = [_IdleStreams(self)] if self.streams else []
        source, through, sink = _STREAM_STAGES if self.streams else _STAGES
        stages: list[Operator] = [source(self, CountCondition(self, self.messages), *parts, name="source")]
        stages += [through(self, *parts, name=f"through{number}") for number in range(LENGTH - 2)]
        stages.append(sink(self, *parts, name="sink"))
        for before, after in pairwise(stages):
            self.add_flow(before, after)


class _Stage(Operator):
    capturable = "the cost of its steps is measured"  # whatever HEADRACE_CAPTURE says
    fragment: _Chain

    def setup(self, spec: OperatorSpec) -> None:
        if self.name != "source":
            spec.input("in")
        if self.name != "sink":
            spec.output("out")

    def start(self) -> None:
        self.fragment.began = time.perf_counter_ns()  # the last of them counts

    def stop(self) -> None:
        self.fragment.ended = self.fragment.ended or time.perf_counter_ns()


class _Source(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        op_output.emit(1, "out")


class _StreamSource(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
        op_output.emit(1, "out")


class _Through(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class _StreamThrough(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        message = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        op_output.emit(message, "out")


class _Sink(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        op_input.receive("in")


class _StreamSink(_Stage):
    def compute(self, op_input: InputContext, op_output: OutputContext, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")


_STAGES = (_Source, _Through, _Sink)
_STREAM_STAGES = (_StreamSource, _StreamThrough, _StreamSink)
_IdleEvent = partial(SimpleNamespace, is_done=True)


class _IdleStream:
    """A stream that does nothing, with the names of cuda.core's that headrace uses."""

    def __init__(self) -> None:
        self.handle = next(_HANDLES)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def record(self, event: Any) -> Any:
        return event

    def wait(self, *_: Any) -> None:
        pass

    sync = close = wait


class _IdleStreams(StreamSource):
    dev_id = 0

    def _take(self) -> ManagedStream:
        return ManagedStream(_IdleStream(), 0, _IdleEvent)


def _bare_loop(messages: int) -> float:
    """Return the same for plain functions and deques with the same rules of readiness, the lower bound."""
    received: deque[int] = deque(maxlen=1)
    queues = [deque(range(messages)), *(deque[int]() for _ in range(LENGTH - 1)), received]

    def through(inside: deque[int], outside: deque[int]) -> Callable[[], None]:
        return lambda: outside.append(inside.popleft())

    steps = [(inside, through(inside, outside), outside) for inside, outside in pairwise(queues)]
    began = time.perf_counter_ns()
    while not received or received[0] < messages - 1:
        for inside, step, outside in steps:
            if len(inside) >= 1 and (outside is received or len(outside) < 1):
                step()
    return (time.perf_counter_ns() - began) / 1e3 / (messages * LENGTH)
