"""A run in the time of a simulated machine begins on any thread, also on one that is attached already."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Application, gpu, op
from headrace.gpu import sim

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


@pytest.mark.parametrize("time", ["virtual", "paced", "real"])
def test_an_application_runs_on_a_thread_that_is_attached(time: Any) -> None:
    app = Sums()
    with sim.Machine("h200", time=time) as machine, machine.attach():
        app.run()
    assert app.sums == [64, 128]


@pytest.mark.parametrize("time", ["virtual", "paced", "real"])
def test_a_compute_may_run_an_application(time: Any) -> None:
    app = Nested()
    with sim.Machine("h200", time=time):
        app.run()
    assert app.found == [([64, 128], 1), ([64, 128], 2)]
