"""Programs of several shapes: frames, order and outcome are the same in one process and in several."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from headrace import Application, Fragment, op
from headrace.parts.cut import Cut
from headrace.parts.idleness import IdleReport
from tests.harness import PATIENCE
from tests.harness.processes import run_forked
from tests.parts.memory_link import MemoryLink, MemorySender
from tests.parts.running import MemoryLinks, run_parts

STAGES = Path(__file__).parents[2] / "docs" / "programs"

PROGRAM = """
import logging
import sys

import numpy as np
from stages import Camera, Stage

from headrace import Application, CountCondition, Fragment, Operator, op
from headrace.observe import ConsoleLogger
from headrace.resources import UnboundedAllocator
from headrace.tensor.copies import simulated_memory


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once, since several threads write


@op
def numbers():
    yield from range(8)


@op
def triple(value):
    return 3 * value


@op
def show(value):
    say("shown:", value)


class Reader(Operator):
    def setup(self, spec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        frame = op_input.receive("in")
        op_input.receive_cuda_stream("in").stream.sync()
        values = np.unique(simulated_memory(frame).view(np.float32))
        say("frame:", frame.device.is_cuda, values.tolist())


class Edge(Fragment):
    def compose(self):
        memory = UnboundedAllocator(self)
        self.add_operator(Camera(self, CountCondition(self, 8), memory=memory, name="camera"))
        self.add_operator(numbers(self, name="numbers"))


class Server(Fragment):
    def compose(self):
        memory = UnboundedAllocator(self)
        dark = Stage(self, memory=memory, name="dark", plus=-1.0)
        flat = Stage(self, memory=memory, name="flat", times=2.0)
        self.add_flow(dark, flat)
        self.capture(dark, flat, name="enhance")
        self.add_operator(triple(self, name="triple", workers=2))


class Desk(Fragment):
    def compose(self):
        self.add_operator(Reader(self, name="reader"))
        self.add_operator(show(self, name="show"))


class Lines(ConsoleLogger):
    def now(self):
        return 0


class Plant(Application):
    def compose(self):
        self.add_data_logger(Lines(["*.show", "*.triple*"]))
        edge, server, desk = Edge(self, "edge"), Server(self, "server"), Desk(self, "desk")
        self.add_flow(edge, server, {("camera.out", "dark.in"), ("numbers.out", "triple.value")}, size=2)
        self.add_flow(server, desk, {("flat.out", "reader.in"), ("triple.out", "show.value")})


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="logged: %(message)s")
    for processes in (False, True):
        outcome = Plant().run(processes=processes)
        computes = {name: each.computes for name, each in outcome.operators.items() if "[" not in name}
        say("outcome:", outcome.ended_by, computes, outcome.undelivered, outcome.dropped)
        say("segments:", [(each.name, each.state, each.frames) for each in outcome.segments])
        say("---")
"""


def test_frames_of_a_device_a_segment_replicas_and_a_logger(tmp_path: Path) -> None:
    program = tmp_path / "plant.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(STAGES)!r})\n{PROGRAM}")
    done = run_forked(program, cwd=tmp_path, HEADRACE_PROCESSES=None)
    assert done.returncode == 0, done.stdout + done.stderr
    alone, cut, rest = (part.splitlines() for part in done.stdout.split("---\n"))
    assert rest == []
    for kind in ("frame: ", "shown: ", "outcome: ", "segments: "):
        assert [line for line in cut if line.startswith(kind)] == [
            line for line in alone if line.startswith(kind)
        ]
    assert [line for line in alone if line.startswith("frame: ")] == [
        f"frame: True [{2.0 * (number - 1)}]" for number in range(8)
    ]
    assert "segments: [('server.enhance', 'captured', 8)]" in alone
    logged = sorted(line for line in alone if _is_logged(line))
    assert len(logged) == 8
    assert sorted(line for line in cut if _is_logged(line)) == logged


# A sender that waits for memory.


@op
def numbers() -> Any:
    yield from range(3)


@op
def keep(value: int, *, kept: list[int]) -> None:
    kept.append(value)


class Source(Fragment):
    def compose(self) -> None:
        self.add_operator(numbers(self, name="numbers"))


class Sink(Fragment):
    def compose(self) -> None:
        self.add_operator(keep(self, name="keep", kept=self._headrace.application.kept))


class Pair(Application):
    kept: list[int]

    def compose(self) -> None:
        self.add_flow(Source(self, "source"), Sink(self, "sink"), {("numbers.out", "keep.value")})


class LateSender(MemorySender):
    """A sender that has no memory until its part has looked whether it is idle."""

    def __init__(self, link: MemoryLink) -> None:
        super().__init__(link)
        self.has_looked = threading.Event()
        self.thread: threading.Thread | None = None

    def send(self, sample: Any) -> bool:
        if self.thread is None:
            self.link.memory = 0
            self.thread = threading.Thread(target=self._find_memory)
            self.thread.start()
        return super().send(sample)

    def _find_memory(self) -> None:
        assert self.has_looked.wait(PATIENCE)
        self.link.memory = 1 << 30
        self.on_event()


def test_a_part_is_not_idle_while_a_message_waits_for_memory() -> None:
    kept: list[int] = []
    links, name = MemoryLinks(), "source.numbers.out -> sink.keep.value"
    link = links.made[name] = MemoryLink(name, 1)
    sender = link.sender = LateSender(link)
    reports: list[IdleReport | None] = []

    def make() -> Application:
        app = Pair([])
        app.kept = kept
        return app

    def prepare(cut: Cut) -> None:
        look = cut.idleness._report

        def look_and_tell() -> None:
            look()
            if link.memory == 0:
                reports.append(cut.idleness._last)
                sender.has_looked.set()

        if cut.part == "source":
            cut.idleness._report = look_and_tell  # type: ignore[method-assign]

    result = run_parts(make, ["source", "sink"], links, prepare)
    assert sender.thread is not None
    sender.thread.join()
    assert not result.errors
    assert reports
    assert not any(reports)
    assert kept == [0, 1, 2]


def _is_logged(line: str) -> bool:
    return line.startswith("logged: ") and "show" in line
