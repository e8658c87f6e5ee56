"""Captured segments beside plain operators, and readers that come and go: no frame is wrong."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu
from headrace.resources import CudaStreamPool, UnboundedAllocator
from tests.harness import SCHEDULERS, Step, run
from tests.harness.segments import Numbers, Work, _memory, launch
from tests.limits import examples

FRAMES = 24
MS = 1e-3


class Program:
    """A row of stages, each of which adds a number; a part of it is captured, and readers look at it late."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        # The numbers that each reader found, and how many frames it read.
        self.found: dict[str, list[int]] = {}
        self.read: dict[str, int] = {}

    def compose(self, app: Any) -> None:
        random = self.random
        app.stream_per = random.choice(["operator", "operator", "branch", "program"])
        memory = UnboundedAllocator(app)
        given = [CudaStreamPool(app, max_size=random.choice([0, 2, 3]))] if random.random() < 0.5 else []
        self.first = Sending(
            app, CountCondition(app, FRAMES), *given, alloc=memory, milliseconds=self.time(), name="first"
        )
        self.first.program = self
        self.stages: list[Any] = [self.first]
        self.plus = [0]
        for number in range(random.randint(2, 5)):
            plus = random.randint(1, 9)
            stage = Work(
                app, *given, alloc=memory, plus=plus, milliseconds=self.time(), name=f"stage {number}"
            )
            app.add_flow(self.stages[-1], stage)
            self.stages.append(stage)
            self.plus.append(self.plus[-1] + plus)
        begin = random.randint(1, len(self.stages) - 1)
        end = random.randint(begin + 1, len(self.stages))
        captured = self.stages[begin:end]
        app.capture(*captured, **random.choice([{}, {"check_every": None}]))
        # Frames inside a segment are its own; the others have readers.
        self.ends = [n for n, stage in enumerate(self.stages) if stage not in captured[:-1]]
        readers = [self.reader(app, n, f"reader {n}") for n in self.ends]
        if random.random() < 0.5 and len(readers) > 1:
            app.share_stream(*random.sample(readers, 2))

    def reader(self, app: Any, place: int, name: str) -> Step:
        """Add an operator that reads what a stage sends, and holds some of it."""
        held: list[Any] = []
        keeps = self.random.choice([0, 0, 1, 3])
        self.found[name], self.read[name] = [], 0

        def body(step: Any, op_input: Any, op_output: Any) -> None:
            held.append(op_input.receive("in"))
            stream = gpu.current_stream() if step.ticks % 2 else op_input.receive_cuda_stream("in")
            while len(held) > keeps:
                frame = held.pop(0)
                self.read[name] += 1
                look = partial(self.look, name, self.plus[place])
                launch(stream, self.time() * MS, look, _memory(frame))
                del frame

        made = Step(app, inputs=["in"], body=body, name=name)
        app.add_flow(self.stages[place], made)
        return made

    def look(self, name: str, plus: int, data: Any) -> None:
        self.found[name].append(int(data.view(np.int32)[0]) - plus)

    def time(self) -> float:
        return self.random.choice([0.01, 0.1, 1.0, 3.0])

    def change(self, app: Any, number: int) -> None:
        """Now and then, let a reader come, or the last one that came go."""
        plain = [n for n in self.ends if n == 0]
        if number in (6, 10) and self.random.random() < 0.7:
            self.late = self.reader(app, plain[0], f"late {number}")
        elif number == 14 and hasattr(self, "late"):
            app.remove_flow(self.first, self.late)


class Sending(Numbers):
    program: Any

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        self.program.change(self.fragment, self.calls)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seed", range(examples(24)))
def test_captured_frames_beside_plain_ones_are_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams" if seed % 2 else "")
    program = Program(seed)
    (segment,) = run(program.compose, SCHEDULERS[seed % len(SCHEDULERS)]).segments
    assert (segment.state, segment.replayed) == ("captured", FRAMES - 1)
    assert {name: len(found) for name, found in program.found.items()} == program.read
    for name, numbers in program.found.items():
        first = 0 if name.startswith("reader") else min(numbers, default=0)
        assert numbers == list(range(first, first + len(numbers))), name
