"""How drivers from 13.1 on split SMs, by their manual: each group for itself, exactly or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu import sim


@pytest.fixture
def sm() -> Iterator[sim.SMResource]:
    with sim.Machine("h200", driver=(13, 1)):
        yield sim.Device(0).resources.sm


def counts(sm: Any, **options: Any) -> tuple[list[int], int]:
    groups, rest = sm.split(sim.SMResourceOptions(**options))
    return [group.sm_count for group in groups], rest.sm_count


def test_groups_of_different_counts(sm: Any) -> None:
    assert counts(sm, count=(16, 40)) == ([16, 40], 76)


def test_discovery_takes_all_that_is_scheduled_together(sm: Any) -> None:
    assert counts(sm, count=None) == ([120], 12)  # 15 sets of 8
    assert counts(sm, count=(16, None)) == ([16, 104], 12)
    assert counts(sm, count=(16, None), backfill=(False, True)) == ([16, 116], 0)


def test_a_count_that_is_no_multiple_needs_backfill(sm: Any) -> None:
    with pytest.raises(sim.CUDAError, match="INVALID_RESOURCE_CONFIGURATION.*multiple of 8"):
        counts(sm, count=20)
    assert counts(sm, count=20, backfill=True) == ([20], 112)
    with pytest.raises(sim.CUDAError, match="multiple"):
        counts(sm, count=21, backfill=True)


def test_more_sets_than_there_are_need_backfill(sm: Any) -> None:
    with pytest.raises(sim.CUDAError, match="128 SMs requested, only 120 of the remaining 132"):
        counts(sm, count=128)
    assert counts(sm, count=128, backfill=True) == ([128], 4)
    with pytest.raises(sim.CUDAError, match="INVALID_RESOURCE"):
        counts(sm, count=(128, 16), backfill=True)


def test_how_many_are_scheduled_together_can_be_chosen(sm: Any) -> None:
    assert counts(sm, count=20, coscheduled_sm_count=2) == ([20], 112)
    assert counts(sm, count=32, coscheduled_sm_count=16) == ([32], 100)
    for wrong in (3, 34):
        with pytest.raises(sim.CUDAError, match="coscheduled_sm_count must be even and at most 32"):
            counts(sm, count=32, coscheduled_sm_count=wrong)


def test_a_remainder_can_be_split_again(sm: Any) -> None:
    _, rest = sm.split(sim.SMResourceOptions(count=16))
    assert counts(rest, count=40) == ([40], 76)


def test_a_dry_run_may_discover_that_nothing_is_left(sm: Any) -> None:
    groups, _ = sm.split(sim.SMResourceOptions(count=(120, None)), dry_run=True)
    assert [group.sm_count for group in groups] == [120, 0]
    with pytest.raises(sim.CUDAError, match="some SMs requested, only 0 of the remaining 12"):
        sm.split(sim.SMResourceOptions(count=(120, None)))


def test_partition_gives_counts_in_steps_of_two(sm: Any) -> None:
    with gpu.partition(sim.Device(0), {"a": 10, "b": 20, "c": 30}, exact=True) as parts:
        assert [part.sm_count for part in parts] == [10, 20, 30, 72]


def test_workqueues_can_be_configured(sm: Any) -> None:
    device = sim.Device(0)
    device.set_current()
    queue = device.resources.workqueue
    assert (queue.sharing_scope, queue.device) == ("device_ctx", device)
    assert queue.concurrency_limit >= 1
    assert queue.handle != 0
    queue.configure(sim.WorkqueueResourceOptions())
    assert queue.sharing_scope is sim.WorkqueueSharingScopeType.DEVICE_CTX
    queue.configure(sim.WorkqueueResourceOptions(sharing_scope="green_ctx_balanced", concurrency_limit=4))
    assert (queue.sharing_scope, queue.concurrency_limit) == ("green_ctx_balanced", 4)
    with pytest.raises(TypeError, match="WorkqueueResourceOptions"):
        queue.configure({"concurrency_limit": 4})
    with gpu.partition(device, [16], sharing_scope="green_ctx_balanced", concurrency_limit=2) as parts:
        for part in parts:
            theirs = part.create_stream().resources.workqueue
            assert (theirs.sharing_scope, theirs.concurrency_limit) == ("green_ctx_balanced", 2)
    context = device.create_context(sim.ContextOptions(resources=[queue]))
    assert context.resources.sm.sm_count == 132


@pytest.mark.parametrize("wrong", [{"sharing_scope": "bogus"}, {"concurrency_limit": 0}])
def test_workqueue_options_are_checked_when_made(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid WorkqueueSharingScopeType|must be >= 1"):
        sim.WorkqueueResourceOptions(**wrong)
