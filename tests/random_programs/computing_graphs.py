"""Random graphs that compute on frames of a library, beside a model that computes the same in plain Python.

Every frame knows what its memory holds once the work that was launched so far is done. Kernels compute frames from
others, change frames in place that nobody else has, and compare frames with what they should hold, a while later.
So a kernel that runs too early, or on memory that was given to another frame, shows as a wrong number.

Operators have streams of their own or share them, as the program declares. They join, fork and come back to
themselves, join the run and leave it. They hold frames in various places, take memory of an allocator, wait for the
device, keep the stream of their first compute, are on the default stream, and upload on a stream that nobody knows.
Replicas and a captured segment run beside them. The device keeps up for a while.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from headrace import Application, ConditionType, CountCondition, IOSpec, Operator, gpu, op
from headrace.core import MetadataPolicy, Resource
from headrace.core.errors import GraphError
from headrace.gpu import sim
from headrace.gpu.allocation import Allocation
from headrace.resources import BlockMemoryPool, CudaStreamPool
from tests.harness import segments
from tests.harness.libraries import Arrays, here

MS = 1e-3
_LARGE = 1 << 40  # numbers stay below
SEGMENT_FRAMES = 20


class Array:
    """An array of one number.

    Attributes
    ----------
    owner
        What owns its memory; a view has that of another array.
    number
        What it holds when the work so far is done.
    is_sole
        Whether whoever has the array may change it, since nobody else has it.
    """

    def __init__(self, owner: Any, number: int) -> None:
        self.owner, self.number, self.is_sole = owner, number, True

    @property
    def buffer(self) -> Any:
        """The memory on the device."""
        return self.owner.buffer if type(self.owner) is Allocation else self.owner


class ArrayLibrary(Arrays):
    """The library of these arrays."""

    name = "Computing graphs"
    types = (Array,)

    def owner(self, array: Any) -> Any:
        return array.owner

    def begin(self, array: Any) -> int:
        return int(array.buffer.handle)


@dataclass
class Held:
    """A message with an array in it."""

    array: Any


class Closed:
    """A message with an array that only a method returns."""

    __slots__ = ("_get",)

    def __init__(self, array: Any) -> None:
        self._get = lambda: array

    def get(self) -> Any:
        return self._get()


WRAPPERS: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    *[(lambda array: array, lambda message: message)] * 4,
    (lambda array: (array, 1), lambda message: message[0]),
    (lambda array: [array], lambda message: message[0]),
    (lambda array: {"array": array}, lambda message: message["array"]),
    (Held, lambda message: message.array),
    (Closed, lambda message: message.get()),
]


class Store(Resource):
    """Holds arrays for an operator."""


in_module: dict[Any, Any] = {}


class Computing(Operator):
    """An operator whose kernels run wherever its code happens to run."""

    def __init__(self, fragment: Any, *args: Any, inputs: list[str], seed: int, **kwargs: Any) -> None:
        self.input_names, self.random, self.turns = inputs, Random(seed), 0
        random = self.random
        self.wrap, _ = self.wrapper = random.choice(WRAPPERS)
        self.holds = random.choice([0, 0, 0, 1, 2, 9, 60])
        self.has_state = random.random() < 0.3
        self.passes = random.choice([0.0, 0.0, 0.5, 1.0])
        self.changes = random.choice([0.0, 0.5, 1.0])
        self.waits = random.random() < 0.05
        self.seconds = random.choice([0.0, 0.0, 0.02, 0.1]) * MS  # of the host
        self.where = random.choice(["self", "self", "class", "fragment", "resource", "module", "closure"])
        self.store = Store(fragment, name=f"store of {kwargs['name']}")
        self.closure = self._make_closure()
        self.seen: set[int] = set()
        self.side: Any = None
        self.handling = random.choice(["current", "current", "current", "asks", "keeps"])
        self.is_on_default = random.random() < 0.05
        self.handle: Any = None
        super().__init__(fragment, *args, self.store, **kwargs)
        self.metadata_policy = MetadataPolicy.UPDATE  # one message may come by several ways

    def _make_closure(self) -> Callable[..., Any]:
        held: Any = None

        def exchange(*new: Any) -> Any:
            nonlocal held
            if new:
                (held,) = new
            return held

        return exchange

    def setup(self, spec: Any) -> None:
        random = self.random
        for place, name in enumerate(self.input_names):
            if not place:
                size = random.choice([1, 3]) if self.fragment.has_batches else 1  # type: ignore[attr-defined]
                spec.input(name, size=size).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
            elif name.endswith("out") and not self.fragment.has_batches:  # type: ignore[attr-defined]
                spec.input(name)
            else:
                size = random.choice([1, 2, 4])
                spec.input(name, size=size, policy=IOSpec.QueuePolicy.POP).condition(ConditionType.NONE)
        if self.is_on_default:
            spec.default_stream()
        spec.output("out")
        spec.output("more").condition(ConditionType.NONE)

    @property
    def kept(self) -> Any:
        """What it holds from one compute to another, wherever that is."""
        match self.where:
            case "class":
                return vars(type(self)).get("of_class", {}).get(self.name, [])
            case "fragment":
                return getattr(self.fragment, f"kept_{self.name}", [])
            case "resource":
                return getattr(self.store, "kept", [])
            case "module":
                return in_module.get(self.name, [])
            case "closure":
                return self.closure() or []
        return getattr(self, "kept_here", [])

    @kept.setter
    def kept(self, kept: Any) -> None:
        match self.where:
            case "class":
                type(self).of_class = {**getattr(type(self), "of_class", {}), self.name: kept}  # type: ignore[attr-defined]
            case "fragment":
                setattr(self.fragment, f"kept_{self.name}", kept)
            case "resource":
                self.store.kept = kept  # type: ignore[attr-defined]
            case "module":
                in_module[self.name] = kept
            case "closure":
                self.closure(kept)
            case _:
                self.kept_here = kept

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        app: RandomComputing = self.fragment  # type: ignore[assignment]
        app.change(self)
        random, work = self.random, app.work
        self.turns += 1
        arrays = self._receive(op_input)
        stream = self._stream(op_input)
        self.seen.add(int(stream))
        if not work.slowness:
            stream.stream.sync()  # in virtual time, the device catches up only when it is waited for
        elif self.seconds:
            app.machine.sleep(self.seconds)
        kept: deque[Any] = deque(self.kept)
        candidates = [*arrays, *kept]
        for array in random.sample(candidates, min(len(candidates), random.choice([0, 1, 2, 4]))):
            work.compare(stream, array)
        chosen = random.sample(candidates, min(len(candidates), random.choice([0, 1, 1, 2, 3])))
        for array in chosen:
            if array.is_sole and random.random() < self.changes:
                work.change(stream, array, [each for each in chosen if each is not array])
        if self.waits:
            stream.stream.sync()
        if arrays and random.random() < self.passes:
            result = random.choice([*arrays, *kept])
        elif self.side is not None:
            result = work.make(self.side, [], None)
            if random.random() < 0.5:
                self.side.stream.sync()
        else:
            result = work.make(stream, chosen, app.pool if random.random() < app.pooled else None)
        if random.random() < 0.1:
            result = work.view(result)
        kept.extend(array for array in arrays if random.random() < 0.7)
        if self.has_state and not any(array.is_sole for array in kept):
            kept.append(work.make(stream, [], None))
        if self.holds < 60:
            random.shuffle(kept)
        while len(kept) > self.holds + self.has_state:
            oldest = kept.popleft()
            if random.random() < 0.5:
                work.compare(stream, oldest)
        self._emit(op_output, result, kept)
        self.kept = kept if random.random() < 0.5 else list(kept)

    def _emit(self, op_output: Any, result: Any, kept: Any) -> None:
        random = self.random
        flows = [flow for flow in self._headrace.outgoing if flow.output == "out"]
        is_kept = any(array.owner is result.owner for array in kept)
        to_more = random.random() < 0.2
        if is_kept or len(flows) != 1 or to_more or self.fragment.changes_at:  # type: ignore[attr-defined]
            result.is_sole = False
        after = None if self.side is None else self.side.stream.record()
        timestamp = random.choice([-1, -1, -1, 7])
        if random.random() < 0.1:
            self.metadata.set(f"{self.name} {self.turns}", result.number)
        constant = not result.is_sole  # it may have been sent before, and is not changed any more
        op_output.emit(self.wrap(result), "out", acq_timestamp=timestamp, after=after, constant=constant)
        if to_more:
            op_output.emit(random.choice(WRAPPERS)[0](result), "more", constant=True)

    def _stream(self, op_input: Any) -> Any:
        """Return the stream that it works on: always the same one."""
        if self.handling == "keeps" and self.handle is not None:
            return self.handle
        asks = self.handling == "asks" and self.input_names
        self.handle = op_input.receive_cuda_stream(self.input_names[0]) if asks else here.stream
        return self.handle

    def _receive(self, op_input: Any) -> list[Any]:
        found: list[Any] = []
        for name in self.input_names:
            message = op_input.receive(name)
            if message is None:
                continue
            is_several = self.spec.inputs[name].gives_tuple
            found += [open_message(each) for each in (message if is_several else [message])]
        # One array may come by several ways.
        return list({id(array): array for array in found}.values())


class Aside(Computing):
    """An operator that makes arrays on a stream of the library; the others do not name any."""

    def start(self) -> None:
        self.side = gpu.StreamHandle(gpu.Device(0).create_stream())


def open_message(message: Any) -> Any:
    """Return the array in a message."""
    match message:
        case Array():
            return message
        case Held():
            return message.array
        case Closed():
            return message.get()
        case dict():
            return message["array"]
    return message[0]


class Work:
    """The kernels of a program, and what they found wrong."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.slowness = 0.0
        self.mistakes: list[tuple[int, int]] = []
        self.compared = 0
        self.numbers = itertools.count(1)

    def make(self, stream: Any, arguments: list[Any], pool: Any) -> Array:
        """Return a new array that is being computed from others."""
        if pool is None:
            device = sim.Device(0)
            device.set_current()
            owner: Any = device.allocate(8, stream=stream.stream)
        else:
            owner = pool.allocate_tensor(8, "int64", "device").owner
        number = next(self.numbers)
        made = Array(owner, (number + sum(each.number for each in arguments)) % _LARGE)

        def compute(out: Any, *sources: Any) -> None:
            out.view(np.int64)[0] = (number + sum(int(each.view(np.int64)[0]) for each in sources)) % _LARGE

        self._launch(stream, compute, made, *arguments)
        return made

    def change(self, stream: Any, array: Array, arguments: list[Any]) -> None:
        """Change an array in place."""
        array.number = (3 * array.number + sum(each.number for each in arguments)) % _LARGE

        def compute(out: Any, *sources: Any) -> None:
            added = sum(int(each.view(np.int64)[0]) for each in sources)
            out.view(np.int64)[0] = (3 * int(out.view(np.int64)[0]) + added) % _LARGE

        self._launch(stream, compute, array, *arguments)

    def compare(self, stream: Any, array: Array) -> None:
        """Compare an array with what it should hold, a while later."""
        number = array.number

        def look(source: Any) -> None:
            self.compared += 1
            found = int(source.view(np.int64)[0])
            if found != number:
                self.mistakes.append((number, found))

        self._launch(stream, look, array)

    def view(self, array: Array) -> Array:
        """Return another array on the same memory; neither is changed any more."""
        array.is_sole = False
        made = Array(array.owner, array.number)
        made.is_sole = False
        return made

    def _launch(self, stream: Any, effect: Callable[..., None], *arrays: Array) -> None:
        seconds = self.random.choice([0.01, 0.1, 1, 3]) * MS * self.slowness
        kernel = sim.Kernel("k", seconds, effect)
        buffers = [array.buffer for array in arrays]
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel, *buffers)


