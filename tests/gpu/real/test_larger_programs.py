"""Frames on a real GPU through what larger programs are made of: feeds, replicas, joins, ends, changes in a run.

Before each frame is filled, a kernel spins on the same stream: who does not wait for the stream sees another frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import Application, Operator, aligned, op
from headrace.operators import FeedOp, ResultsOp
from tests.gpu.kernels import SPIN_SOURCE
from tests.harness import MakeScheduler, run

SIZE = 1 << 20
FRAMES = 60
SPIN = 200_000  # nanoseconds

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture(params=["cupy", "torch"])
def make(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """Fill a frame with a number on the current stream of a library, late."""
    library = pytest.importorskip(request.param)
    if request.param == "torch":

        def with_torch(value: int) -> Any:
            library.cuda._sleep(2 * SPIN)  # cycles, of which there are about two in a nanosecond
            return library.full((SIZE,), value, dtype=library.int32, device="cuda")

        return with_torch
    kernel = library.RawKernel(SPIN_SOURCE, "spin")

    def with_cupy(value: int) -> Any:
        kernel((1,), (32,), (np.int64(SPIN),))
        return library.full(SIZE, value, dtype=library.int32)

    return with_cupy


def extremes(frame: Any) -> tuple[int, int]:
    """Return the largest and the smallest value; waits for the stream."""
    return int(frame.max()), int(frame.min())


def test_frames_that_are_put_in_and_taken_out(make: Callable[[int], Any]) -> None:
    @op
    def double(frame: Any) -> Any:
        return frame * 2

    class App(Application):
        def compose(self) -> None:
            frames, doubled = FeedOp(self, name="frames"), double(self)
            self.add_flow(frames, doubled, ResultsOp(self, name="doubled"))

    app = App()
    with app.running():
        feed, results = app.feed("frames"), app.results("doubled")
        found = []
        for number in range(FRAMES):
            feed.put(make(number))
            found.append(extremes(next(results)))
    assert found == [(2 * number, 2 * number) for number in range(FRAMES)]


@pytest.mark.parametrize("ordered", [True, False])
def test_frames_through_replicas(make: Callable[[int], Any], scheduler: MakeScheduler, ordered: bool) -> None:
    found: list[tuple[int, int]] = []

    @op
    def source() -> Any:
        for number in range(FRAMES):
            yield make(number)

    @op
    def double(frame: Any) -> Any:
        return frame * 2

    @op
    def check(frame: Any) -> None:
        found.append(extremes(frame))

    def compose(app: Any) -> None:
        doubled = double(app, workers=3, ordered=ordered)
        app.add_flow(source(app), doubled, check(app))

    run(compose, scheduler, clock=None)
    expected = [(2 * number, 2 * number) for number in range(FRAMES)]
    assert (found if ordered else sorted(found)) == expected


def test_frames_that_are_joined_by_time(make: Callable[[int], Any], scheduler: MakeScheduler) -> None:
    found: list[tuple[int, int]] = []

    @op
    def camera(*, step: int, context: Any) -> Any:
        for number in range(0, FRAMES, step):
            context.acq_timestamp = 1_000_000 * (number + 1)
            yield make(number)

    @op(join=aligned(0))
    def pair(left: Any, right: Any) -> Any:
        return left - 2 * right

    @op
    def check(frame: Any) -> None:
        found.append(extremes(frame))

    def compose(app: Any) -> None:
        pairs = pair(app)
        app.add_flow(camera(app, step=2), pairs, {("out", "left")})
        app.add_flow(camera(app, step=3), pairs, {("out", "right")})
        app.add_flow(pairs, check(app))

    run(compose, scheduler, clock=None)
    assert found == [(-number, -number) for number in range(0, FRAMES, 6)]


def test_frames_that_are_left_at_the_end(make: Callable[[int], Any], scheduler: MakeScheduler) -> None:
    found: list[tuple[int, int]] = []

    class Sums(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

        def start(self) -> None:
            self.batch: list[Any] = []

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.batch.append(op_input.receive("in"))
            if len(self.batch) == 4:
                op_output.emit(sum(self.batch), "out")
                self.batch = []

        def end(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.batch:
                op_output.emit(sum(self.batch), "out")

    @op
    def source() -> Any:
        for number in range(6):
            yield make(number)

    @op
    def check(frame: Any) -> None:
        found.append(extremes(frame))

    def compose(app: Any) -> None:
        sums = Sums(app)
        app.add_flow(source(app), sums, check(app))

    run(compose, scheduler, clock=None)
    assert found == [(6, 6), (9, 9)]


@pytest.mark.parametrize("watched", [False, True])
def test_frames_for_an_operator_that_joins_the_run(
    make: Callable[[int], Any], scheduler: MakeScheduler, watched: bool
) -> None:
    found: dict[str, list[tuple[int, int]]] = {"first": [], "late": []}

    @op
    def check(frame: Any, *, where: str) -> None:
        found[where].append(extremes(frame + 1))

    class Source(Operator):
        def setup(self, spec: Any) -> None:
            spec.output("out")

        def start(self) -> None:
            self.number = 0

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            app: Any = self.fragment
            if self.number == 20:
                app.add_flow(self, check(app, where="late"))
            if self.number == 40:
                app.remove_flow(self, app.first)
            op_output.emit(make(self.number), "out")
            self.number += 1
            if self.number == FRAMES:
                self.stop_execution()

    def compose(app: Any) -> None:
        app.first = check(app, where="first")
        app.add_flow(Source(app, name="source"), app.first)
        if watched:
            app.track()

    run(compose, scheduler, clock=None)
    assert found["first"] == [(n + 1, n + 1) for n in range(41)]
    assert found["late"] == [(n + 1, n + 1) for n in range(21, FRAMES)]
