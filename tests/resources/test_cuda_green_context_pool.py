"""CudaGreenContextPool: slices of a device, by position or by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.gpu import sim
from headrace.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from tests.harness import MS, App, MakeScheduler, Step, launch, run
from tests.harness.devices import use_device
from tests.resources.green_contexts import NAMED, composed, green_pool, sms_of

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(("index", "sms"), [(0, 16), (1, 40), (2, 76), (-1, 76)])
def test_a_green_context_is_a_slice_of_the_device(scheduler: MakeScheduler, index: int, sms: int) -> None:
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs num_partitions or sms_per_partition"),
        ({"num_partitions": 3, "sms_per_partition": [8, 8]}, r"num_partitions=3, but .* has 2: \[8, 8\]"),
        ({"sms_per_partition": [1]}, "less than min_sm_size=2"),
        ({"num_partitions": -1}, "needs num_partitions or sms_per_partition"),
    ],
)
def test_slices_that_make_no_sense_are_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CudaGreenContextPool(None, **arguments)


IMPOSSIBLE: list[tuple[Any, str]] = [
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p"), 5),
        r"operator 'step': 'p' has 3 partitions of \[16, 40, 76\] SMs, so no index 5; use 0 to 2",
    ),
    (
        lambda app: CudaStreamPool(
            app, cuda_green_context=CudaGreenContext(app, green_pool(app, name="p"), -4)
        ),
        r"operator 'step': 'p' has 3 partitions .* no index -4; use 0 to 2",
    ),
    (
        lambda app: green_pool(app, name="p", sms_per_partition=[100, 100]),
        r"operator 'step': 'p': 100 \+ 100 = 200 SMs requested, but .* has 132.* 28 SMs are left",
    ),
    (
        lambda app: CudaGreenContextPool(app, num_partitions=17, name="p"),
        r"operator 'step': 'p': 17 equal partitions of 132 SMs .* at most 16 are possible",
    ),
    (
        lambda app: CudaGreenContextPool(app, num_partitions=9, min_sm_size=20, name="p"),
        r"operator 'step': 'p': 9 equal partitions of 132 SMs .* fewer than 20 .* at most 5 are possible",
    ),
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p", sms_per_partition=NAMED), "radar"),
        "operator 'step': 'p' has no partition 'radar'; it has 'control', 'vision', 'leftover'",
    ),
    (
        lambda app: green_pool(app, name="p", default_context_index=3),
        "operator 'step': 'p' has 3 partitions .* no index 3",
    ),
    (
        lambda app: CudaGreenContext(app, green_pool(app, name="p", default_context_index="radar"), 0),
        "operator 'step': 'p' has no partition 'radar'; it has '0', '1', 'leftover'",
    ),
    (
        lambda app: green_pool(app, name="p", sms_per_partition=[16, -8]),
        "'p': partition '1' must have at least 1 SM",
    ),
]


@pytest.mark.parametrize(("make", "text"), IMPOSSIBLE)
def test_impossible_slices_are_found_when_the_graph_is_composed(
    make: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("composing makes nothing on a device")

    for call in ("create_context", "create_stream", "set_current"):
        monkeypatch.setattr(sim.Device, call, refuse)
    with pytest.raises(gpu.PartitionError, match=text):
        composed(make)


def test_impossible_slices_of_the_fragment_are_found_too() -> None:
    def compose(app: Any) -> None:
        app.add_default_green_context_pool(0, [100, 100])
        app.add_operator(Step(app, body=lambda *_: None, name="step"))

    with pytest.raises(gpu.PartitionError, match="operator 'step': 'default_green_context_pool': 100 .* 132"):
        App(compose).compose_graph()


def test_where_there_is_no_device_none_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    use_device(monkeypatch, "none")
    monkeypatch.setattr(gpu, "Device", lambda *_: pytest.fail("there is no device"))
    for index in (0, 1, 2, -1, -3):
        composed(lambda app, index=index: CudaGreenContext(app, green_pool(app), index))
    composed(lambda app: CudaGreenContextPool(app, num_partitions=500))
    composed(lambda app: CudaStreamPool(app, 7))
    # What is wrong on every device is known still.
    with pytest.raises(
        gpu.PartitionError, match="'step': 'p' has at most 3 partitions, so no index 3; use 0 to 2"
    ):
        composed(lambda app: CudaGreenContext(app, green_pool(app, name="p"), 3))
    with pytest.raises(
        gpu.PartitionError, match="no partition 'radar'; it has 'control', 'vision', 'leftover'"
    ):
        composed(lambda app: CudaGreenContext(app, green_pool(app, sms_per_partition=NAMED), "radar"))


def test_a_green_context_needs_a_pool() -> None:
    with pytest.raises(TypeError, match="cuda_green_context_pool="):
        CudaGreenContext(None)


@pytest.mark.parametrize(("name", "sms"), [("control", 16), ("vision", 40), ("leftover", 76)])
def test_a_slice_is_chosen_by_name(scheduler: MakeScheduler, name: str, sms: int) -> None:
    def context(app: Any) -> CudaGreenContext:
        return CudaGreenContext(app, green_pool(app, sms_per_partition=NAMED), name)

    assert sms_of(context, scheduler=scheduler) == sms
    assert sms_of(lambda app: CudaStreamPool(app, cuda_green_context=context(app))) == sms
    assert context(None).sm_count == sms


def test_slices_without_names_are_called_by_their_positions() -> None:
    pool = green_pool(None)
    assert pool.names == ["0", "1"]
    assert [CudaGreenContext(None, pool, name).sm_count for name in ("0", "1", "leftover")] == [16, 40, 76]
    assert CudaGreenContextPool(None, num_partitions=3).names == ["0", "1", "2"]


def test_the_default_slice_may_be_chosen_by_name() -> None:
    assert sms_of(lambda app: green_pool(app, sms_per_partition=NAMED, default_context_index="vision")) == 40
    assert sms_of(lambda app: green_pool(app, sms_per_partition=NAMED)) == 76

    def prepare(app: Any) -> None:
        app.add_default_green_context_pool(0, NAMED, "control")

    assert sms_of(prepare=prepare) == 16


def test_slices_can_be_described_in_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(
        """
