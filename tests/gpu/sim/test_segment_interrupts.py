"""An interrupt at any line of recording, verifying and replaying ends the run and leaves nothing behind."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from headrace import gpu
from headrace._runtime.scheduling.engine import is_compiled
from headrace.gpu import sim
from tests.gpu.segment_programs import Sink, Source, Stage, chain, gather, is_captured, launch, run_with
from tests.gpu.segment_programs import Work as Operator
from tests.harness import App, greedy
from tests.limits import examples

PACKAGE = "headrace/capture/"


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """The handler of a program that installs none; a parent may have left the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def compose(app: Any) -> None:
    def begin(self: Any) -> None:
        self.total = self.new(self._headrace.node.streams.run.default_stream().handle)

    def add_up(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        frame = op_input.receive("in")
        launch(op_input.receive_cuda_stream("in"), gather, self.total, frame, frame.shape[0])
        op_output.emit(frame, "out")

    members = [Stage(app, name="one"), Operator(app, body=add_up, begin=begin, name="two")]
    chain(app, Source(app, frames=7, name="source"), *members, Sink(app, name="sink"))
    app.capture(*members, warmup=1)


class Interrupt:
    """Sends SIGINT at one of the lines of the package."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if PACKAGE not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self


def lines_of_a_run() -> int:
    counter = Interrupt(-1)
    sys.settrace(counter)
    try:
        App(compose, greedy).run()
    finally:
        sys.settrace(None)
    return counter.lines


def in_use(machine: sim.Machine) -> int:
    gc.collect()
    memory = machine.devices[0].memory
    with memory._lock:
        memory._sort_freed()
        return int(memory.in_use)


@pytest.mark.skipif(is_compiled(), reason="compiled code has no lines")
def test_an_interrupt_at_any_line(machine: sim.Machine) -> None:
    lines_of_a_run()
    lines = lines_of_a_run()  # the first one finds out more than later ones
    assert lines > 1_000
    before = in_use(machine)
    for at in range(1, lines, lines // examples(40)):
        sys.settrace(Interrupt(at))
        try:
            with pytest.raises(KeyboardInterrupt):
                App(compose, greedy).run()
        finally:
            sys.settrace(None)
        assert in_use(machine) == before, at
        assert not machine.captures, at
        assert gpu.current_stream() is None, at
    assert is_captured(run_with(compose), 7, unreplayed=3)
