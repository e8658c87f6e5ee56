"""A frame that is received several times stays alive, and each reader is ordered after its producer."""

from __future__ import annotations

from typing import Any

from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import IOSpec
from headrace.gpu import sim
from tests.harness import Consumer, MakeScheduler, Producer, run
from tests.harness.frames import read_frame

SEEN = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4]


class Reader(Consumer):
    def setup(self, spec: Any) -> None:
        spec.input("in", policy=IOSpec.QueuePolicy.LATEST)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        if data is not None:
            read_frame(op_input.receive_cuda_stream("in"), self.seconds, data, self.seen)


def test_a_frame_that_is_read_again_is_whole(machine: sim.Machine, scheduler: MakeScheduler) -> None:
    """Each frame is written and read, twice, for a millisecond, while the next ones are written."""

    def compose(app: Any) -> None:
        producer = Producer(app, PeriodicCondition(app, "4ms"), CountCondition(app, 5), name="producer")
        app.reader = Reader(app, PeriodicCondition(app, "2100us"), CountCondition(app, 12), name="reader")
        app.add_flow(producer, app.reader)

    seen = run(compose, scheduler).reader.seen
    # The first time both are due at once, and another worker may take either.
    assert seen in ([0, *SEEN], SEEN)