slices:
  sms_per_partition: {control: 16, vision: 40}
  default_context_index: vision
step:
  index: control
"""
    )

    def made(app: Any) -> tuple[int, int]:
        app.config(tmp_path / "app.yaml")
        pool = CudaGreenContextPool(app, **app.kwargs("slices"))
        return CudaGreenContext(app, pool, **app.kwargs("step")).sm_count, CudaGreenContext(
            app, pool
        ).sm_count

    assert made(App(lambda app: None)) == (16, 40)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"leftover": 8}, gpu.PartitionError, "'p': a partition cannot be named 'leftover'"),
        ({"": 8}, gpu.PartitionError, "'p': a partition cannot be named ''"),
        ({3: 8}, gpu.PartitionError, "'p': a partition cannot be named 3"),
        ({"control": 1}, gpu.PartitionError, "'p': partition 'control' requests 1 SMs, .* min_sm_size=2"),
        ({"control": 8.0}, TypeError, "'p': partition 'control': the SM count must be an int, not 8.0"),
        (["8"], TypeError, "'p': partition '0': the SM count must be an int, not '8'"),
        ([True], TypeError, "'p': partition '0': the SM count must be an int, not True"),
        (
            "88",
            TypeError,
            "'p': sms_per_partition must be a sequence of SM counts or a mapping of names to them",
        ),
    ],
)
def test_names_and_counts_that_make_no_sense_are_refused(arguments: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        CudaGreenContextPool(None, sms_per_partition=arguments, name="p")


def test_a_slice_is_chosen_by_position_or_name_and_by_nothing_else() -> None:
    for index in (1.5, True):
        with pytest.raises(TypeError, match="'p': a partition must be given by position or by name, not"):
            _ = CudaGreenContext(None, green_pool(None, name="p"), index).sm_count  # type: ignore[arg-type]


def test_two_branches_on_their_own_slices_overlap(machine: sim.Machine, scheduler: MakeScheduler) -> None:
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
