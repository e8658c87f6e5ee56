"""Frames of a device as the messages of a random program: no frame is ever wrong.

Every message carries a value, which the program computes, and a frame, whose memory holds a number. Operators
compute frames on streams of every kind, hold them, read them late, change those that nobody else has, and pass them
on. A reader compares a frame with its number a while later. So a frame that was read too early, or after its memory
was given to another, shows as a wrong number, whatever the program did.

A program runs on any `Library`: the buffers of the simulated device here, arrays of CuPy and PyTorch in
`benchmarks/gpu_frames.py`.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import numpy as np

from headrace import Operator, gpu
from headrace.gpu import sim
from headrace.gpu.allocation import Allocation
from headrace.planner import Plan
from headrace.planner.plan import flows_of
from headrace.resources import BlockMemoryPool, CudaGreenContext, CudaStreamPool, UnboundedAllocator
from headrace.tensor.copies import read_on_host
from tests.harness.libraries import Arrays, here
from tests.random_programs.building import Plain, RandomApp, Record, declare_input, results_of
from tests.random_programs.making import make
from tests.random_programs.program import Program, Stage
from tests.random_programs.running import run_app, run_program

MS = 1e-3
POOL = 2000  # blocks
SLICES = {"control": 16, "vision": 40}


class Library(Protocol):
    """What makes frames, and reads them late."""

    asked: int
    """How many frames were read."""

    def fresh(self, stream: Any, number: int) -> Any:
        """Return a new frame that is being filled with a number on a stream."""

    def change(self, stream: Any, frame: Any, number: int) -> None:
        """Fill a frame with another number on a stream."""

    def read(self, stream: Any, frame: Any, number: int) -> None:
        """Read a frame on a stream, a while later, and compare it with its number."""

    def side_stream(self) -> Any:
        """Return a stream that headrace does not know, for any thread."""

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        """Return what makes other objects that share the memory of a frame: views, exports."""


class Array:
    """An array of one number, of a library with a current stream; a view has the owner of another."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner


class ArrayLibrary(Arrays):
    """The library of these arrays."""

    name = "Frames"
    types = (Array,)

    def owner(self, array: Any) -> Any:
        return array.owner

    def begin(self, array: Any) -> int:
        return int(_buffer(array).handle)


def _buffer(frame: Any) -> Any:
    owner = frame if isinstance(frame, sim.Buffer) else frame.owner
    return owner.buffer if type(owner) is Allocation else owner


class SimulatedFrames:
    """Buffers of the simulated device, or arrays of a library, that kernels of a random length work on.

    The device keeps up for a while, and then it does not.
    """

    def __init__(self, seed: int, makes_arrays: bool = False) -> None:
        self.random, self.makes_arrays = Random(seed), makes_arrays
        self.pool: Any = None
        self.asked = self.looked_at = 0
        self.mistakes: list[tuple[int, int]] = []
        self.paces = self.random.choices([0.0, 0.02, 0.1, 1.0], k=self.random.choice([1, 2, 3, 6]))
        self.launches = 0

    def fresh(self, stream: Any, number: int) -> Any:
        device = sim.Device(0)
        device.set_current()  # on a thread of the program
        owner: Any
        if self.pool is not None and self.random.random() < 0.5:
            owner = self.pool.allocate_tensor(8, "int64", "device", stream=stream).owner
        else:
            owner = device.allocate(8, stream=stream.stream)
        frame = Array(owner) if self.makes_arrays or type(owner) is Allocation else owner
        self.change(stream, frame, number)
        return frame

    def change(self, stream: Any, frame: Any, number: int) -> None:
        def fill(target: np.ndarray[Any, Any]) -> None:
            target.view(np.int64)[0] = number

        self._launch(stream, fill, frame)

    def read(self, stream: Any, frame: Any, number: int) -> None:
        self.asked += 1

        def look(source: np.ndarray[Any, Any]) -> None:
            self.looked_at += 1
            found = int(source.view(np.int64)[0])
            if found != number:
                self.mistakes.append((number, found))

        if not self._launch(stream, look, frame) and self.random.random() < 0.3:
            stream.stream.sync()  # in virtual time, the device goes on only when it is waited for

    def side_stream(self) -> Any:
        device = gpu.Device(0)
        device.set_current()
        return gpu.StreamHandle(device.create_stream())

    def other_forms(self, frame: Any) -> list[Callable[[], Any]]:
        return [lambda: Array(frame.owner)] if type(frame) is Array else []

    def _launch(self, stream: Any, effect: Callable[..., None], frame: Any) -> float:
        """Launch a kernel, and return how slow the device is."""
        self.launches += 1
        pace = self.paces[self.launches // 40 % len(self.paces)]
        kernel = sim.Kernel("k", self.random.choice([0.01, 0.1, 1, 3]) * MS * pace, effect)
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel, _buffer(frame))
        return pace


