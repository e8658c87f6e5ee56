"""An error of the driver at any call of a recording: the segment is not recorded, and every frame is right."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from headrace._runtime.scheduling.engine import is_compiled
from headrace.capture import CaptureRefused
from headrace.capture import segment as captured
from headrace.gpu import sim
from headrace.gpu.sim.graph import GraphBuilder
from headrace.gpu.sim.memory import Buffer
from tests.gpu.segment_programs import Sink, Source, Stage, chain, run_with

CALLS = [
    (sim.Stream, "wait"),
    (sim.Stream, "record"),
    (sim.Stream, "sync"),
    (sim.Device, "allocate"),
    (sim.Device, "create_stream"),
    (GraphBuilder, "begin_building"),
    (GraphBuilder, "end_building"),
    (Buffer, "close"),
]


def compose(app: Any) -> None:
    members = [Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3)]
    chain(app, Source(app, frames=7, name="source"), *members, Sink(app, name="sink"))
    app.capture(*members, warmup=1)


class Faults:
    """Counts the calls of the driver while a frame is recorded, and raises at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        self.count = 0
        self._is_recording = False
        for kind, name in CALLS:
            monkeypatch.setattr(kind, name, self._around(getattr(kind, name)))
        record = captured.record

        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._is_recording = True
            try:
                return record(*args, **kwargs)
            finally:
                self._is_recording = False

        monkeypatch.setattr(captured, "record", recorded)

    def _around(self, call: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            # Python ignores what a finaliser raises.
            if self._is_recording and sys._getframe(1).f_code.co_name != "__del__":
                self.count += 1
                if self.count == self.at:
                    self._is_recording = False
                    raise sim.CUDAError("CUDA_ERROR_UNKNOWN: of the test")
            return call(*args, **kwargs)

        return called


@pytest.fixture
def without_collector() -> Iterator[None]:
    """The garbage collector closes buffers at any time, which would be counted, and ignores errors."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.skipif(is_compiled(), reason="compiled code cannot be patched")
def test_an_error_at_any_call_is_a_refusal(machine: sim.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_use() -> int:
        gc.collect()
        memory = machine.devices[0].memory
        with memory._lock:
            memory._sort_freed()
            return int(memory.in_use)

    expected = run_with(compose, "off").seen
    faults = Faults(monkeypatch)
    assert run_with(compose).segment.state == "captured"
    calls, before = faults.count, in_use()
    assert calls > 15
    harmless = 0
    for at in range(1, calls + 1):
        faults.at, faults.count = at, 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CaptureRefused)
            ran = run_with(compose)
        assert ran.seen == expected, at
        if ran.segment.state == "captured":
            harmless += 1  # memory came back, and a wait in its place makes up for the event
        else:
            assert ran.segment.state == "eager", at
            assert "CUDA_ERROR_UNKNOWN: of the test" in ran.segment.reason, at
        del ran
        assert in_use() == before, at
    assert harmless <= 2
