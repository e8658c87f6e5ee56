"""Measure whether workers help where computes block or release the interpreter lock, and cost nothing elsewhere.

    python -m benchmarks.workers                 chains of short computes, branches of slow ones
    python -m benchmarks.workers chain           only the rows whose names contain a word
    python -m benchmarks.workers graphs          random wide graphs; with CuPy and PyTorch, if there is a GPU
    python -m benchmarks.workers delays          how late an operator of 1 kHz is beside one of 10 ms
    python -m benchmarks.workers --cpu chain     CPU time of the process, for a machine with other load
    python -m benchmarks.workers --waits chain   how often threads wait, instead of times

Each row is measured with the greedy scheduler and with an event-based one on 1, 2, 4 and 8 workers, in turn. The
minimum of several rounds counts. The time runs from the first compute of the source to the last of a sink.

A chain is a source, five stages and a sink. Its computes hold the interpreter lock, or release it for about a
microsecond several times, as a launch of a kernel does, one time after the other or with Python in between; with
CuPy and PyTorch, each launches a kernel on its own stream. Workers cannot help there; the table shows how much
longer a compute takes than with the greedy scheduler.
Branches are a source, eight stages side by side and a sink for each. Their computes sleep, or leave the lock while
they work, and say so (`parallel`); the table shows how many times faster the workers are.
Graphs are random: 16 stages in four layers, each connected to one or two of the layer before, in six graphs for
each kind of compute. These give up the interpreter lock often, and say nothing; the table shows the microseconds
of a frame, and how much longer it takes than with the greedy scheduler.
Delays are those of an operator that is due every millisecond, beside one whose compute takes 10 ms and says
nothing: it sleeps, works outside the interpreter lock, or holds it. Alone, nothing is beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from typing import Any

from benchmarks.common import machine, table
from headrace import (
    Application,
    CountCondition,
    EventBasedScheduler,
    GreedyScheduler,
    Operator,
    PeriodicCondition,
)

WORKERS = (1, 2, 4, 8)
STAGES = 5
BRANCHES = 8
_BYTES = bytes(6_000)  # zlib releases the interpreter lock above 5 KiB

Work = Callable[[Any], Any]


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def start(self) -> None:
        self.began = 0
        self.message = self.fragment.first()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if not self.began:
            self.began = self.fragment.read()
        op_output.emit(self.message, "out", constant=True)


class Stage(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def start(self) -> None:
        self.work = self.fragment.work

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(self.work(op_input.receive("in")), "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.ended = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_input.receive("in")
        self.ended = self.fragment.read()


class Program(Application):
    """A chain, or branches, on some workers; with 0, on the greedy scheduler."""

    def __init__(
        self,
        work: Work,
        first: Callable[[], Any],
        branches: bool,
        messages: int,
        workers: int,
        read: Callable[[], int],
    ) -> None:
        super().__init__([])
        self.work, self.first, self.branches, self.messages = work, first, branches, messages
        self.workers, self.read = workers, read

    def compose(self) -> None:
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        else:
            self.scheduler(GreedyScheduler(self))
        self.source = Source(self, CountCondition(self, self.messages), name="source")
        self.sinks = [Sink(self, name=f"sink{n}") for n in range(BRANCHES if self.branches else 1)]
        last = [self.source]
        for number in range(BRANCHES if self.branches else STAGES):
            stage = Stage(self, name=f"stage{number}")
            stage.parallel = self.branches
            self.add_flow(self.source if self.branches else last[-1], stage)
            last.append(stage)
        for stage, sink in zip(reversed(last), self.sinks, strict=False):
            self.add_flow(stage, sink)

    def measure(self) -> float:
        """Return the microseconds per compute, or what `read` counts, in 1,000 computes."""
        self.run()
        computes = self.messages * (1 + len(self.sinks) + (BRANCHES if self.branches else STAGES))
        return (max(sink.ended for sink in self.sinks) - self.source.began) / 1e3 / computes


class Adder(Operator):
    """Works on what it receives at each of its inputs."""

    def __init__(self, fragment: Any, inputs: int, name: str) -> None:
        self.names = [f"in{number}" for number in range(inputs)]
        super().__init__(fragment, name=name)

    def setup(self, spec: Any) -> None:
        for name in self.names:
            spec.input(name)
        spec.output("out")

    def start(self) -> None:
        self.work = self.fragment.work

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        received = [op_input.receive(name) for name in self.names]
        op_output.emit(self.work(received[0]), "out")


class Graph(Application):
    """A random wide graph on some workers; with 0, on the greedy scheduler."""

    def __init__(self, work: Work, first: Callable[[], Any], seed: int, frames: int, workers: int) -> None:
        super().__init__([])
        self.work, self.first, self.seed, self.frames, self.workers = work, first, seed, frames, workers
        self.read = time.perf_counter_ns

    def compose(self) -> None:
        if self.workers:
            self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        else:
            self.scheduler(GreedyScheduler(self))
        chosen = random.Random(self.seed)
        self.source = Source(self, CountCondition(self, self.frames), name="source")
        before: list[Operator] = [self.source]
        for layer in range(4):
            now: list[Operator] = []
            for place in range(4):
                feeding = chosen.sample(before, min(len(before), chosen.choice([1, 1, 2])))
                stage = Adder(self, len(feeding), name=f"stage{layer}{place}")
                for number, feeder in enumerate(feeding):
                    self.add_flow(feeder, stage, {("out", f"in{number}")})
                now.append(stage)
            before = now
        self.sinks = [Sink(self, name=f"sink{number}") for number in range(4)]
        for stage, sink in zip(before, self.sinks, strict=True):
            self.add_flow(stage, sink)

    def measure(self) -> float:
        """Return the microseconds per frame."""
        self.run()
        return (max(sink.ended for sink in self.sinks) - self.source.began) / 1e3 / self.frames


def python_for(microseconds: float) -> Work:
    """Return work in Python that takes about so long and holds the interpreter lock."""
    count = 1000
    began = time.thread_time_ns()
    for _ in range(20):
        _loop(count)
    each = (time.thread_time_ns() - began) / 1e3 / 20 / count
    rounds = max(round(microseconds / each), 1)

    def work(message: Any) -> Any:
        _loop(rounds)
        return message

    return work


def _loop(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number
    return total


def short_calls(message: Any) -> Any:
    for _ in range(4):
        zlib.crc32(_BYTES)
    return message


def many_calls(count: int) -> Work:
    """Return work that gives up the interpreter lock so often, as launches do."""

    def work(message: Any) -> Any:
        for _ in range(count):
            zlib.crc32(_BYTES)
            _loop(30)
        return message

    return work


def many_launches(array: Any) -> Any:
    """Launch what an operator of CuPy or PyTorch does to a small frame."""
    for _ in range(5):
        array = array * 0.5 + 1.0
    return array


def between_system_calls() -> Work:
    python, file = python_for(1.5), os.open(os.devnull, os.O_WRONLY)

    def work(message: Any) -> Any:
        for _ in range(4):
            python(message)
            os.write(file, b"0")
        return message

    return work


def sleep(message: Any) -> Any:
    time.sleep(1e-3)
    return message


def large_array() -> Any:
    import numpy

    return numpy.linspace(1.0, 2.0, 500_000)


def roots(array: Any) -> Any:
    import numpy

    numpy.sqrt(array)
    return array


def torch_model() -> Work:
    import torch

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
    frame = torch.rand(64, 1024)

    def work(message: Any) -> Any:
        with torch.no_grad():
            model(frame)
        return message

    return work


def onnx_model() -> Work:
    import numpy
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    weights = numpy.random.default_rng(1).random((1024, 1024), numpy.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64, 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 1024])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    frame = {"x": numpy.ones((64, 1024), numpy.float32)}

    def work(message: Any) -> Any:
        session.run(None, frame)
        return message

    return work


def add_one(array: Any) -> Any:
    return array + 1


def cupy_array() -> Any:
    import cupy

    return cupy.zeros(1024, cupy.float32)


def torch_array() -> Any:
    import torch

    return torch.zeros(1024, device="cuda")


def has(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def number() -> int:
    return 1


Row = tuple[str, Work, Callable[[], Any], bool, int]


def rows() -> list[Row]:
    """Return what is measured: a name, the work, the first message, whether in branches, the messages."""
    found: list[Row] = [
        ("chain, nothing", lambda message: message, number, False, 4_000),
        ("chain, 5 µs of Python", python_for(5), number, False, 2_000),
        ("chain, 50 µs of Python", python_for(50), number, False, 300),
        ("chain, 4 calls without the lock", short_calls, number, False, 1_500),
        ("chain, Python and 4 system calls", between_system_calls(), number, False, 3_000),
    ]
    if has("cupy"):
        found.append(("chain, CuPy", add_one, cupy_array, False, 500))
    if has("torch"):
        import torch

        if torch.cuda.is_available():
            found.append(("chain, PyTorch", add_one, torch_array, False, 500))
    found += [
        ("branches, time.sleep(1 ms)", sleep, number, True, 60),
        ("branches, NumPy, 4 MB", roots, large_array, True, 30),
    ]
    if has("onnx", "onnxruntime"):
        found.append(("branches, ONNX Runtime", onnx_model(), number, True, 15))
    if has("torch"):
        found.append(("branches, PyTorch on the CPU", torch_model(), number, True, 15))
    return found


def graphs() -> list[tuple[str, Work, Callable[[], Any], int]]:
    """Return the kinds of graphs: a name, the work, the first message, the frames."""
    found: list[tuple[str, Work, Callable[[], Any], int]] = [
        ("60 calls without the lock", many_calls(60), number, 40),
        ("4 calls without the lock", many_calls(4), number, 400),
    ]
    for library, array in (("cupy", cupy_array), ("torch", torch_array)):
        if has(library):
            try:
                array()
            except Exception as error:  # no GPU, or none that it can use
                print(f"graphs: {library} is left out: {error}", file=sys.stderr)
            else:
                found.append((library, many_launches, array, 300))
    return found


def measure_graphs(rounds: int) -> None:
    """Print the microseconds per frame of random graphs."""
    workers = (0, 1, 2, 3, 6)
    rows: list[list[Any]] = []
    for name, work, first, frames in graphs():
        for seed in range(6):
            best: dict[int, float] = {}
            for _ in range(rounds):
                for count in workers:
                    took = Graph(work, first, seed, frames, count).measure()
                    best[count] = min(took, best.get(count, took))
            rows.append([f"{name}, seed {seed}", *best.values(), *(best[n] / best[0] for n in workers[1:])])
            print(f"{rows[-1][0]}: {best}", file=sys.stderr, flush=True)
    each = [f"{count}" for count in workers[1:]]
    columns = ["", "greedy, µs per frame", *each, *(f"ratio with {count}" for count in each)]
    table("random wide graphs, with so many workers", columns, rows)


class Tick(Operator):
    """Notes how late each of its computes begins."""

    def setup(self, spec: Any) -> None:
        self.late: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        now = time.perf_counter_ns()
        self.first = getattr(self, "first", now)
        self.late.append(max(now - self.first - len(self.late) * 1_000_000, 0))


class Slow(Operator):
    """Computes for as long as its work takes, again and again."""

    def start(self) -> None:
        self.work = self.fragment.work

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.work(None)


class Delays(Application):
    """An operator of 1 kHz beside another one, on some workers."""

    def __init__(self, work: Work | None, ticks: int, workers: int) -> None:
        super().__init__([])
        self.work, self.ticks, self.workers = work, ticks, workers

    def compose(self) -> None:
        self.scheduler(EventBasedScheduler(self, worker_thread_number=self.workers))
        period = PeriodicCondition(self, 1_000_000)
        self.tick = Tick(self, CountCondition(self, self.ticks), period, name="tick")
        self.add_operator(self.tick)
        if self.work is not None:
            self.add_operator(Slow(self, CountCondition(self, self.ticks // 10), name="slow"))

    def measure(self) -> list[float]:
        """Return how many microseconds the ticks were late: the median, of 99 in 100, the most."""
        self.run()
        late = sorted(self.tick.late)
        return [late[len(late) * share // 100] / 1e3 for share in (50, 99)] + [late[-1] / 1e3]


def without_the_lock(microseconds: float) -> Work:
    """Return one call that takes about so long and does not hold the interpreter lock."""
    began = time.thread_time_ns()
    zlib.crc32(bytes(10_000_000))
    each = (time.thread_time_ns() - began) / 1e3 / 10_000_000
    data = bytes(round(microseconds / each))
    return lambda message: zlib.crc32(data)


def measure_delays(rounds: int) -> None:
    """Print how late an operator of 1 kHz is; of the rounds, the one with the least p99."""
    kinds: list[tuple[str, Work | None]] = [
        ("alone", None),
        ("sleeps", lambda message: time.sleep(0.01)),
        ("one call without the lock", without_the_lock(10_000)),
        ("calls without the lock", many_calls(1_000)),
        ("Python", python_for(10_000)),
    ]
    rows: list[list[Any]] = []
    for name, work in kinds:
        for workers in (2, 4):
            measured = min(
                (Delays(work, 2_000, workers).measure() for _ in range(rounds)), key=lambda each: each[1]
            )
            rows.append([name, workers, *measured])
    table("µs by which an operator of 1 kHz is late", ["beside it", "workers", "p50", "p99", "max"], rows)


def waits() -> int:
    """Return how often threads of this process have waited, times a million."""
    return getrusage(RUSAGE_SELF).ru_nvcsw * 1_000_000


def measure(row: Row, rounds: int, read: Callable[[], int]) -> dict[int, float]:
    """Return the least of `Program.measure` for each number of workers, 0 being the greedy scheduler."""
    _, work, first, branches, messages = row
    best: dict[int, float] = {}
    for _ in range(rounds):
        for workers in (0, *WORKERS):
            took = Program(work, first, branches, messages, workers, read).measure()
            best[workers] = min(took, best.get(workers, took))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="words that the names of the rows have; all unless given")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--cpu", action="store_true", help="measure CPU time of the process instead of wall time"
    )
    parser.add_argument("--waits", action="store_true", help="count how often threads wait")
    options = parser.parse_args()
    read = waits if options.waits else time.process_time_ns if options.cpu else time.perf_counter_ns
    print(f"machine: {machine()}, {'CPU' if options.cpu else 'wall'} time", flush=True)
    if "graphs" in options.words:
        measure_graphs(options.rounds)
        return
    if "delays" in options.words:
        measure_delays(options.rounds)
        return
    counts: list[list[Any]] = []
    chains: list[list[Any]] = []
    branches: list[list[Any]] = []
    for row in rows():
        if options.words and not any(word in row[0] for word in options.words):
            continue
        best = measure(row, options.rounds, read)
        print(f"{row[0]}: {best}", file=sys.stderr, flush=True)
        if options.waits:
            counts.append([row[0], *best.values()])
            continue
        ratios = [best[0] / best[n] if row[3] else best[n] / best[0] for n in WORKERS]
        (branches if row[3] else chains).append([row[0], best[0], *ratios])
    each = [f"{n} worker{'s' * (n > 1)}" for n in WORKERS]
    columns = ["", "greedy, µs per compute", *each]
    if counts:
        table("how often threads wait, in 1,000 computes", ["", "greedy", *each], counts)
    if chains:
        table("time of a compute, as a multiple of that with the greedy scheduler", columns, chains)
    if branches:
        table("how many times faster than the greedy scheduler", columns, branches)


if __name__ == "__main__":
    main()