@dataclass
class Tag:
    """What a message says of its frame.

    Attributes
    ----------
    value
        The message of the program.
    number
        What the frame holds when the work so far is done.
    is_sole
        Whether the receiver may take the frame out of the message, and change it: nobody else has it.
    """

    value: Any
    number: int
    is_sole: bool


# How a frame travels with its tag, and how a receiver takes both out.


@dataclass
class Picture:
    tag: Tag
    frame: Any


class Slotted:
    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


def _generate(tag: Tag, frame: Any) -> Iterator[Any]:
    yield tag
    yield frame


SHARED: list[Callable[[Tag, Any], Any]] = [
    lambda tag, frame: (tag, frame),
    lambda tag, frame: {"tag": tag, "frame": frame},
    lambda tag, frame: lambda: (tag, frame),
]
SOLE: list[Callable[[Tag, Any], Any]] = [
    *SHARED,
    lambda tag, frame: [tag, frame],
    lambda tag, frame: deque([tag, [frame]]),
    lambda tag, frame: iter([tag, frame]),
    lambda tag, frame: Slotted({"tag": tag, "frame": frame}),
    Picture,
    _generate,
]


def unwrapped(message: Any) -> tuple[Tag, Any] | None:
    """Take the tag and the frame out of a message; return None if it is several messages, or another thing."""
    match message:
        case (Tag() as tag, frame) | {"tag": tag, "frame": frame}:
            if type(message) is list:
                message.clear()
            elif type(message) is deque:
                (frame,) = frame
                message.clear()
            return tag, frame
        case Picture():
            frame, message.frame = message.frame, None
            return message.tag, frame
        case Slotted():
            content, message.content = message.content, None
            return content["tag"], content["frame"]
    if callable(message):
        return message()  # type: ignore[no-any-return]
    return (next(message), next(message)) if hasattr(message, "__next__") else None


STREAMS = (
    *("own", "current", "hidden", "named", "default too", "kept handle", "late", "several", "several"),
    *("none", "default"),
)
MAKING = ("named", "current", "hidden", "thread")


@dataclass
class Handling:
    """What one operator does with frames."""

    random: Random
    streams: str
    making: str
    holds: int
    passes: float
    changes: float
    reads: float
    form: int
    turns: int = 0
    held: list[tuple[Any, Tag]] = field(default_factory=list)
    received: list[tuple[Any, Tag]] = field(default_factory=list)
    made: list[tuple[Any, Tag]] = field(default_factory=list)
    stream: Any = None
    handle: Any = None
    side: Any = None

    @classmethod
    def at_random(cls, random: Random) -> Handling:
        """Return what an operator does, by its own seed."""
        return cls(
            random,
            random.choice(STREAMS),
            random.choice(MAKING),
            random.choice([0, 0, 0, 1, 4, 60]),
            random.choice([0.0, 0.0, 0.5, 1.0]),
            random.choice([0.0, 0.5, 1.0]),
            random.choice([0.3, 0.7, 1.0]),
            random.randrange(len(SOLE)),
        )


def join(earlier: Any, later: Any) -> None:
    """Order a stream after another, as libraries do."""
    later.stream.wait(earlier.stream.record())


