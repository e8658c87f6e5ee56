"""What a page is told of the device; apart from the runs that other tests share, which use none."""

from __future__ import annotations

from typing import Any

from headrace import CountCondition
from headrace.gpu import sim
from headrace.observe import Dashboard
from headrace.resources import CudaGreenContext, CudaGreenContextPool
from tests.harness import App, Consumer, Producer


def test_a_device_is_told_with_its_slices_and_who_works_there(machine: sim.Machine) -> None:
    told: list[Any] = []

    class Told(Dashboard):
        def end(self, outcome: Any) -> None:
            told.append(self._page.figures())
            super().end(outcome)

    def compose(app: Any) -> None:
        pool = CudaGreenContextPool(app, 0, sms_per_partition={"left": 32, "right": 64})
        left, right = (CudaGreenContext(app, pool, name) for name in pool.names)
        producer = Producer(app, left, CountCondition(app, 5), name="producer")
        app.add_flow(producer, Consumer(app, right, name="consumer"))

    app = App(compose)
    Told(app, announce=lambda url: None)
    app.run()
    (figures,) = told
    (device,) = figures["gpus"]
    assert device["sms"] == 132
    assert [(each["name"], each["sms"], each["index"]) for each in device["slices"]] == [
        ("left", 32, 0),
        ("right", 64, 1),
        ("leftover", 36, -1),
    ]
    producer, consumer = figures["operators"]
    assert (producer["slice"], producer["slice_index"]) == ("0:left", 0)
    assert (consumer["slice"], consumer["slice_index"]) == ("0:right", 1)
    assert producer["gpu"][0] == 1000.0
    left, right, leftover = (each["busy"] for each in device["slices"])
    assert (left, right, leftover) == (producer["gpu_busy"], consumer["gpu_busy"], 0)
    assert left > 0
    assert figures["queues"][0]["busy"] == 0
    assert figures["workers"] == [0]
    assert figures["saturated"] == []


def test_operators_without_a_slice_share_all_sms(machine: sim.Machine) -> None:
    told: list[Any] = []

    class Told(Dashboard):
        def end(self, outcome: Any) -> None:
            told.append(self._page.figures())
            super().end(outcome)

    app = App(
        lambda app: app.add_flow(
            Producer(app, CountCondition(app, 2), name="producer"), Consumer(app, name="consumer")
        )
    )
    Told(app, announce=lambda url: None)
    app.run()
    (device,) = told[0]["gpus"]
    assert [(each["name"], each["cells"], each["index"]) for each in device["slices"]] == [
        ("all SMs", 132, 0)
    ]
    assert {operator["slice"] for operator in told[0]["operators"]} == {"0:*"}
