"""Origins: which compute emitted each message that a compute received, whatever the threads and the queues do."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from headrace import op
from headrace.conditions import CountCondition
from headrace.core import IOSpec
from headrace.observe import Computes, Flows, Watcher, watch
from headrace.observe.events.records import Drops
from headrace.resources import RealtimeClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness.application import SEVERAL, App
from tests.harness.operators import Step

COUNT = 300


class Origins(Watcher):
    """Collects where the messages that each operator received came from."""

    wants_emissions = True
    period = 0.002

    def __init__(self) -> None:
        self.received: dict[str, list[tuple[int, str, int]]] = defaultdict(list)
        self.emitted = self.dropped = self.rejected = 0
        self.shown: dict[str, int] = defaultdict(int)

    def computed(self, computes: Computes) -> None:
        name = computes.operator.name
        assert computes.first == self.shown[name]
        self.shown[name] += len(computes.started)
        for messages in (*computes.arrivals, *computes.emissions):
            assert ((messages.compute >= computes.first) & (messages.compute < self.shown[name])).all()
        for arrivals in computes.arrivals:
            outputs = [output.operator.name for output in arrivals.queue.outputs]
            self.received[name] += [
                (compute, outputs[output], producer)
                for compute, output, producer in zip(
                    arrivals.compute.tolist(),
                    arrivals.output.tolist(),
                    arrivals.producer.tolist(),
                    strict=True,
                )
            ]
            assert (arrivals.wait >= 0).all()
            # No message is shown before the compute that emitted it.
            for _, output, producer in self.received[name][-len(arrivals.compute) :]:
                assert producer < self.shown[output]
        for emissions in computes.emissions:
            self.emitted += len(emissions.emitted)
            self.rejected += len(emissions.rejected)

    def messages_dropped(self, drops: list[Drops]) -> None:
        self.dropped += sum(len(each.dropped) for each in drops)


@pytest.mark.parametrize("workers", [0, *SEVERAL])
@pytest.mark.parametrize("policy", ["POP", "REJECT", "FAULT"])
@pytest.mark.parametrize("producers", [1, 3])
def test_every_message_is_told_with_the_compute_that_emitted_it(
    producers: int, policy: str, workers: int
) -> None:
    truth: list[tuple[int, str, int]] = []

    def compose(app: Any) -> None:
        if workers:
            app.scheduler(
                EventBasedScheduler(app, worker_thread_number=workers, clock=RealtimeClock(app), name="s")
            )
        else:
            app.scheduler(GreedyScheduler(app, clock=RealtimeClock(app), name="s"))

        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            for _ in range(1 if policy == "FAULT" else self.ticks % 3):
                op_output.emit((self.name, self.ticks - 1), "out")

        def receive(self: Any, op_input: Any, op_output: Any) -> None:
            for sender, compute in op_input.receive("in"):
                truth.append((self.ticks - 1, sender, compute))

        size = {"size": 3, "policy": IOSpec.QueuePolicy[policy]}
        sink = Step(app, inputs=[("in", size)], body=receive, name="sink")
        for number in range(producers):
            source = Step(app, CountCondition(app, COUNT), outputs=["out"], body=emit, name=f"source{number}")
            app.add_flow(source, sink)

    app = App(compose)
    origins = Origins()
    watch(app, origins)
    outcome = app.run()
    assert len(truth) > 3
    assert sorted(origins.received["sink"]) == sorted(truth)
    left = sum(outcome.operators["sink"].undelivered.values())
    assert origins.emitted == len(truth) + origins.dropped + left
    assert origins.dropped + origins.rejected == outcome.operators["sink"].dropped.get("in", 0)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_computes_are_complete_if_rows_are_read_in_portions(most: int) -> None:
    truth: list[tuple[int, str, int]] = []
    paths: list[tuple[int, ...]] = []

    class Portions(Origins):
        period = 60.0

        def flowed(self, flows: list[Flows]) -> None:
            for each in flows:
                paths.extend(map(tuple, each.computes.tolist()))

    def compose(app: Any) -> None:
        def emit(self: Any, op_input: Any, op_output: Any) -> None:
            op_output.emit((self.name, self.ticks - 1), "out")

        def receive(self: Any, op_input: Any, op_output: Any) -> None:
            truth.extend((self.ticks - 1, *sent) for sent in op_input.receive("in"))
            if not self.ticks % 5:  # so that more is written than read
                portions.observation._reader._round(most)

        @op
        def repeated(value: Any) -> Any:
            yield from [value] * 4

        # A compute of the sink receives three messages, each from a compute of its own.
        sink = Step(app, inputs=[("in", {"size": 3})], body=receive, name="sink")
        for number in range(3):
            source = Step(app, CountCondition(app, 40), outputs=["out"], body=emit, name=f"source{number}")
            app.add_flow(source, sink)
        # One compute of four receives, and the others go on: what they emit follows from it, too.
        again = repeated(app, name="repeated")
        app.add_flow(source, again, size=200)
        app.add_flow(again, Step(app, inputs=["in"], body=lambda self, i, o: i.receive("in"), name="last"))

    app = App(compose)
    portions = Portions()
    watch(app, portions)
    app.run()
    assert portions.received["sink"] == truth
    assert len(truth) == 120
    assert sorted(path for path in paths if len(path) == 2) == sorted(
        (producer, compute) for compute, _, producer in truth
    )
    yielded = [path for path in paths if len(path) == 3]
    assert len(yielded) == 160
    assert all(producer == base // 4 for producer, base, _ in yielded)