class Frames:
    """Lets the messages of a program be frames."""

    def __init__(self, program: Program, library: Library) -> None:
        self.program, self.library = program, library
        self.random = Random(f"frames {program.seed}")
        self._handling: dict[str, Handling] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # Messages that one receiver takes, once: it may take the frame out.
        self._sole = {stage.name for stage in program.stages if not program.changes and self._is_sole(stage)}

    def _is_sole(self, stage: Stage) -> bool:
        behind = self.program.behind(stage.name)
        return len(behind) == 1 and all(
            port.policy != "LATEST"
            and other.kind in ("step", "results")
            and not (other.join or other.retries or other.on_error or other.workers > 1 or other.fails)
            for other, port in behind
        )

    def compose(self, app: Any) -> None:
        """Choose the streams of an application, and where its memory comes from."""
        random = self.random
        app.max_in_flight = random.choice([1, 2, 8, 8, 20])
        app.stream_per = random.choice(["operator", "operator", "branch", "program"])
        if isinstance(self.library, SimulatedFrames) and random.random() < 0.3:
            self.library.pool = BlockMemoryPool(app, "device", 64, POOL)

    def arguments(self, app: Any) -> list[Any]:
        """Return what an operator is given besides its conditions."""
        if self.random.random() < 0.3:
            return []
        return [CudaStreamPool(app, stream_flags=self.random.choice([0, 0, 1]))]

    def declare(self, stage: Stage, spec: Any) -> None:
        """Declare the stream of an operator."""
        if self.of(stage.name).streams == "default":
            spec.default_stream()

    def of(self, name: str) -> Handling:
        """Return what an operator does."""
        name = name.rpartition(".")[2]
        with self._lock:
            if name not in self._handling:
                self._handling[name] = Handling.at_random(Random(f"{self.program.seed} {name}"))
            return self._handling[name]

    # From receive to emit.

    def open(self, name: str, message: Any) -> Any:
        """Return the value of a message, and note its frame."""
        if isinstance(message, dict) and "tag" not in message:  # a dead letter
            return {key: self.open(name, each) for key, each in message.items()}
        found = unwrapped(message)
        if found is None:
            return tuple(self.open(name, each) for each in message)
        tag, frame = found
        handling = self.of(name)
        if handling.holds and handling.random.random() < 0.3:
            frame = handling.random.choice([*self.library.other_forms(frame), lambda: frame])()
            tag = Tag(tag.value, tag.number, False)
        handling.received.append((frame, tag))
        return tag.value

    def work(self, name: str, op_input: Any, op_output: Any, context: Any, ports: list[str]) -> None:
        """Read what was received, change what nobody else has, and hold some of it."""
        handling = self.of(name)
        handling.turns += 1
        random, library = handling.random, self.library
        received, handling.received = handling.received, []
        stream = handling.stream = self._stream(handling, op_input, op_output, context, ports)
        if stream is not None:
            for frame, tag in random.sample(candidates := received + handling.held, len(candidates)):
                if random.random() < handling.reads:
                    library.read(stream, frame, tag.number)
                if tag.is_sole and random.random() < handling.changes:
                    tag.number = next(self._numbers)
                    library.change(stream, frame, tag.number)
            if handling.streams == "hidden":
                join(stream, self.current())
        handling.held += received
        if handling.holds < 60:
            random.shuffle(handling.held)

    def current(self) -> Any:
        """Return the current stream."""
        return here.stream if here.stream is not None else gpu.current_stream()

    def _stream(
        self, handling: Handling, op_input: Any, op_output: Any, context: Any, ports: list[str]
    ) -> Any:
        kind = handling.streams
        if not ports:
            return None
        if op_output is None or kind in ("current", "default"):
            return self.current()
        if kind == "none" or (kind == "late" and handling.turns < 4):
            return None
        if kind == "hidden":
            handling.side = handling.side or self.library.side_stream()
            join(self.current(), handling.side)
            return handling.side
        own = op_input.receive_cuda_stream(ports[0], sync_to_default=kind == "default too")
        if own is None:
            return self.current()
        if kind == "kept handle":
            handling.handle = handling.handle or own
            return handling.handle
        if kind == "named" and (mine := context.allocate_cuda_stream("mine")) is not None:
            senders = [
                each for port in ports for each in op_input.receive_cuda_streams(port) if each is not None
            ]
            context.synchronize_streams(senders, mine)
            if handling.turns == 1:
                op_output.set_cuda_stream(mine, "out")  # which holds for later computes, too
            return mine
        if kind == "several":
            names = ("one", "two")
            streams = [stream for each in names if (stream := context.allocate_cuda_stream(each)) is not None]
            stream = handling.random.choice([*streams, own])
            context.synchronize_streams([own], stream)
            if handling.random.random() < 0.3:
                op_output.set_cuda_stream(handling.random.choice([*streams, own]), "out")
            return stream
        return own

    def message(
        self, name: str, value: Any, op_output: Any = None, context: Any = None
    ) -> tuple[Any, Any, bool]:
        """Return a message with a frame, the event of work that nobody orders, and whether it is constant."""
        handling = self.of(name)
        random = handling.random
        after = None
        can_keep = context is not None  # a function does not say that what it sends is constant
        known = [*handling.held, *handling.made]
        if can_keep and known and random.random() < handling.passes:
            frame, tag = random.choice(known)
            number, is_new = tag.number, False
        else:
            number, is_new = next(self._numbers), True
            frame, after = self._make(handling, number, op_output, context)
        is_sole = is_new and name in self._sole
        if not is_new:
            tag.is_sole = False
        elif can_keep and not is_sole and after is None and handling.holds:
            handling.made[:] = [(frame, Tag(value, number, False))]  # which is sent again, perhaps
        forms = SOLE if name in self._sole else SHARED
        message = forms[handling.form % len(forms)](Tag(value, number, is_sole), frame)
        return message, after, not is_sole

    def put(self, feed: Any, value: Any) -> None:
        """Put a value into a feed, with a frame that is made on a stream of the program."""
        handling, number = self.of(feed.name), next(self._numbers)
        handling.side = handling.side or self.library.side_stream()
        frame = self.library.fresh(handling.side, number)
        feed.put(SHARED[handling.form % len(SHARED)](Tag(value, number, False), frame), stream=handling.side)

    def take_from(self, results: Any) -> None:
        """Take results out on the streams that are current on this thread."""

    def let_go(self, name: str) -> None:
        """Let go of the oldest frames, at the end of a compute."""
        handling = self.of(name)
        del handling.held[: max(len(handling.held) - handling.holds, 0)]

    def _make(self, handling: Handling, number: int, op_output: Any, context: Any) -> tuple[Any, Any]:
        """Return a frame, and the event after the work behind it if nobody else orders it."""
        fresh, making = self.library.fresh, handling.making
        if context is None or making == "current":
            return fresh(self.current(), number), None
        if handling.stream is not None and making != "thread":
            frame = fresh(handling.stream, number)
            if handling.streams == "hidden":
                join(handling.stream, self.current())
            return frame, None
        if making == "named":
            stream = context.allocate_cuda_stream("source") or self.current()
            op_output.set_cuda_stream(stream, "out")
            return fresh(stream, number), None
        handling.side = handling.side or self.library.side_stream()
        if making == "hidden":
            frame = fresh(handling.side, number)
            join(handling.side, self.current())
            return frame, None
        made: list[Any] = []

        def make() -> None:
            gpu.Device(0).set_current()
            made.extend((fresh(handling.side, number), handling.side.stream.record()))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0], made[1]


