"""The calls of the driver in a replayed frame: as few as its order needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from headrace._runtime.scheduling.engine import is_compiled
from headrace.capture.segment import CapturedSegment
from headrace.gpu import sim
from headrace.gpu.sim.backend import SimBackend
from tests.harness import App
from tests.harness.segments import Numbers, Work, chain

pytestmark = pytest.mark.skipif(is_compiled(), reason="compiled classes cannot be patched")
# Records of the allocator, whose block comes back: on the streams of its producer and of the segment.
RETURNED = 2
CALLS = (
    *((sim.Graph, "launch"), (sim.Stream, "wait"), (sim.Stream, "record"), (sim.Buffer, "copy_from")),
    *((SimBackend, "write_words"), (SimBackend, "copy")),
)


@contextmanager
def counted(found: list[Counter[str]]) -> Iterator[None]:
    """Collect the driver's calls of each replay."""
    inside: list[Counter[str]] = []

    def counting(name: str, call: Any) -> Any:
        def counted_call(*args: Any, **kwargs: Any) -> Any:
            for counter in inside:
                counter[name] += 1
            return call(*args, **kwargs)

        return counted_call

    def watched(segment: CapturedSegment, compute: Any, *args: Any) -> None:
        replayed = segment.replayed
        inside.append(Counter())
        try:
            compute(*args)
        finally:
            calls = inside.pop()
            if segment.replayed > replayed:
                found.append(calls)

    compute = CapturedSegment.compute

    def compute_watched(self: CapturedSegment, *args: Any) -> None:
        watched(self, partial(compute, self), *args)

    patches = [mock.patch.object(kind, name, counting(name, getattr(kind, name))) for kind, name in CALLS]
    with mock.patch.object(CapturedSegment, "compute", compute_watched):
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()


def calls_of(compose: Any, **settings: Any) -> list[Counter[str]]:
    """Return the calls of each replay but the first, which is compared with a compute."""
    found: list[Counter[str]] = []
    with counted(found):
        app = App(compose, **settings)
        app.run()
    assert app.segment.state == "captured", app.segment.reason
    return found[1:]


def test_a_frame_is_a_wait_a_launch_and_a_record() -> None:
    found = calls_of(lambda app: chain(app, 30, check_every=None))
    assert found
    assert all(calls == {"wait": 1, "launch": 1, "record": 1 + RETURNED} for calls in found)


class Scales(Work):
    """Asks for a knob, and does not use it; that of the first one follows a property."""

    capturable = True
    number = 0

    @property
    def offset(self) -> int:
        return self.number

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        context.knob("offset" if self.name == "one" else "gain", np.float64, 1)
        super().compute(op_input, op_output, context)


@pytest.mark.parametrize("changed", [0, 1, 3])
def test_knobs_of_a_segment_are_written_by_one_call_and_only_if_they_changed(changed: int) -> None:
    def compose(app: Any) -> None:
        with mock.patch("tests.harness.segments.Work", Scales):
            chain(app, 20, check_every=None)

    frames = iter(range(1000))

    def sending(self: Any, *args: Any) -> None:
        number = next(frames)
        for operator in self.fragment.stages[:changed]:
            if operator.name == "one":
                operator.number = number
            else:
                operator.set_knob("gain", 1.5 + number)
        send(self, *args)

    send = Numbers.compute
    with mock.patch.object(Numbers, "compute", sending):
        found = calls_of(compose)[2:]
    assert all(calls["write_words"] == bool(changed) for calls in found)
    assert all(calls["launch"] == 1 and calls["record"] == 1 + RETURNED for calls in found)
