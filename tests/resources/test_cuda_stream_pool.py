"""CudaStreamPool: the streams of operators, made when they are needed and destroyed at the end."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import CountCondition
from headrace.gpu import sim
from headrace.resources import CudaGreenContextPool, CudaStreamPool
from tests.harness import Step, run

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"reserved_size": 3, "max_size": 2}, "reserved_size=3 is more than max_size=2"),
        (
            {"dev_id": 1, "cuda_green_context": CudaGreenContextPool(None, num_partitions=2)},
            "device 1.*device 0",
        ),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CudaStreamPool(None, **arguments)


def test_flags_and_priority_are_the_streams() -> None:
    found: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            stream = context.allocate_cuda_stream("s").stream
            found.append((stream.is_nonblocking, stream.priority))

        for n, pool in enumerate((CudaStreamPool(app), CudaStreamPool(app, 0, 1, -3))):
            app.add_operator(Step(app, CountCondition(app, 1), pool, body=body, name=f"step{n}"))

    run(compose)
    assert found == [(False, 0), (True, -3)]


def test_streams_are_made_as_they_are_needed_and_destroyed_at_the_end(
    machine: sim.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    original = sim.Device.create_stream

    def create(self: Any, obj: Any = None, options: Any = None) -> Any:
        made.append(original(self, obj, options))
        return made[-1]

    monkeypatch.setattr(sim.Device, "create_stream", create)
    counts: list[int] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            counts.append(len(made))
            for name in "abcde"[: self.ticks]:
                context.allocate_cuda_stream(name)

        pool = CudaStreamPool(app, reserved_size=2, max_size=4)
        app.add_operator(Step(app, CountCondition(app, 6), pool, body=body, name="step"))

    run(compose)
    assert counts == [2, 2, 2, 3, 4, 4]
    assert all(stream.is_closed for stream in made)


def test_the_streams_of_operators_without_a_pool_are_destroyed_too() -> None:
    handles: list[Any] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            handles.append(context.allocate_cuda_stream("s"))

        app.add_operator(Step(app, CountCondition(app, 1), body=body, name="step"))

    run(compose)
    assert handles[0].stream.is_closed


def test_one_pool_serves_several_operators() -> None:
    streams: dict[str, set[int]] = {}

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            streams.setdefault(self.name, set()).add(int(context.allocate_cuda_stream("s")))

        pool = CudaStreamPool(app, max_size=3)
        for n in range(3):
            app.add_operator(Step(app, CountCondition(app, 3), pool, body=body, name=f"step{n}"))

    run(compose)
    assert [len(found) for found in streams.values()] == [1, 1, 1]
    assert len(set.union(*streams.values())) == 3