class OnSlices(Frames):
    """Frames of a device that is divided: each operator is on a slice, by default or by its own pool.

    `seen` has the SMs of the streams on which operators have worked.
    """

    def __init__(self, program: Program, library: Library) -> None:
        super().__init__(program, library)
        self.seen: set[int] = set()

    def compose(self, app: Any) -> None:
        """Divide the device of an application."""
        super().compose(app)
        self.slices = app.add_default_green_context_pool(0, SLICES, self.random.choice([*SLICES]))

    def arguments(self, app: Any) -> list[Any]:
        """Return what says on which slice an operator is."""
        kind = self.random.choice(["", "slice", "default slice", "streams"])
        if not kind:
            return []
        if kind == "default slice":
            return [self.slices]
        chosen = CudaGreenContext(app, self.slices, self.random.choice([*SLICES, "leftover"]))
        return [chosen if kind == "slice" else CudaStreamPool(app, cuda_green_context=chosen)]

    def work(self, name: str, op_input: Any, op_output: Any, context: Any, ports: list[str]) -> None:
        """Work with what was received, and note on how many SMs."""
        super().work(name, op_input, op_output, context, ports)
        handling, declared = self.of(name), self.of(name.partition("[")[0])  # of its replicas
        if handling.stream is not None and handling.streams != "hidden" and declared.streams != "default":
            self.seen.add(handling.stream.stream.resources.sm.sm_count)


