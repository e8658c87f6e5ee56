"""Applications with a captured segment, for tests of what is seen of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import Operator
from headrace.gpu import sim
from headrace.observe import Computes, Flows, RunInfo, Watcher
from headrace.resources import CudaGreenContext, CudaGreenContextPool, UnboundedAllocator
from headrace.tensor.copies import read_on_host

COUNT = 16
MS = 1_000_000


def _add(out: Any, *sources: Any, plus: int) -> None:
    out.view(np.int32)[:COUNT] = sum(source.view(np.int32)[:COUNT] for source in sources) + plus


class Work(Operator):
    """Adds a number to the sum of what it receives, in a kernel of a known length."""

    capturable = True
    after, emits = "in", "out"

    def __init__(
        self, fragment: Any, *args: Any, after: str = "in", emits: str = "out", **kwargs: Any
    ) -> None:
        self.after, self.emits = after, emits
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.param("alloc")
        spec.param("milliseconds", 1.0)
        spec.param("plus", 0)
        for name in self.after.split():
            spec.input(name)
        for name in self.emits.split():
            spec.output(name)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        received = [op_input.receive(name) for name in self.spec.inputs]
        stream = [op_input.receive_cuda_stream(name) for name in self.spec.inputs][-1]
        self.emit(stream, op_output, COUNT, self.plus, *[_memory(each) for each in received])

    def emit(self, stream: Any, op_output: Any, count: int, plus: int, *sources: Any) -> None:
        for name in self.spec.outputs:
            made = self.alloc.allocate_tensor((count,), np.int32, stream=stream)
            add = partial(_add, plus=plus)
            launch(stream, self.milliseconds / 1e3, add, _memory(made), *sources)
            op_output.emit(made, name)


class Numbers(Work):
    """Emits 0, 1, 2 and so on, and every `large`-th time more elements than otherwise.

    The number is also in the metadata if they have a key for it.
    """

    def __init__(self, fragment: Any, *args: Any, large: int = 0, metadata: str = "", **kwargs: Any) -> None:
        self.large, self.key = large, metadata
        super().__init__(fragment, *args, after="", **kwargs)

    def start(self) -> None:
        self.calls = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stream = context.allocate_cuda_stream("own")
        for name in self.spec.outputs:
            op_output.set_cuda_stream(stream, name)
        if self.key:
            self.metadata[self.key] = self.calls
        self.calls += 1
        count = COUNT if not self.large or self.calls % self.large else 2 * COUNT
        self.emit(stream, op_output, count, self.calls - 1)


class Ends(Operator):
    """Collects what it receives, on the host."""

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        received = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        stream.stream.sync()
        self.seen.append(int(read_on_host([received], stream)[0][0]))


def launch(stream: Any, seconds: float, effect: Any, *args: Any) -> None:
    sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=COUNT), sim.Kernel("k", seconds, effect), *args)


def _memory(tensor: Any) -> Any:
    owner = tensor.owner
    return owner if isinstance(owner, sim.Buffer) else owner.buffer


def chain(
    app: Any,
    frames: int = 20,
    period: int = 0,
    large: int = 0,
    slices: dict[str, int] | None = None,
    extra: str = "",
    metadata: str = "",
    **options: Any,
) -> None:
    """Compose ``source -> one -> two -> three -> sink``, with a segment of the three in the middle.

    `extra` is an output of the second that leads nowhere, `metadata` the key of the number of each frame.
    """
    make = _Maker(app, slices)
    source = make("source", frames, period, large=large, metadata=metadata)
    stages = [
        make("one"),
        make("two", milliseconds=2.0, plus=1, emits=f"out {extra}"),
        make("three", milliseconds=3.0, plus=2),
    ]
    app.sink = Ends(app, name="sink")
    for before, after in zip((source, *stages), (*stages, app.sink), strict=True):
        app.add_flow(before, after, {("out", "in")})
    app.stages = stages
    app.segment = app.capture(*stages, name="middle", **options)


def branches(app: Any, frames: int = 20, **options: Any) -> None:
    """Compose a segment with a fork, a join, a second input and a second output in the middle.

    ``camera -> a``, ``a -> b``, ``a -> c``, ``b, c, aside -> d -> sink``, and ``b -> monitor``.
    """
    make = _Maker(app)
    camera, aside = make("camera", frames), make("aside", frames)
    a = make("a", milliseconds=1.0)
    b, c = make("b", milliseconds=2.0, plus=10), make("c", milliseconds=4.0, plus=100)
    d = make("d", milliseconds=3.0, after="left right extra")
    app.sink, app.monitor = Ends(app, name="sink"), Ends(app, name="monitor")
    app.add_flow(camera, a, b)
    app.add_flow(a, c)
    app.add_flow(b, app.monitor)
    app.add_flow(b, d, {("out", "left")})
    app.add_flow(c, d, {("out", "right")})
    app.add_flow(aside, d, {("out", "extra")})
    app.add_flow(d, app.sink)
    app.segment = app.capture(a, b, c, d, name="body", **options)


def fork(app: Any, frames: int = 20, **options: Any) -> None:
    """Compose ``source -> a``, and from there ``b`` and ``c`` with a sink each; the three are a segment."""
    make = _Maker(app)
    source, a = make("source", frames), make("a")
    ends = [make("b", plus=10), make("c", plus=100)]
    app.sinks = [Ends(app, name="left"), Ends(app, name="right")]
    app.add_flow(source, a)
    for end, sink in zip(ends, app.sinks, strict=True):
        app.add_flow(a, end, sink)
    app.segment = app.capture(a, *ends, name="fork", **options)


class _Maker:
    def __init__(self, app: Any, slices: dict[str, int] | None = None) -> None:
        self._app = app
        self._slices = slices or {}
        self._pool = CudaGreenContextPool(app, sms_per_partition=self._slices) if slices else None
        self._alloc = UnboundedAllocator(app)

    def __call__(self, name: str, frames: int = 0, period: int = 0, **options: Any) -> Work:
        conditions: list[Any] = [CountCondition(self._app, frames)] if frames else []
        if period:
            conditions.append(PeriodicCondition(self._app, period))
        if name in self._slices:
            conditions.append(CudaGreenContext(self._app, self._pool, name))
        kind = Numbers if frames else Work
        return kind(self._app, *conditions, alloc=self._alloc, name=name, **options)


class Collects(Watcher):
    """Collects everything of one run."""

    wants_emissions = True

    def __init__(self) -> None:
        self.computes: list[Computes] = []
        self.flows: list[Flows] = []

    def begin(self, run: RunInfo) -> None:
        self.run = run

    def computed(self, computes: Computes) -> None:
        self.computes.append(computes)

    def flowed(self, flows: list[Flows]) -> None:
        self.flows += flows

    def of(self, name: str) -> list[Computes]:
        return [each for each in self.computes if each.operator.name == name]

    def gpu_times(self, name: str) -> list[int]:
        return [time for each in self.of(name) for time in each.gpu_time.tolist()]

    def replayed(self, name: str) -> list[bool]:
        return [bool(value) for each in self.of(name) for value in each.is_replayed]

    def structure(self) -> dict[str, Any]:
        """Return who received and emitted what in which compute, without times."""
        return {
            operator.name: (
                sum(len(each.started) for each in self.of(operator.name)),
                sorted(
                    (arrivals.queue.name, *row)
                    for each in self.of(operator.name)
                    for arrivals in each.arrivals
                    for row in zip(
                        arrivals.compute.tolist(),
                        arrivals.output.tolist(),
                        arrivals.number.tolist(),
                        arrivals.producer.tolist(),
                        strict=True,
                    )
                ),
                sorted(
                    (emissions.queue.name, *row)
                    for each in self.of(operator.name)
                    for emissions in each.emissions
                    for row in zip(emissions.compute.tolist(), emissions.number.tolist(), strict=True)
                ),
            )
            for operator in self.run.operators
        }

    def paths(self) -> dict[str, list[list[int]]]:
        """Return the computes of every message on every path."""
        found: dict[str, list[list[int]]] = {}
        for each in self.flows:
            found.setdefault(each.path.name, []).extend(each.computes.tolist())
        return {name: sorted(rows) for name, rows in found.items()}
