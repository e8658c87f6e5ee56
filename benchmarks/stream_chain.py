"""Measure the cost of one compute in a chain of five operators that each have a stream.

    python -m benchmarks.stream_chain

The streams do nothing and their events are done at once, so the time is the cost of ordering streams and keeping
frames alive in headrace, without the driver. `benchmarks.gpu_chain` includes the driver. A message is a number, of
which nothing needs to be kept, or a frame, which is made by each operator or made once and passed on by all.
"""

from __future__ import annotations

import argparse
import time
from itertools import count, pairwise
from typing import Any

from benchmarks.common import machine, table
from headrace import Application, CountCondition, EventBasedScheduler, GreedyScheduler, Operator
from headrace._runtime import ManagedStream, StreamSource
from headrace.tensor import Library, register_library

_HANDLES = count(16)  # the lowest handles denote default streams


class IdleEvent:
    __slots__ = ("is_done",)

    def __init__(self) -> None:
        self.is_done = True


class IdleStream:
    def __init__(self) -> None:
        self.handle = next(_HANDLES)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def record(self, event: IdleEvent) -> IdleEvent:
        return event

    def wait(self, event: IdleEvent) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class IdleStreams(StreamSource):
    dev_id = 0

    def _take(self) -> ManagedStream:
        return ManagedStream(IdleStream(), 0, IdleEvent)


class Memory:
    __slots__ = ()


class Pointer:
    __slots__ = ("mem",)

    def __init__(self) -> None:
        self.mem = Memory()


class Frame:
    """An array like those of CuPy: an object owns its memory."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = Pointer()


class Frames(Library):
    types = (Frame,)

    def owner(self, array: Frame) -> Memory:
        return array.data.mem


register_library(Frames())


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.frame = Frame()
        self.sent = 0
        self.began = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self.sent:
            self.began = time.perf_counter_ns()
        self.sent += 1
        op_output.set_cuda_stream(context.allocate_cuda_stream("own"), "out")
        op_output.emit(self.emitted(), "out")

    def emitted(self) -> Any:
        carries = self.fragment.carries
        if carries == "kept by its maker":
            return self.frame
        return Frame() if carries else self.sent


class Through(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        message = op_input.receive("in")
        op_input.receive_cuda_stream("in")
        op_output.emit(message, "out")


class Anew(Through):
    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")
        op_output.emit(Frame(), "out")


class Own(Through):
    def start(self) -> None:
        self.frame = Frame()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")
        op_output.emit(self.frame, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        op_input.receive_cuda_stream("in")

    def stop(self) -> None:
        self.ended = time.perf_counter_ns()


class Chain(Application):
    def __init__(self, scheduler: str, messages: int, carries: str = "") -> None:
        super().__init__([])
        self.kind = scheduler
        self.carries = carries
        self.messages = messages

    def compose(self) -> None:
        if self.kind == "greedy":
            self.scheduler(GreedyScheduler(self))
        else:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=2))
        streams = IdleStreams(self)
        self.source = Source(self, CountCondition(self, self.messages), streams, name="source")
        self.sink = Sink(self, streams, name="sink")
        kind = {"made anew": Anew, "kept by its maker": Own}.get(self.carries, Through)
        stages = [kind(self, streams, name=f"through{number}") for number in range(3)]
        for before, after in pairwise([self.source, *stages, self.sink]):
            self.add_flow(before, after)


def stream_chain(scheduler: str, messages: int, carries: str = "") -> float:
    """Return the microseconds per compute; messages are numbers, or frames made in the given way."""
    chain = Chain(scheduler, messages, carries)
    chain.run()
    return (chain.sink.ended - chain.source.began) / 1e3 / (messages * 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"machine: {machine()}")
    rows: list[list[Any]] = [
        [
            name + (f", a frame {carries}" if carries else ""),
            min(stream_chain(scheduler, options.messages, carries) for _ in range(options.repeats)),
        ]
        for carries in ("", "made anew", "kept by its maker", "passed on")
        for scheduler, name in (("greedy", "greedy"), ("event-based", "event-based, 2 workers"))
    ]
    table("cost of one compute in a chain of five, with streams", ["", "µs per compute"], rows)


if __name__ == "__main__":
    main()