class Planned(OnSlices):
    """Frames of a device on which a plan says where operators are, and which share a stream."""

    def compose(self, app: Any) -> None:
        """Leave it to the plan to divide the device."""
        Frames.compose(self, app)

    def arguments(self, app: Any) -> list[Any]:
        """Return nothing: the plan says where an operator is."""
        return []

    def plan(self, graph: Any) -> Plan:
        """Return a plan for a composed graph: two operators of each slice share a stream."""
        free = [operator.name for operator in graph if not operator.spec.is_on_default_stream]
        self.random.shuffle(free)
        slices = {"control": (16, free[:3]), "vision": (40, free[3:5])}
        shared = [names[:2] for _, names in slices.values() if len(names) > 1]
        return Plan("NVIDIA H200 (simulated)", 132, flows_of(graph), slices, shared)


def run_planned(program: Program, traffic: Planned) -> Record:
    """Run a program on frames by a plan."""
    app = RandomApp(program, traffic)
    app.use_plan(traffic.plan(app.compose_graph()))
    return run_app(app)


class InMemory(Plain):
    """Lets the messages of a program be tensors that hold its values, so that a part of it can be captured."""

    def compose(self, app: Any) -> None:
        self.memory, self.own = UnboundedAllocator(app), threading.local()

    def open(self, name: str, message: Any) -> Any:
        if isinstance(message, dict):  # a dead letter
            return {key: self.open(name, each) for key, each in message.items()}
        if isinstance(message, tuple):
            return tuple(self.open(name, each) for each in message)
        stream = gpu.current_stream() or self._own_stream()
        stream.stream.sync()
        return int(read_on_host([message], stream)[0][0])

    def message(
        self, name: str, value: Any, op_output: Any = None, context: Any = None
    ) -> tuple[Any, Any, bool]:
        return self._made(gpu.current_stream(), value), None, False

    def put(self, feed: Any, value: Any) -> None:
        stream = self._own_stream()
        feed.put(self._made(stream, value), stream=stream)

    def _own_stream(self) -> Any:
        """Return the stream of a thread of the program."""
        if not hasattr(self.own, "stream"):
            device = gpu.Device(0)
            device.set_current()
            self.own.stream = gpu.StreamHandle(device.create_stream())
        return self.own.stream

    def take_from(self, results: Any) -> None:
        results.stream = self._own_stream()

    def _made(self, stream: Any, value: int) -> Any:
        def fill(target: np.ndarray[Any, Any]) -> None:
            target.view(np.int64)[0] = value

        return self.filled(stream, fill)

    def filled(self, stream: Any, fill: Callable[..., None], *sources: Any) -> Any:
        """Return a new tensor that is being filled."""
        made = self.memory.allocate_tensor((1,), np.int64, stream=stream)
        kernel = sim.Kernel("k", MS / 10, fill)
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel, *map(_buffer, (made, *sources)))
        return made


class Captured(Operator):
    """A stage whose values a kernel computes."""

    capturable = True

    def __init__(self, fragment: Any, *args: Any, stage: Stage, **kwargs: Any) -> None:
        self.stage = stage
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        (port,) = self.stage.ports
        declare_input(spec, port)
        spec.output("out")
        spec.param("live", 0, live=True)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        stage, (port,) = self.stage, self.stage.ports
        received = op_input.receive(port.name)

        def fill(target: np.ndarray[Any, Any], source: np.ndarray[Any, Any]) -> None:
            value = int(source.view(np.int64)[0])
            target.view(np.int64)[0] = results_of(stage, {port.name: [value]}, 0)[0]

        stream = op_input.receive_cuda_stream(port.name)
        op_output.emit(self.fragment.application.traffic.filled(stream, fill, received), "out")


def run_on_streams(seed: int, library: Library, scheduler: Any) -> Program:
    """Run the program of a seed on any device, and return it."""
    program = make(seed)
    program.clock = "device"
    record = run_program(program, Frames(program, library), scheduler=scheduler)
    assert record.error is None or program.block or any(stage.fails for stage in program.stages), program
    return program
