"""Stream pools and slices of the device, as resources of a pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import CountCondition, gpu
from penstock.gpu import sim
from penstock.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.streams.frames import MS, Consumer, Producer, Step, launch, run


def sms_of(*args: Any, prepare: Any = None, scheduler: str = "greedy", **kwargs: Any) -> int:
    """Run one operator with these arguments and give the SMs that its stream may use."""
    found: list[int] = []

    def compose(app: Any) -> None:
        if prepare is not None:
            prepare(app)

        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        step = Step(
            app, CountCondition(app, 2), body=body, name="step", **{k: v(app) for k, v in kwargs.items()}
        )
        for make in args:
            step.add_arg(make(app))
        app.add_operator(step)

    run(compose, scheduler)
    assert found[0] == found[1]
    return found[0]


def green_pool(app: Any, **kwargs: Any) -> CudaGreenContextPool:
    kwargs.setdefault("sms_per_partition", [16, 40])
    return CudaGreenContextPool(app, 0, **kwargs)


def test_an_operator_without_a_pool_may_use_every_sm(scheduler: str) -> None:
    assert sms_of(scheduler=scheduler) == 132


@pytest.mark.parametrize(("index", "sms"), [(0, 16), (1, 40), (2, 76), (-1, 76)])
def test_a_green_context_is_a_slice_of_the_device(scheduler: str, index: int, sms: int) -> None:
    def pool(app: Any) -> CudaStreamPool:
        context = CudaGreenContext(app, cuda_green_context_pool=green_pool(app), index=index)
        return CudaStreamPool(app, 0, 0, 0, 1, 5, context, name="pool")

    assert sms_of(pool, scheduler=scheduler) == sms


def test_a_pool_of_slices_given_to_an_operator_means_its_default_one() -> None:
    assert sms_of(green_pool) == 76
    assert sms_of(lambda app: green_pool(app, default_context_index=1)) == 40
    assert sms_of(lambda app: CudaGreenContext(app, green_pool(app), 0)) == 16


def test_a_pool_can_be_given_by_the_parameter_of_that_name() -> None:
    def declare(spec: Any) -> None:
        spec.param("cuda_stream_pool", None)

    found: list[int] = []

    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            found.append(context.allocate_cuda_stream("s").stream.resources.sm.sm_count)

        pool = CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, green_pool(app), 0))
        app.add_operator(
            Step(app, CountCondition(app, 1), body=body, setup=declare, name="step", cuda_stream_pool=pool)
        )

    run(compose)
    assert found == [16]


def test_the_fragments_default_slices_are_for_operators_that_were_given_none() -> None:
    def prepare(app: Any) -> None:
        assert app.get_default_green_context_pool() is None
        pool = app.add_default_green_context_pool(0, [8, 24])
        assert app.get_default_green_context_pool() is pool

    assert sms_of(prepare=prepare) == 100
    assert sms_of(lambda app: CudaStreamPool(app), prepare=prepare) == 132


def test_equal_shares() -> None:
    pool = CudaGreenContextPool(None, num_partitions=3)
    assert pool.sm_counts == [40, 40, 40, 12]
    assert CudaGreenContext(None, pool, 1).sm_count == 40
    assert CudaGreenContext(None, pool).sm_count == 12


def test_the_real_counts_can_be_asked_for() -> None:
    assert CudaGreenContextPool(None, sms_per_partition=[30]).sm_counts == [32, 100]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs num_partitions or sms_per_partition"),
        ({"num_partitions": 3, "sms_per_partition": [8, 8]}, r"num_partitions=3, but .* has 2: \[8, 8\]"),
        ({"sms_per_partition": [1]}, "less than min_sm_size=2"),
        ({"num_partitions": 2, "flags": 1}, "flags must be 0"),
    ],
)
def test_slices_that_make_no_sense_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CudaGreenContextPool(None, **arguments)


def test_slices_that_the_device_cannot_give_say_what_it_can() -> None:
    with pytest.raises(gpu.PartitionError, match=r"140 SMs asked for.*132"):
        sms_of(lambda app: green_pool(app, sms_per_partition=[100, 40]))
    with pytest.raises(gpu.PartitionError, match="17 equal partitions .* at most 16"):
        sms_of(lambda app: CudaGreenContextPool(app, num_partitions=17))
    with pytest.raises(IndexError, match=r"3 partitions of \[16, 40, 76\] SMs, so no index 5; 0 to 2"):
        sms_of(lambda app: CudaGreenContext(app, green_pool(app), 5))
    with pytest.raises(TypeError, match="cuda_green_context_pool="):
        CudaGreenContext(None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"stream_flags": 4}, "stream_flags must be 0 or 1"),
        ({"max_size": -1}, "must not be negative"),
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


def test_partitions_are_closed_after_their_streams_and_can_be_made_again(scheduler: str) -> None:
    def compose(app: Any) -> None:
        slices = green_pool(app)
        pools = [CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, n)) for n in (0, 1)]
        app.consumer = Consumer(app, pools[1], name="consumer")
        app.add_flow(Producer(app, CountCondition(app, 10), pools[0], name="producer"), app.consumer)

    for _ in range(2):
        assert run(compose, scheduler).consumer.seen == list(range(10))


def test_two_branches_on_their_own_slices_overlap(machine: sim.Machine, scheduler: str) -> None:
    def total(sliced: bool) -> float:
        start = machine.now

        def compose(app: Any) -> None:
            slices = green_pool(app, sms_per_partition=[16])
            for n in (0, 1):
                pool = (
                    CudaStreamPool(app, cuda_green_context=CudaGreenContext(app, slices, n))
                    if sliced
                    else None
                )

                def body(self: Any, op_input: Any, op_output: Any, context: Any, n: int = n) -> None:
                    # More blocks than fit on the whole device, so that two of them cannot share it.
                    blocks = (16, 116)[n] * 8 if sliced else 132 * 8
                    launch(context.allocate_cuda_stream("s"), MS, lambda: None, grid=blocks)

                branch = Step(
                    app, CountCondition(app, 10), *([pool] if pool else []), body=body, name=f"branch{n}"
                )
                app.add_operator(branch)

        run(compose, scheduler)
        return machine.now - start

    assert total(sliced=True) < 1.1 * 10 * MS
    assert total(sliced=False) > 1.9 * 10 * MS
