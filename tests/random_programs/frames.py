"""Random programs that hold, change, batch, drop, pass on and send again what they receive, and read it late.

Every frame is filled with its number once, by the source that made it, and never written again. A reader
launches work that looks at a frame a while later and compares it with the number that came beside it. So a
frame that was read before it was written, or after its memory was given to another, shows as a wrong number,
whatever the program did.

A program is made from a seed and runs on any `Library`: the simulated device's buffers here, arrays of CuPy and
PyTorch in `benchmarks/gpu_frames.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from headrace import Application, CountCondition, Operator, gpu, retry
from headrace.core import ConditionType


class Library(Protocol):
    """What makes frames, and looks at them late."""

    asked: int
    """How many frames were read."""

    def fresh(self, stream: Any, number: int) -> Any:
        """Return a new frame that is being filled with a number on a stream."""

    def side_stream(self) -> Any:
        """Return a stream that headrace does not know, for any thread."""

    def read(self, stream: Any, frame: Any, number: int) -> None:
        """Read a frame on a stream, a while later, and compare it with its number."""

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        """Return what makes other objects that share the memory of a frame: views, exports."""


# How a frame travels with its number, and how a receiver takes both out.


@dataclass
class Picture:
    number: int
    frame: Any


class Slotted:
    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


def _generate(number: int, frame: Any) -> Iterator[Any]:
    yield number
    yield frame


def _from_picture(picture: Picture) -> tuple[int, Any]:
    frame, picture.frame = picture.frame, None
    return picture.number, frame


def _from_slotted(message: Slotted) -> tuple[int, Any]:
    content, message.content = message.content, None
    return content.pop("number"), content.pop("frame")


def _from_call(message: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
    return message()


WRAPPERS: dict[str, tuple[Callable[[int, Any], Any], Callable[[Any], tuple[int, Any]]]] = {
    "tuple": (lambda number, frame: (number, frame), lambda message: message),
    "list": (lambda number, frame: [number, frame], lambda message: (message.pop(0), message.pop(0))),
    "dict": (
        lambda number, frame: {"number": number, "frame": frame},
        lambda message: (message["number"], message.pop("frame")),
    ),
    "deque": (
        lambda number, frame: deque([number, [frame]]),
        lambda message: (message.popleft(), message.popleft().pop()),
    ),
    "field": (Picture, _from_picture),
    "slots": (lambda number, frame: Slotted({"number": number, "frame": frame}), _from_slotted),
    "iterator": (lambda number, frame: iter([number, frame]), lambda message: (next(message), next(message))),
    "generator": (_generate, lambda message: (next(message), next(message))),
    "closure": (lambda number, frame: lambda: (number, frame), _from_call),
}
# Where a message goes to several, one must not take from it what the others need.
SHARED = ("tuple", "closure")

STREAMS = (
    *(
        "own",
        "current",
        "hidden",
        "named",
        "default too",
        "kept handle",
        "late",
        "several",
        "several",
    ),
    *("none", "none"),
)
HOLDING = ("drop", "drop", "previous", "batch", "bag")
# Where a source makes its frames: on a stream that it asked for, on the current one, on one that nobody knows and
# that it joins, or on that of a thread, which hands them over with an event.
MAKING = ("named", "current", "hidden", "thread")
PASSING = ("same", "same", "fresh", "wrapped", "held", "never")


@dataclass
class Stage:
    """What an operator does."""

    streams: str
    holding: str
    passing: str
    wrapper: str
    reads: bool
    size: int
    workers: int
    fails: bool


@dataclass
class Plan:
    """A program: stages in a row, and how many read what the last and the first send, side by side.

    `shares` says whether two of its operators share a stream.
    """

    frames: int
    sources: int
    making: str
    wrapper: str
    stages: list[Stage]
    branches: int
    max_in_flight: int
    stream_per: str
    shares: bool


def random_plan(random: Random, frames: int) -> Plan:
    def stage(*, is_last: bool = False) -> Stage:
        streams = random.choice(STREAMS)
        return Stage(
            streams,
            random.choice(HOLDING),
            "never" if is_last else random.choice(PASSING[:-1]),
            random.choice(list(WRAPPERS)),
            is_last or random.random() < 0.7,
            size := random.choice([1, 1, 1, 3]),
            # A replica receives one message at a time, and does not retry.
            workers := random.choice([1, 1, 1, 2, 3]) if size == 1 else 1,
            workers == 1 and random.random() < 0.2,
        )

    branches = random.choice([1, 1, 2, 3])
    stages = [stage() for _ in range(random.randint(0, 3))]
    if branches > 1:
        # What branches share goes round in wrappers that nobody takes anything from.
        for one in stages[-1:]:
            one.wrapper = random.choice(SHARED)
    wrapper = random.choice(SHARED if branches > 1 and not stages else list(WRAPPERS))
    last = [stage(is_last=True) for _ in range(branches)]
    for one in last:
        if one.streams == "none":
            one.streams = "own"
    return Plan(
        frames,
        random.choice([1, 1, 2]),
        random.choice(MAKING),
        wrapper,
        [*stages, *last],
        branches,
        random.choice([1, 2, 8]),
        random.choice(["operator", "operator", "branch", "program"]),
        random.random() < 0.3,
    )


def join(earlier: Any, later: Any) -> None:
    """Order a stream after another, as libraries do."""
    later.stream.wait(earlier.stream.record())


class Source(Operator):
    def __init__(
        self, fragment: Any, *args: Any, plan: Plan, library: Library, first: int, **kwargs: Any
    ) -> None:
        self.plan, self.library, self.number = plan, library, first
        self.side: Any = None
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame, after = self._make(op_output, context)
        op_output.emit(WRAPPERS[self.plan.wrapper][0](self.number, frame), "out", after=after)
        self.number += self.plan.sources

    def _make(self, op_output: Any, context: Any) -> tuple[Any, Any]:
        """Return a frame, and the event after the work behind it if its stream is not known."""
        fresh, making = self.library.fresh, self.plan.making
        if making == "named":
            stream = context.allocate_cuda_stream("source")
            op_output.set_cuda_stream(stream, "out")
            return fresh(stream, self.number), None
        if making == "current":
            return fresh(gpu.current_stream(), self.number), None
        if self.side is None:
            self.side = self.library.side_stream()
        if making == "hidden":
            frame = fresh(self.side, self.number)
            join(self.side, gpu.current_stream())
            return frame, None
        made: list[Any] = []

        def make() -> None:
            made.extend((fresh(self.side, self.number), self.side.stream.record()))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0], made[1]


class Worker(Operator):
    """An operator that does as its stage says."""

    def __init__(
        self,
        fragment: Any,
        *args: Any,
        stage: Stage,
        wrapper: str,
        library: Library,
        seed: int,
        **kwargs: Any,
    ) -> None:
        self.stage, self.library = stage, library
        self.unwrap = WRAPPERS[wrapper][1]
        self.wrap = WRAPPERS[stage.wrapper][0]
        self.random = Random(seed)
        self.held: list[tuple[int, Any]] = []
        self.handle: Any = None
        self.side: Any = None
        self.turns = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in", size=self.stage.size).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        if self.stage.passing != "never":
            spec.output("out")
            spec.outputs["out"].condition(ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.turns += 1
        messages = op_input.receive("in")
        if self.stage.fails and self.turns % 5 == 0:
            raise ValueError("not this time")
        stream = self._stream(op_input, op_output, context)
        for message in messages if self.stage.size > 1 else [messages]:
            self._take(message, stream)
        del messages, message
        let_go = self._let_go()
        if self.stage.reads and stream is not None:
            for number, frame in self.held + let_go:
                if self.random.random() < 0.7:
                    self.library.read(stream, frame, number)
        if self.stage.streams == "hidden":
            join(stream, gpu.current_stream())
        if self.stage.passing != "never":
            self._pass_on(op_output, let_go, stream)

    def _stream(self, op_input: Any, op_output: Any, context: Any) -> Any:
        kind = self.stage.streams
        if kind == "none" or (kind == "late" and self.turns < 4):
            return None
        if kind == "current":
            return gpu.current_stream()
        if kind == "hidden":
            if self.side is None:
                self.side = self.library.side_stream()
            join(gpu.current_stream(), self.side)
            return self.side
        if kind == "named":
            mine = context.allocate_cuda_stream("mine")
            context.synchronize_streams(op_input.receive_cuda_streams("in"), mine)
            if self.stage.passing != "never" and self.turns == 1:
                op_output.set_cuda_stream(mine, "out")  # which holds for later computes, too
            return mine
        if kind == "several":
            return self._any_of_several(op_input, op_output, context)
        if kind == "kept handle":
            if self.turns % 2 or self.handle is None:
                self.handle = op_input.receive_cuda_stream("in")
            return self.handle
        return op_input.receive_cuda_stream("in", sync_to_default=kind == "default too")

    def _any_of_several(self, op_input: Any, op_output: Any, context: Any) -> Any:
        """Return one of several streams, and now and then set another for what is emitted."""
        own = op_input.receive_cuda_stream("in")
        streams = [own, *[context.allocate_cuda_stream(name) for name in ("one", "two")]]
        stream = self.random.choice(streams)
        context.synchronize_streams([own], stream)
        if self.stage.passing != "never" and self.random.random() < 0.3:
            op_output.set_cuda_stream(self.random.choice(streams), "out")
        return stream

    def _take(self, message: Any, stream: Any) -> None:
        number, frame = self.unwrap(message)
        if self.stage.holding != "drop" and self.random.random() < 0.5:
            frame = self.random.choice([*self.library.other_forms(frame), lambda: frame])()
        self.held.append((number, frame))

    def _let_go(self) -> list[tuple[int, Any]]:
        """Return what is let go in this compute; the rest is held on to."""
        held, kind = self.held, self.stage.holding
        if kind == "drop":
            count = len(held)
        elif kind == "previous":
            count = len(held) - 1
        elif kind == "batch":
            count = 4 if len(held) >= 4 else 0
        else:
            self.random.shuffle(held)
            count = self.random.randint(0, len(held)) if len(held) > 3 else 0
        let_go, self.held = held[:count], held[count:]
        return let_go

    def _pass_on(self, op_output: Any, let_go: list[tuple[int, Any]], stream: Any) -> None:
        kind = self.stage.passing
        several = self.held if kind == "held" else let_go
        if not several:
            return
        number, frame = self.random.choice(several)
        if kind == "fresh" and stream is not None:
            frame = self.library.fresh(stream, number)
            if self.stage.streams == "hidden":
                join(stream, gpu.current_stream())
        op_output.emit(self.wrap(number, frame), "out")


class RandomFrames(Application):
    """A random program."""

    def __init__(self, seed: int, frames: int, library: Library, scheduler: Callable[[Any], Any]) -> None:
        super().__init__()
        self.seed, self.library, self.make_scheduler = seed, library, scheduler
        self.plan = random_plan(Random(seed), frames)

    def compose(self) -> None:
        plan = self.plan
        self.scheduler(self.make_scheduler(self))
        self.max_in_flight, self.stream_per = plan.max_in_flight, plan.stream_per
        self.workers: list[Worker] = []
        sources = [
            Source(
                self,
                CountCondition(self, plan.frames // plan.sources),
                plan=plan,
                library=self.library,
                first=n + 1,
                name=f"source{n}",
            )
            for n in range(plan.sources)
        ]
        before, wrapper = sources, plan.wrapper
        row, last = plan.stages[: -plan.branches], plan.stages[-plan.branches :]
        for group in [*([stage] for stage in row), last]:
            made = []
            for stage in group:
                made.append(
                    Worker(
                        self,
                        stage=stage,
                        wrapper=wrapper,
                        library=self.library,
                        seed=self.seed + len(self.workers),
                        **({"workers": stage.workers} if stage.workers > 1 else {}),
                        **({"on_error": retry(2)} if stage.fails else {}),
                        name=f"worker{len(self.workers)}",
                    )
                )
                self.workers.append(made[-1])
                for one in before:
                    self.add_flow(one, made[-1])
            before, wrapper = made, group[0].wrapper
        if plan.shares:
            self.share_stream(*Random(self.seed).sample([*sources, *self.workers], 2))
