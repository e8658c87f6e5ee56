"""Random graphs of operators that name no stream, among others that do: they share streams, and part.

Every frame is filled with its own number once, by kernels on the current stream, and read by kernels a while later,
as in `frames`. Operators join, fork and come back to themselves; they drop what they receive, hold it, pass it on,
and hold frames that they made themselves.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from headrace import Application, ConditionType, CountCondition, IOSpec, Operator, gpu
from headrace.core.errors import GraphError
from headrace.resources import CudaStreamPool
from headrace.tensor import Library
from tests.random_programs.simulated_frames import SimulatedFrames


class Here(threading.local):
    """The current stream of a library, of each thread."""

    stream: Any = None


here = Here()


class PlainLibrary(Library):
    """A library whose arrays nobody has; it only has a current stream."""

    name = "Plain graphs"
    types = ("plain_graphs.Array",)
    works_on_simulated_streams = True

    def read_stream(self) -> Any:
        return here.stream

    def set_stream(self, state: Any) -> None:
        here.stream = state

    def stream_state(self, handle: gpu.StreamHandle) -> Any:
        return handle


class Plain(Operator):
    """An operator whose kernels run wherever its code happens to run.

    Parameters
    ----------
    frames
        What makes frames, and reads them.
    inputs
        The inputs. The operator waits for messages at the first one alone.
    seed
        Chooses what it does in each compute.
    """

    is_on_default = False

    def __init__(
        self, fragment: Any, *args: Any, frames: SimulatedFrames, inputs: list[str], seed: int, **kwargs: Any
    ) -> None:
        self.frames, self.input_names, self.random = frames, inputs, Random(seed)
        self.holds = self.random.choice([0, 0, 1, 3, 12])
        self.makes = self.random.choice([0.3, 1, 1, 1])
        self.passes = self.random.choice([0, 0, 0.5])
        self.held: list[tuple[int, Any]] = []
        self.streams: list[int] = []
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        pop, size = IOSpec.QueuePolicy.POP, self.random.choice([1, 2, 4])
        for place, name in enumerate(self.input_names):
            if place:
                spec.input(name, size=size, policy=pop).condition(ConditionType.NONE)
            else:
                spec.input(name)
        spec.output("out")
        if self.is_on_default:
            spec.default_stream()

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.fragment.change(self)
        received = self._receive(op_input)
        stream = self._stream(op_input)
        self.streams.append(int(stream))
        for number, frame in received + self.held:
            if self.random.random() < 0.7:
                self.frames.read(stream, frame, number)
        kept = received + self.held
        if self.random.random() < self.makes or not received:
            number = next(self.fragment.numbers)
            made = (number, self.frames.fresh(stream, number))
            kept.append(made)
        else:
            made = self.random.choice(kept)
        if kept and self.random.random() < self.passes:
            made = self.random.choice(kept)
        op_output.emit(self._wrap(*made), "out")
        self.random.shuffle(kept)
        self.held = kept[: self.holds]

    def _stream(self, op_input: Any) -> Any:
        return here.stream

    def _receive(self, op_input: Any) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        for name in self.input_names:
            message = op_input.receive(name)
            is_several = type(message) is tuple and type(message[0]) is not int
            several = [each for each in (message if is_several else [message]) if each is not None]
            found += [(each["number"], each["frame"]) if type(each) is dict else each for each in several]
        return found

    def _wrap(self, number: int, frame: Any) -> Any:
        return {"number": number, "frame": frame} if self.random.random() < 0.3 else (number, frame)


class OnDefault(Plain):
    """An operator on the default stream."""

    is_on_default = True

    def _stream(self, op_input: Any) -> Any:
        return here.stream


class Handling(Plain):
    """An operator that handles streams itself."""

    def _stream(self, op_input: Any) -> Any:
        return op_input.receive_cuda_stream(self.input_names[0])


class Reading(Plain):
    """An operator that keeps the current stream of its first compute."""

    handle: Any = None

    def _stream(self, op_input: Any) -> Any:
        if self.handle is None:
            self.handle = gpu.current_stream()
        return self.handle


class ReadingUnseen(Plain):
    """An operator that keeps the current stream of some compute; its code does not show that it will."""

    handle: Any = None

    def _stream(self, op_input: Any) -> Any:
        if self.handle is None and self.random.random() < 0.05:
            self.handle = getattr(gpu, "current_" + "stream")()
        return self.handle or here.stream


class HandlingUnseen(Plain):
    """An operator that keeps the stream that it is given in some compute; its code does not show that it will."""

    handle: Any = None

    def _stream(self, op_input: Any) -> Any:
        if self.handle is None and self.random.random() < 0.05:
            self.handle = getattr(op_input, "receive_" + "cuda_stream")(self.input_names[0])
        return self.handle or here.stream


KINDS: list[type[Plain]] = [*[Plain] * 9, Handling, Reading, ReadingUnseen, HandlingUnseen]


class RandomGraph(Application):
    """A random graph."""

    def __init__(self, seed: int, count: int, scheduler: Callable[[Any], Any]) -> None:
        super().__init__([])
        self.random, self.count, self.make_scheduler = Random(seed), count, scheduler
        self.frames = SimulatedFrames(seed)
        self.frames.slowness = self.random.choice([0.02, 0.1, 1, 1])

    def compose(self) -> None:
        random = self.random
        self.scheduler(self.make_scheduler(self))
        self.numbers = itertools.count(1)
        self.max_in_flight = random.choice([1, 2, 8, 8, 8, 20])
        self.pools = [CudaStreamPool(self, stream_flags=1), CudaStreamPool(self, stream_flags=1)]
        size, sources = random.randint(3, 9), random.choice([1, 1, 2])
        flows = sorted(
            {
                (random.randrange(target), target)
                for target in range(sources, size)
                for _ in range(random.choice([1, 1, 2, 3]))
            }
        )
        back = [(source, random.randrange(sources, size)) for source in range(size) if random.random() < 0.15]
        kinds = random.choices(KINDS, k=size)
        if random.random() < 0.5:
            kinds[random.randrange(size)] = OnDefault  # no more than one, or it may be left alone
        self.made: list[Plain] = []
        for place in range(size):
            inputs = [f"from{a}" for a, b in flows if b == place] + [
                f"back{a}" for a, b in back if b == place
            ]
            self._make(kinds[place] if inputs else Plain, inputs)
        for name, pairs in (("from", flows), ("back", back)):
            for a, b in pairs:
                self.add_flow(self.made[a], self.made[b], {("out", f"{name}{a}")})
        self.changes_at = random.sample(range(20, self.count), random.choice([0, 0, 3]))

    def _make(self, kind: type[Plain], inputs: list[str]) -> Plain:
        arguments: list[Any] = [] if inputs else [CountCondition(self, self.count)]
        if self.random.random() < 0.8:
            arguments.append(self.pools[self.random.random() < 0.1])
        name, seed = f"op{len(self.made)}", self.random.randrange(1 << 30)
        self.made.append(kind(self, *arguments, frames=self.frames, inputs=inputs, seed=seed, name=name))
        self.add_operator(self.made[-1])
        return self.made[-1]

    def change(self, operator: Plain) -> None:
        """Change the graph in some computes of the first operator."""
        if operator is not self.made[0] or len(operator.streams) not in self.changes_at:
            return
        with suppress(GraphError):  # one of them may have ended
            self._change(self.random, self.random.choice(self.made))

    def _change(self, random: Random, source: Plain) -> None:
        if random.random() < 0.5:
            self.add_flow(source, self._make(random.choice(KINDS), ["more"]), {("out", "more")})
            return
        removable = [flow for flow in self.graph.flows if flow.input != flow.target.input_names[0]]
        if removable:
            flow = random.choice(removable)
            self.remove_flow(flow.source, flow.target, {(flow.output, flow.input)})
            self.add_flow(source, flow.target, {("out", flow.input)})
