"""The same work in ezmsg: units in one process, or in two."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ezmsg.core as ez
import numpy as np

from benchmarks.common import resident
from benchmarks.sides.chains import BRANCHES, messages_of
from benchmarks.sides.waiting import grown

SIZE, RATE = 4 << 20, 200.0


class SourceSettings(ez.Settings):
    messages: int
    rate: float = 0.0
    size: int = 0


class SinkSettings(ez.Settings):
    messages: int
    inputs: int = 1
    to: str = ""


class Source(ez.Unit):
    SETTINGS = SourceSettings
    OUTPUT = ez.OutputStream(Any)

    @ez.publisher(OUTPUT)
    async def send(self) -> Any:
        settings = self.SETTINGS
        due = time.perf_counter()
        frame = np.ones(settings.size, np.uint8) if settings.size else None
        for number in range(1, settings.messages + 1):
            if settings.rate:
                due = max(due + 1 / settings.rate, time.perf_counter())
                time.sleep(max(due - time.perf_counter(), 0))
            began = time.perf_counter_ns()
            yield self.OUTPUT, number if frame is None else (began, frame)


class Through(ez.Unit):
    INPUT = ez.InputStream(Any)
    OUTPUT = ez.OutputStream(Any)

    @ez.subscriber(INPUT)
    @ez.publisher(OUTPUT)
    async def on_message(self, message: Any) -> Any:
        yield self.OUTPUT, message


class AddOne(Through):
    @ez.subscriber(Through.INPUT)
    @ez.publisher(Through.OUTPUT)
    async def on_message(self, message: Any) -> Any:
        yield self.OUTPUT, message + 1


class Sink(ez.Unit):
    """Adds up what it receives, and writes down when it had the first and the last message."""

    SETTINGS = SinkSettings
    INPUT = ez.InputStream(Any)

    async def initialize(self) -> None:
        self.total = self.received = self.began = 0
        self.latencies: list[float] = []
        self.memory: list[float] = []

    @ez.subscriber(INPUT)
    async def on_message(self, message: Any) -> None:
        now = time.perf_counter_ns()
        self.began = self.began or now
        self.received += 1
        if isinstance(message, tuple):
            self.latencies.append((now - message[0]) / 1e3)
            self.total += int(message[1][-1])
        else:
            self.total += message
        if self.received in (10_000, self.SETTINGS.messages):
            self.memory.append(resident())
        if self.received == self.SETTINGS.messages * self.SETTINGS.inputs:
            middle = float(np.median(self.latencies)) if self.latencies else 0.0
            took = (now - self.began) / 1e3
            Path(self.SETTINGS.to).write_text(
                f"{took} {self.total} {middle} {self.memory[0]} {self.memory[-1]}"
            )
            raise ez.NormalTermination


def _run(
    source: Source, between: list[list[Through]], sink: Sink, to: str, apart: bool = False
) -> list[float]:
    """Run rows of units, each from the source to the sink; return the sink's figures."""
    components: dict[str, Any] = {"SOURCE": source, "SINK": sink}
    edges: list[tuple[Any, Any]] = []
    for number, row in enumerate(between):
        components.update({f"THROUGH{number}_{place}": unit for place, unit in enumerate(row)})
        for one, other in pairwise([source, *row, sink]):
            edges.append((one.OUTPUT, other.INPUT))
    ez.run(components=components, connections=edges, process_components=[sink] if apart else None)
    return [float(word) for word in Path(to).read_text().split()]


def chain(length: int, *, share: float) -> tuple[float, int]:
    """Return the microseconds per step, and the sum of what arrived."""
    messages = messages_of(length, share / 20)  # a step takes far longer
    with TemporaryDirectory() as folder:
        to = f"{folder}/sink"
        source, sink = Source(SourceSettings(messages)), Sink(SinkSettings(messages, to=to))
        took, total, *_ = _run(source, [[Through() for _ in range(length - 2)]], sink, to)
    full = messages_of(length, share)
    # As many messages as the others have would have added up to:
    is_right = int(total) == messages * (messages + 1) // 2
    return took / (messages * length), full * (full + 1) // 2 if is_right else int(total)


def fan_out(*, share: float) -> tuple[float, int]:
    """Return the microseconds per frame, and the sum of what arrived."""
    frames = max(int(20_000 * share), 50)
    few = max(frames // 10, 50)
    with TemporaryDirectory() as folder:
        to = f"{folder}/sink"
        source, sink = Source(SourceSettings(few)), Sink(SinkSettings(few, BRANCHES, to))
        took, total, *_ = _run(source, [[AddOne()] for _ in range(BRANCHES)], sink, to)
    is_right = int(total) == BRANCHES * (few * (few + 1) // 2 + few)
    return took / few, BRANCHES * (frames * (frames + 1) // 2 + frames) if is_right else int(total)


def memory(*, share: float) -> tuple[float, int, str]:
    """Return the MiB of the process after a million messages, their number, and what it has grown by."""
    messages = max(int(1_000_000 * share), 20_000)
    with TemporaryDirectory() as folder:
        to = f"{folder}/sink"
        source, sink = Source(SourceSettings(messages)), Sink(SinkSettings(messages, to=to))
        _, total, _, *sizes = _run(source, [[Through()]], sink, to)
    is_right = int(total) == messages * (messages + 1) // 2
    return sizes[-1], messages if is_right else int(total), grown(sizes)


def two_processes(*, share: float) -> tuple[float, int]:
    """Return the median microseconds that an array took to the other process, and how many arrived whole."""
    frames = max(int(600 * share), 50)
    with TemporaryDirectory() as folder:
        to = f"{folder}/sink"
        source, sink = Source(SourceSettings(frames, RATE, SIZE)), Sink(SinkSettings(frames, to=to))
        _, total, middle, *_ = _run(source, [[]], sink, to, apart=True)
    return middle, int(total)
