"""Each device has its default stream, and both are ordered and waited for."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import gpu
from headrace.gpu import sim
from tests._runtime.streams.devices.operators import current, default_user
from tests.harness import MS, MakeScheduler, launch, run


@pytest.mark.parametrize("slow_first", [True, False])
def test_the_run_ends_when_the_default_streams_of_both_devices_are_done(
    machine: sim.Machine, scheduler: MakeScheduler, slow_first: bool
) -> None:
    done: list[int] = []

    def compose(app: Any) -> None:
        for n, seconds in ((0, 50 * MS), (1, 5 * MS)) if slow_first else ((1, 50 * MS), (0, 5 * MS)):

            def body(self: Any, stream: Any, context: Any, n: int = n, seconds: float = seconds) -> None:
                assert not stream
                assert context.device_from_stream(stream) == current() == n
                launch(stream, seconds, lambda: done.append(n))

            default_user(app, n, body, f"user{n}")

    run(compose, scheduler)
    assert sorted(done) == [0, 1]


@pytest.mark.parametrize("target", [0, 1])
def test_the_default_stream_of_a_device_can_be_ordered_after_that_of_another(target: int) -> None:
    order: list[int] = []
    given: list[Any] = []

    def compose(app: Any) -> None:
        def slow(self: Any, stream: Any, context: Any) -> None:
            launch(stream, 20 * MS, lambda: order.append(1 - target))
            given.append(stream)

        def after(self: Any, stream: Any, context: Any) -> None:
            context.synchronize_streams([*given, stream], stream)
            launch(stream, MS, lambda: order.append(target))

        default_user(app, 1 - target, slow, "slow")
        default_user(app, target, after, "after")

    run(compose)
    assert order == [1 - target, target]


def test_a_plain_0_is_the_default_stream_of_the_current_device() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, stream: Any, context: Any) -> None:
            found.append([context.device_from_stream(handle) for handle in (stream, 0, 1)])
            slow = context.allocate_cuda_stream("the only one")
            launch(slow, 20 * MS, lambda: None)
            context.synchronize_streams([int(slow)], 0)
            event = sim.Device().default_stream.record()
            assert not event.is_done
            event.sync()
            assert slow.stream.record().is_done

        for n in (0, 1):
            default_user(app, n, body, f"user{n}")

    run(compose)
    assert found == [[0, 0, 0], [1, 1, 1]]


def test_a_stream_is_not_ordered_after_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[Any] = []
    monkeypatch.setattr(sim.Stream, "wait", lambda self, other: waits.append(other))

    def compose(app: Any) -> None:
        def body(self: Any, stream: Any, context: Any) -> None:
            own = context.allocate_cuda_stream("the only one")
            before = list(waits)
            context.synchronize_streams([None, own, int(own)], own)
            context.synchronize_streams([stream, 0, 1], stream)
            with gpu.on_device(0):
                foreign = gpu.StreamHandle(sim.Device(0).create_stream())
            context.synchronize_streams([foreign, int(foreign)], foreign)
            assert waits == before

        default_user(app, 1, body, "user")

    run(compose)
