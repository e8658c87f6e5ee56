"""Runs in the time of a simulated machine, which are begun, fed and awaited by threads that are attached to it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace import Application, FeedOp, ResultsOp, gpu, op
from headrace.gpu import sim
from tests.harness import PATIENCE

xp = gpu.arrays()


@op
def frames() -> Any:
    yield from (xp.full((8, 8), number) for number in (1, 2))


@op
def add_up(frame: Any, *, into: list[float]) -> None:
    into.append(float(xp.sum(frame)))


class Sums(Application):
    def compose(self) -> None:
        self.sums: list[float] = []
        frames(self) >> add_up(self, into=self.sums)


@op
def run_sums(frame: Any, *, into: list[Any]) -> None:
    app = Sums()
    app.run()
    into.append((app.sums, float(frame[0, 0])))


class Nested(Application):
    def compose(self) -> None:
        self.found: list[Any] = []
        frames(self) >> run_sums(self, into=self.found)


@pytest.mark.parametrize("time", ["virtual", "paced"])
def test_an_application_runs_on_a_thread_that_is_attached(time: Any) -> None:
    app = Sums()
    with sim.Machine("h200", time=time) as machine, machine.attach():
        app.run()
    assert app.sums == [64, 128]


@pytest.mark.parametrize("time", ["virtual", "paced"])
def test_a_compute_may_run_an_application(time: Any) -> None:
    app = Nested()
    with sim.Machine("h200", time=time):
        app.run()
    assert app.found == [([64, 128], 1), ([64, 128], 2)]


@op
def double(frame: Any) -> Any:
    return 2 * frame


class Fed(Application):
    def compose(self) -> None:
        self.sums: list[float] = []
        FeedOp(self, name="frames", size=1) >> add_up(self, into=self.sums)


@op
def feed(frame: Any, *, to: Application) -> None:
    to.feed("frames").put(frame)


class Feeding(Application):
    def __init__(self, to: Application) -> None:
        super().__init__()
        self.to = to

    def compose(self) -> None:
        frames(self) >> feed(self, to=self.to)
        frames(self, name="more") >> feed(self, to=self.to, name="feed more")


@pytest.mark.parametrize("time", ["virtual", "paced"])
def test_a_compute_that_waits_for_another_run_lets_its_time_pass(time: Any) -> None:
    fed = Fed()
    with sim.Machine("h200", time=time), fed.running():
        Feeding(fed).run()
    assert sorted(fed.sums) == [64, 64, 128, 128]


@pytest.mark.parametrize("time", ["virtual", "paced"])
def test_a_thread_that_is_attached_waits_for_the_end_of_a_run(time: Any) -> None:
    app, fed = Sums(), Fed()
    with sim.Machine("h200", time=time) as machine, machine.attach():
        app.run_async().result(PATIENCE)
        with fed.running():
            assert fed.wait_until_started()
            for number in range(3):
                fed.feed("frames").put(xp.full((8, 8), number))
    assert app.sums == [64, 128]
    assert fed.sums == [0, 64, 128]


def test_threads_that_are_attached_put_frames_in_and_take_results_out() -> None:
    class Doubled(Application):
        def compose(self) -> None:
            doubled = double(self)
            FeedOp(self, name="frames", size=1) >> doubled >> ResultsOp(self, name="found")

    def put() -> None:
        with machine.attach(), app.feed("frames") as frames:
            for number in range(10):
                frames.put(xp.full((8, 8), number))

    app = Doubled()
    with sim.Machine("h200") as machine, app.running():
        putting = threading.Thread(target=put)
        putting.start()
        with machine.attach():
            assert [float(xp.sum(frame)) for frame in app.results("found")] == [128 * n for n in range(10)]
        putting.join()