class RandomComputing(Application):
    """A random graph; the device keeps up for a while, and then it does not."""

    def __init__(self, seed: int, count: int, scheduler: Callable[[Any], Any], machine: sim.Machine) -> None:
        super().__init__([])
        self.random, self.count, self.make_scheduler = Random(seed), count, scheduler
        self.machine, self.work = machine, Work(seed)
        self.paces = self.random.choices([0.0, 0.0, 0.02, 0.1, 1.0], k=self.random.choice([1, 2, 3, 6]))
        self.paces[0] = self.random.choice([0.0, 0.0, self.paces[0]])
        in_module.clear()

    def compose(self) -> None:
        random = self.random
        self.scheduler(self.make_scheduler(self))
        self.has_batches = random.random() < 0.4
        # What keeps operators from keeping nothing, in some programs.
        self.is_mixed = random.random() < 0.4
        self.max_in_flight = random.choice([1, 2, 8, 8, 8, 20] if self.is_mixed else [8, 20])
        self.stream_per = random.choice(["operator", "operator", "branch", "program"])
        self.pooled = random.choice([0.0, 0.0, 0.3, 1.0]) if self.is_mixed else 0.0
        self.pool = BlockMemoryPool(self, "device", 64, 400) if self.pooled else None
        most = random.choice([0, 0, 0, 2])
        flags = random.choice([0, 0, 1]) if self.is_mixed else 0
        self.streams = CudaStreamPool(self, stream_flags=flags, **({"max_size": most} if most else {}))
        size, sources = random.randint(3, 9), random.choice([1, 1, 2])
        # Each operator waits for messages of "out", one of which each compute emits. They come first.
        ports = ["out", "out", "more"]
        flows = sorted(
            {
                (target, random.choice(ports) if more else "out", random.randrange(target))
                for target in range(sources, size)
                for more in range(random.choice([1, 1, 2, 3]))
            },
            key=lambda flow: (flow[0], flow[1] != "out", flow[2]),
        )
        back = [(random.randrange(sources, size), a) for a in range(size) if random.random() < 0.15]
        self.made: list[Computing] = []
        for place in range(size):
            inputs = [f"from {source} {port}" for target, port, source in flows if target == place]
            self._make(inputs + [f"back {source}" for target, source in back if target == place])
        for operator in random.sample(self.made, size):
            self.add_operator(operator)
        for target, port, source in flows:
            self.add_flow(self.made[source], self.made[target], {(port, f"from {source} {port}")})
        for target, source in back:
            self.add_flow(self.made[source], self.made[target], {("out", f"back {source}")})
        shares = [operator for operator in self.made if operator.has_pool and not operator.is_on_default]
        if len(shares) > 1 and random.random() < 0.4:
            self.share_stream(*random.sample(shares, random.randint(2, len(shares))))
        self.has_segment = random.random() < 0.3
        if self.has_segment:
            segments.chain(self, SEGMENT_FRAMES)
        if random.random() < 0.3:
            self.add_flow(self.made[0], self._make_replicas(), {("out", "array")})
        self.changes_at = random.sample(range(20, self.count), random.choice([0, 0, 3]))

    def _make(self, inputs: list[str]) -> Computing:
        arguments: list[Any] = [] if inputs else [CountCondition(self, self.count)]
        if self.random.random() < (0.75 if self.is_mixed else 0.95):
            arguments.append(self.streams)
        name, seed = f"op{len(self.made)}", self.random.randrange(1 << 30)
        is_aside = self.random.random() < 0.1
        has_pool = self.streams in arguments
        kind: Any = type("Computing", (Aside if is_aside else Computing,), {"has_pool": has_pool})
        self.made.append(kind(self, *arguments, inputs=inputs, seed=seed, name=name))
        return self.made[-1]

    def _make_replicas(self) -> Any:
        """Return an operator whose replicas compare arrays."""

        @op(outputs=())
        def compare(array: Any) -> None:
            self.work.compare(here.stream, open_message(array))

        return compare(self, workers=2, name="replicas")

    def change(self, operator: Computing) -> None:
        """In the computes of the first operator, choose how slow the device is, or change the graph."""
        if operator is not self.made[0]:
            return
        self.work.slowness = self.paces[operator.turns * len(self.paces) // (self.count + 1)]
        if operator.turns in self.changes_at:
            with suppress(GraphError):  # one of them may have ended
                self._change(self.random, self.random.choice(self.made))

    def _change(self, random: Random, source: Computing) -> None:
        if random.random() < 0.5:
            self.add_flow(source, self._make(["new"]), {("out", "new")})
            return
        made = [flow for flow in self.graph.flows if flow.source in self.made and flow.target in self.made]
        removable = [flow for flow in made if flow.input != flow.target.input_names[0]]
        if removable:
            flow = random.choice(removable)
            self.remove_flow(flow.source, flow.target, {(flow.output, flow.input)})
            if random.random() < 0.7:
                self.add_flow(source, flow.target, {("out", flow.input)})
