"""Splitting SMs, making contexts of them, and what a context, its streams and its events know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu.bench import Bench


def smallest(bench: Bench, count: int = 1) -> list:
    """Return that many of the smallest groups of SMs."""
    sm = bench.device.resources.sm
    groups, _ = sm.split(bench.names.SMResourceOptions(count=[sm.min_partition_size] * count))
    return groups


def green(bench: Bench, *resources: Any) -> Any:
    return bench.device.create_context(bench.names.ContextOptions(resources=list(resources)))


# -- construction ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["DeviceResources", "SMResource", "WorkqueueResource", "Context", "Stream", "Event"]
)
def test_what_the_driver_makes_cannot_be_made_by_hand(bench: Bench, name: Any) -> None:
    with pytest.raises(RuntimeError, match="cannot be"):
        getattr(bench.names, name)()


def test_a_context_needs_resources(bench: Bench) -> None:
    with pytest.raises(ValueError, match="must be provided"):
        bench.device.create_context()
    with pytest.raises(ValueError, match="resources must be provided"):
        bench.device.create_context(bench.names.ContextOptions(resources=None))
    with pytest.raises(ValueError, match="must not be empty"):
        green(bench)
    with pytest.raises(TypeError):
        green(bench, object())
    with pytest.raises(TypeError):
        bench.device.create_context(object())


def test_a_device_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="device_id must be within"):
        bench.names.Device(99)
    with pytest.raises(ValueError, match="device_id must be >= 0"):
        bench.names.Device(-1)
    assert bench.names.Device(0) in bench.names.Device.get_all_devices()


# -- splitting ---------------------------------------------------------------------------------------


def test_an_h200_has_132_sms_in_groups_of_8(bench: Bench) -> None:
    if "H200" not in bench.device.name:
        pytest.skip("another device")
    sm = bench.device.resources.sm
    assert (sm.sm_count, sm.min_partition_size, sm.coscheduled_alignment, sm.flags) == (132, 8, 8, 0)
    assert sm.handle != 0
    assert bench.device.compute_capability == (9, 0)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"count": 8, "coscheduled_sm_count": (8, 8)}, ValueError, "count is scalar"),
        ({"count": 8, "backfill": (True,)}, ValueError, "count is scalar"),
        ({"count": (8, 8), "coscheduled_sm_count": (8, 8, 8)}, ValueError, "expected 2"),
        ({"count": (8, 8), "preferred_coscheduled_sm_count": (8,)}, ValueError, "expected 2"),
        ({"count": (8, 8), "backfill": (True,)}, ValueError, "expected 2"),
        ({"count": -1}, ValueError, "count must be non-negative"),
        ({"count": (-1, -1)}, ValueError, "count must be non-negative"),
        ({"count": ()}, ValueError, "must not be empty"),
        ({"count": 1.5}, TypeError, "count must be int"),
    ],
)
def test_a_split_that_makes_no_sense_is_refused(bench: Bench, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        bench.device.resources.sm.split(bench.names.SMResourceOptions(**options))


@pytest.mark.parametrize("count", [None, 0, 1, 7, 8, 9, 16, 17, 100, 128, 129, 132])
def test_a_group_has_at_least_what_was_asked_for_and_the_rest_is_the_remainder(
    bench: Bench, count: Any
) -> None:
    sm = bench.device.resources.sm
    (group,), rest = sm.split(bench.names.SMResourceOptions(count=count))
    assert group.sm_count >= max(count or 0, sm.min_partition_size)
    assert group.sm_count + rest.sm_count == sm.sm_count
    assert group.sm_count == sm.sm_count or group.sm_count % sm.coscheduled_alignment == 0


H200_SPLITS = {  # the counts asked for -> groups given, remainder; driver 13.0
    (None,): ([8], 124),
    (9,): ([16], 116),
    (129,): ([132], 0),
    (8,) * 40: ([8] * 15, 12),
    (16,) * 40: ([16] * 8, 4),
    (24,) * 40: ([24] * 5, 12),
    (32,) * 40: ([32] * 4, 4),
    (40,) * 40: ([40] * 3, 12),
    (48,) * 40: ([48] * 2, 36),
    (60, 60): ([64, 64], 4),
    (66, 66): ([72], 60),
}


@pytest.mark.parametrize("counts", H200_SPLITS, ids=lambda counts: f"{len(counts)}x{counts[0]}")
def test_an_h200_splits_as_its_driver_does(bench: Bench, counts: Any) -> None:
    if "H200" not in bench.device.name or not _splits_equally_only(bench):
        pytest.skip("another device or driver")
    groups, rest = bench.device.resources.sm.split(bench.names.SMResourceOptions(count=counts))
    assert ([group.sm_count for group in groups], rest.sm_count) == H200_SPLITS[counts]


def test_more_than_the_device_has_is_refused_by_the_driver(bench: Bench) -> None:
    with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"):
        bench.device.resources.sm.split(bench.names.SMResourceOptions(count=10_000))


def test_a_dry_run_tells_what_a_split_would_give_but_gives_nothing(bench: Bench) -> None:
    sm = bench.device.resources.sm
    options = bench.names.SMResourceOptions(count=(16, 16))
    told, told_rest = sm.split(options, dry_run=True)
    given, given_rest = sm.split(options)
    assert [group.sm_count for group in told] == [group.sm_count for group in given]
    assert told_rest.sm_count == given_rest.sm_count
    with pytest.raises(ValueError, match="dry-run SMResource"):
        green(bench, told[0])


def _splits_equally_only(bench: Bench) -> bool:
    try:
        bench.device.resources.sm.split(bench.names.SMResourceOptions(count=(16, 8)), dry_run=True)
    except RuntimeError:
        return True
    return False


def test_before_13_1_groups_have_one_size_and_are_not_split_again(bench: Bench) -> None:
    if not _splits_equally_only(bench):
        pytest.skip("a newer driver")
    options = bench.names.SMResourceOptions
    sm = bench.device.resources.sm
    with pytest.raises(RuntimeError, match="13.1"):
        sm.split(options(count=(16, 8)))
    with pytest.raises(RuntimeError, match="13.1"):
        sm.split(options(count=8, coscheduled_sm_count=8))
    with pytest.raises(RuntimeError, match="13.1"):
        sm.split(options(count=8, preferred_coscheduled_sm_count=8))
    with pytest.raises(RuntimeError, match="13.1"):
        _ = bench.device.resources.workqueue
    (group,), rest = sm.split(options(count=16))
    for part in (group, rest):
        with pytest.raises(bench.names.CUDAError, match="CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"):
            part.split(options(count=8))


def test_the_sms_of_a_context_can_be_split_further(bench: Bench) -> None:
    context = green(bench, *smallest(bench, 3))
    groups, _ = context.resources.sm.split(bench.names.SMResourceOptions(count=8))
    assert groups[0].sm_count == 8
    context.close()


# -- contexts ----------------------------------------------------------------------------------------


def test_a_green_context_has_the_sms_it_was_made_of(bench: Bench) -> None:
    groups = smallest(bench, 3)
    context = green(bench, *groups)
    assert context.is_green
    assert context.handle is not None
    assert context.resources.sm.sm_count == sum(group.sm_count for group in groups)
    context.close()


def test_the_primary_context_has_every_sm_and_makes_no_streams_itself(bench: Bench) -> None:
    primary = bench.device.create_stream().context
    assert not primary.is_green
    assert primary.resources.sm.sm_count == bench.device.resources.sm.sm_count
    with pytest.raises(RuntimeError, match="only supported on green contexts"):
        primary.create_stream()


def test_a_green_contexts_streams_are_non_blocking(bench: Bench) -> None:
    context = green(bench, *smallest(bench))
    with pytest.raises(ValueError, match="must be non-blocking"):
        context.create_stream(bench.names.StreamOptions(nonblocking=False))
    assert context.create_stream().is_nonblocking
    context.close()


def test_contexts_are_equal_by_what_they_stand_for(bench: Bench) -> None:
    first, second = (green(bench, group) for group in smallest(bench, 2))
    stream = first.create_stream()
    assert stream.context == first
    assert stream.context is not first
    assert hash(stream.context) == hash(first)
    assert first != second
    assert bench.device.create_stream().context == bench.device.create_stream().context
    first.close()
    second.close()


def test_streams_and_events_know_their_context_whichever_is_current(bench: Bench) -> None:
    context = green(bench, *smallest(bench))
    stream = context.create_stream()
    event = stream.record()
    previous = bench.device.set_current(context)
    try:
        assert not previous.is_green
        made_while_current = bench.device.create_stream()
        assert made_while_current.context == context
        assert bench.device.create_event().context == context
    finally:
        restored = bench.device.set_current(previous)
    assert restored is context
    for thing in (stream, event, made_while_current):
        assert thing.context == context
        assert thing.context.is_green
        assert thing.device == bench.device
    assert stream.resources.sm.sm_count == context.resources.sm.sm_count
    assert not bench.device.create_stream().context.is_green
    context.close()


def test_a_context_is_not_closed_while_current(bench: Bench) -> None:
    context = green(bench, *smallest(bench))
    previous = bench.device.set_current(context)
    try:
        with pytest.raises(RuntimeError, match="while it is current"):
            context.close()
    finally:
        bench.device.set_current(previous)
    assert not context.is_closed
    context.close()
    assert context.is_closed


def test_a_closed_context_says_so(bench: Bench) -> None:
    context = green(bench, *smallest(bench))
    stream = context.create_stream()
    context.close()
    context.close()
    assert context.handle is None
    assert not context.is_green
    with pytest.raises(RuntimeError, match="closed"):
        _ = context.resources
    with pytest.raises(RuntimeError, match="closed"):
        context.create_stream()
    stream.record().sync()  # its streams work on
    assert stream.context.is_green
