"""Operators that say that they may be captured, and break the contract: the lint or a comparison finds each.

Each body depends on a number that changes at one frame, in one of the ways in which programs keep numbers. The
first replay is right, since the number is the recorded one. The change is found by the next comparison, at the
latest after `check_every` seconds of the run's clock, and every frame from there on is right.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import queue
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from headrace import CountCondition, Operator, PeriodicCondition, gpu
from headrace.capture import CaptureRefused
from headrace.capture.lint import lint
from headrace.resources import UnboundedAllocator
from tests.harness import App

pytestmark = pytest.mark.usefixtures("machine")

FRAMES, CHANGE, PERIOD_MS = 120, 30, 10
CHECK = 0.1  # seconds: ten frames


@dataclass
class Settings:
    level: int = 1


class Holder:
    level = 1


class Slotted:
    __slots__ = ("level",)

    def __init__(self) -> None:
        self.level = 1


def plain(level: int) -> int:
    return level


@functools.singledispatch
def dispatched(value: object) -> int:
    return LEVELS["now"]


LEVELS = {"now": 1}
shared = multiprocessing.Value(ctypes.c_int, 1)
numbers: queue.Queue[int] = queue.Queue()
settings = Settings()
holder = Holder()
environment = "HEADRACE_TEST_LEVEL"
level = 1


def set_global(value: int) -> None:
    global level
    level = value


def weakly(self: Any) -> int:
    return int(np.array([SimpleNamespace(level=LEVELS["now"])], object)[0].level)


# What compute reads; each of them is 1 at first, and 5 from one frame on.
READS: dict[str, Callable[[Any], int]] = {
    "an attribute that is not declared": lambda self: self.level,
    "an attribute by a computed name": lambda self: getattr(self, "lev" + "el"),
    "keywords of a dataclass": lambda self: plain(**asdict(settings)),
    "an equality of dataclasses": lambda self: 1 if settings == Settings(1) else 5,
    "a function that dispatches": lambda self: dispatched(self),
    "a variable of the module": lambda self: level,
    "a dict of the module": lambda self: LEVELS["now"],
    "an attribute of a class": lambda self: Holder.level,
    "an object of the module": lambda self: holder.level,
    "memory that processes share": lambda self: int(shared.value),
    "another operator": lambda self: self.fragment.graph.find("source").level,
    "the application": lambda self: self.fragment.level,
    "a formatted text": lambda self: int(f"{settings.level}"),
    "the environment": lambda self: int(os.environ[environment]),
    "a file": lambda self: int(Path(os.environ["HEADRACE_TEST_FILE"]).read_text()),
    "a host array": lambda self: int(self.array[0]),
    "a structure of ctypes": lambda self: int(self.number.value),
    "a list in an attribute": lambda self: self.values[0],
    "a plain object that start made": lambda self: self.plain.level,
    "a slot of an object that start made": lambda self: self.slotted.level,
    "a closure that start made": lambda self: self.closure(),
    "an import inside": lambda self: __import__(__name__, fromlist=["level"]).level,
    "an object in an array of objects": weakly,
    "a nested function": lambda self: (lambda: LEVELS["now"])(),
    "an exception": lambda self: _raised(),
}


def _raised() -> int:
    try:
        raise ValueError(LEVELS["now"])
    except ValueError as error:
        return int(error.args[0])


def set_all(app: Any, value: int, file: Path) -> None:
    """Set all of these numbers."""
    set_global(value)
    LEVELS["now"] = settings.level = Holder.level = value
    shared.value = value
    os.environ[environment] = str(value)
    os.environ["HEADRACE_TEST_FILE"] = str(file)
    file.write_text(str(value))
    app.level = app.source.level = value
    if app.member is not None:
        app.member.level, app.member.array[0], app.member.values[0] = value, value, value
        app.member.number.value = app.member.plain.level = app.member.slotted.level = value


class Source(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")
        spec.param("memory")

    def start(self) -> None:
        self.number = 0

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        if self.number == self.fragment.change_at:
            self.fragment.change()
        stream = context.allocate_cuda_stream("own")
        op_output.set_cuda_stream(stream, "out")
        frame = self.memory.allocate_tensor((16,), "int32", "device", stream=stream)
        fill(stream, frame, self.number)
        op_output.emit(frame, "out")
        self.number += 1


class Member(Operator):
    """Adds what it reads to each frame."""

    capturable = True

    def __init__(self, fragment: Any, *args: Any, read: Callable[[Any], int], **kwargs: Any) -> None:
        self.read = read
        self.level, self.values = 1, [1]
        self.array, self.number = np.ones(1, np.int32), ctypes.c_int(1)
        self.plain, self.slotted = SimpleNamespace(level=1), Slotted()
        super().__init__(fragment, *args, **kwargs)

    def start(self) -> None:
        slotted = self.slotted = Slotted()
        self.plain = SimpleNamespace(level=1)
        self.closure = lambda: slotted.level

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")
        spec.param("memory")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        result = self.memory.allocate_tensor((16,), "int32", "device", stream=stream)
        fill(stream, result, self.read(self), frame)
        op_output.emit(result, "out")


class Sink(Operator):
    def setup(self, spec: Any) -> None:
        spec.input("in")

    def start(self) -> None:
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        from headrace.tensor.copies import read_on_host

        frame = op_input.receive("in")
        self.seen.append(int(read_on_host([frame], op_input.receive_cuda_stream("in"))[0][0]))


def fill(stream: Any, out: Any, number: int, *source: Any) -> None:
    """Set a frame to a number, or to that of another frame plus the number."""

    def effect(out: Any, *source: Any) -> None:
        out.view(np.int32)[:] = number + (source[0].view(np.int32) if source else 0)

    kernel: Any = gpu.kernel("fill", source="", seconds=1e-6, effect=effect)
    config = gpu.LaunchConfig(grid=1, block=32)
    gpu.launch(stream.stream, config, kernel.on(stream.device), out, *source)


def run(read: Callable[[Any], int], file: Path, change_at: int = CHANGE, **options: Any) -> Any:
    def compose(app: Any) -> None:
        memory = UnboundedAllocator(app, name="memory")
        clock = PeriodicCondition(app, PERIOD_MS * 1_000_000)
        app.member = None
        app.source = Source(app, CountCondition(app, FRAMES), clock, memory=memory, name="source")
        app.member = Member(app, read=read, memory=memory, name="member")
        app.sink = Sink(app, name="sink")
        app.add_flow(app.source, app.member, app.sink)
        app.change_at = change_at
        app.change = lambda: set_all(app, 5, file)
        set_all(app, 1, file)
        app.segment = app.capture(app.member, **options)

    app = App(compose)
    with mock.patch.dict(os.environ):  # set_all changes it
        app.run()
    return app


RIGHT = [number + (1 if number < CHANGE else 5) for number in range(FRAMES)]


@pytest.mark.turns("read")  # a comparison sees no more than the frames
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_is_not_declared_makes_frames_wrong_for_a_bounded_time(read: Any, tmp_path: Path) -> None:
    with pytest.warns(CaptureRefused, match="differs from a compute of the same frame: member.out: 16 of 16"):
        app = run(read, tmp_path / "level.txt", check_every=CHECK)
    wrong = [
        number for number, (seen, right) in enumerate(zip(app.sink.seen, RIGHT, strict=True)) if seen != right
    ]
    assert app.segment.state == "eager"
    assert wrong == list(range(CHANGE, CHANGE + len(wrong)))
    assert len(wrong) * PERIOD_MS <= 1e3 * CHECK


def test_an_endless_period_compares_the_first_replay_alone(tmp_path: Path) -> None:
    app = run(READS["a dict of the module"], tmp_path / "level.txt", check_every=float("inf"))
    assert app.segment.state == "captured"
    assert app.sink.seen[-1] == FRAMES - 1 + 1


def test_every_frame_is_right_if_every_frame_is_compared(tmp_path: Path) -> None:
    with pytest.warns(CaptureRefused):
        app = run(READS["a dict of the module"], tmp_path / "level.txt", check_every=0)
    assert app.sink.seen == RIGHT
    assert app.segment.replayed == CHANGE


def test_a_second_is_the_longest_time_by_default(tmp_path: Path) -> None:
    with pytest.warns(CaptureRefused):
        app = run(READS["a file"], tmp_path / "level.txt")
    wrong = [seen for seen, right in zip(app.sink.seen, RIGHT, strict=True) if seen != right]
    assert 0 < len(wrong) * PERIOD_MS <= 1_000


# The lint.


class Careless(Member):
    """Does most of what it should not do."""

    capturable = True
    gain = 1.0

    def start(self) -> None:
        self.count = 0
        self.history: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.count += 1
        self.history.append(self.count)
        self.last = op_input.receive("in")
        self.add(self.gain)
        op_output.emit(self.last, "out")

    def add(self, gain: float) -> None:
        global level
        level = int(gain + settings.level)


class Careful(Member):
    """Does what it should."""

    capturable = True

    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.param("gain", 1.0)
        spec.state("previous")

    def start(self) -> None:
        self.table = np.ones(4)
        self.previous = None

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        if self.previous is not None and self.gain > 1:
            fill(op_input.receive_cuda_stream("in"), frame, len(self.table) + FRAMES)
        self.previous = frame
        op_output.emit(frame, "out")


def findings(kind: type[Member]) -> list[tuple[str, str]]:
    app = App(lambda app: None)
    operator = kind(app, read=plain, memory=None, name="member")
    lines = Path(__file__).read_text().splitlines()
    return [(finding.what, lines[finding.line - 1].strip()) for finding in lint(operator)]


def test_the_lint_names_what_is_not_declared_and_its_line() -> None:
    found = findings(Careless)
    assert ("compute assigns `self.count`, which is not declared (spec.state)", "self.count += 1") in found
    assert (
        "compute calls `self.history.append`, an effect on the host",
        "self.history.append(self.count)",
    ) in found
    assert ("compute reads `self.gain`, which is not declared", "self.add(self.gain)") in found
    assert ("compute assigns level outside of it", "global level") in found
    assert (
        "compute reads `settings`, a variable outside of it",
        "level = int(gain + settings.level)",
    ) in found


def test_the_lint_finds_nothing_in_an_operator_that_declares_what_it_uses() -> None:
    assert findings(Careful) == []


def test_the_lint_knows_what_is_set_in_init_alone() -> None:
    """It could be changed from outside, and nobody would notice: a parameter could not."""
    (finding, *_) = findings(Member)
    assert finding == (
        "compute reads `self.read`, which is not declared",
        "fill(stream, result, self.read(self), frame)",
    )
