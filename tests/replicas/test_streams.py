"""Replicas with streams: each replica has its own, and frames stay ordered and alive."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition
from tests.harness import Consumer, Doubler, Producer, run


class Noting(Doubler):
    streams: dict[str, int]

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        self.streams[self.name] = int(op_input.receive_cuda_stream("in"))


def test_each_replica_has_a_stream_and_frames_arrive_in_order(machine: Any) -> None:
    Noting.streams = {}

    def compose(app: Any) -> None:
        doubler = Noting(app, name="doubler", workers=3)
        app.add_flow(Producer(app, CountCondition(app, 12), name="producer"), doubler)
        app.consumer, app.other = Consumer(app, name="consumer"), Consumer(app, name="other")
        app.add_flow(doubler, app.consumer)
        app.add_flow(doubler, app.other)

    app: Any = run(compose)
    assert app.consumer.seen == app.other.seen == [2 * number for number in range(12)]
    assert len(Noting.streams) > 1
    assert len(set(Noting.streams.values())) == len(Noting.streams)


def test_a_consumer_that_joins_a_run_reads_whole_frames(machine: Any) -> None:
    class Adding(Producer):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            if self.number == 4:
                app = self.fragment
                app.late = Consumer(app, name="late")
                app.add_flow(self, app.late)
            super().compute(op_input, op_output, context)

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(Adding(app, CountCondition(app, 10), name="producer"), app.consumer)

    app: Any = run(compose)
    assert app.consumer.seen == list(range(10))
    assert app.late.seen == list(range(5, 10))
