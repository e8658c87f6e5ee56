"""Dividing a device into partitions."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, Never

import numpy as np
import pytest

from headrace import gpu
from tests.gpu.bench import Bench
from tests.gpu.kernels import mark_sms, spin


def test_unequal_partitions_get_what_they_asked_for_and_the_rest_is_one_too(bench: Bench) -> None:
    with gpu.partition(bench.device, [16, 40]) as partitions:
        assert [partition.sm_count for partition in partitions] == [16, 40, 76]
        for partition in partitions:  # by the driver's own count
            assert partition.context.resources.sm.sm_count == partition.sm_count
            assert partition.context.is_green
        assert partitions.leftover is partitions[2]
        assert partitions[0].name == "0"


def test_partitions_have_names(bench: Bench) -> None:
    with gpu.partition(bench.device, {"control": 16, "vision": 40}) as partitions:
        assert partitions["control"].sm_count == 16
        assert partitions["vision"] is partitions[1]
        assert partitions["leftover"] is partitions.leftover
        with pytest.raises(KeyError, match="'radar'.*control, vision, leftover"):
            partitions["radar"]


def test_closed_partitions_say_that_they_are_closed(bench: Bench) -> None:
    partitions = gpu.partition(bench.device, {"control": 16})
    partitions.close()
    with pytest.raises(KeyError, match="the partitions of NVIDIA .* have been closed"):
        partitions["control"]
    for index in (0, -1):
        with pytest.raises(IndexError, match="have been closed"):
            partitions[index]
    assert list(partitions) == partitions[:] == []
    assert partitions.leftover is None


def test_a_count_between_groups_is_rounded_up_and_says_so(bench: Bench) -> None:
    with pytest.warns(gpu.PartitionRounded, match=r"1: 32 SMs \(30 requested\)"):
        partitions = gpu.partition(bench.device, [16, 30])
    with partitions:
        assert (partitions[1].requested, partitions[1].sm_count) == (30, 32)
        assert "32 SMs (30 requested)" in repr(partitions[1])


def test_exact_refuses_to_round(bench: Bench) -> None:
    with pytest.raises(gpu.PartitionError, match=r"exactly.*30 requested.*groups have 8 SMs"):
        gpu.partition(bench.device, [16, 30], exact=True)
    gpu.partition(bench.device, [16, 24], exact=True).close()


def test_more_than_there_is_says_what_was_asked_what_there_is_and_what_is_left(bench: Bench) -> None:
    with pytest.raises(
        gpu.PartitionError, match=r"100 \+ 40 = 140 .* has 132, in groups of 8 .* 28 SMs are left"
    ):
        gpu.partition(bench.device, [100, 40])


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        ([], gpu.PartitionError, "at least one"),
        ([0], gpu.PartitionError, "at least 1 SM"),
        ([-8], gpu.PartitionError, "at least 1 SM"),
        ([8.0], TypeError, "the SM count must be an int"),
        ([True], TypeError, "the SM count must be an int"),
        ("16,40", TypeError, "must be a sequence of SM counts .* not '16,40'"),
        (16, TypeError, "request must be .* not 16"),
        ({"leftover": 8}, gpu.PartitionError, "cannot be named 'leftover'"),
        ({"": 8}, gpu.PartitionError, "cannot be named ''"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(bench: Bench, request_: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        gpu.partition(bench.device, request_)


def test_a_dry_run_gives_the_plan_and_makes_nothing(bench: Bench) -> None:
    plan = gpu.partition(bench.device, {"control": 16, "vision": 30}, dry_run=True)
    assert [(share.name, share.requested, share.sm_count) for share in plan] == [
        ("control", 16, 16),
        ("vision", 30, 32),
        ("leftover", 0, 84),
    ]
    with (
        pytest.warns(gpu.PartitionRounded),
        gpu.partition(bench.device, {"control": 16, "vision": 30}) as made,
    ):
        assert made.plan == plan
        assert [partition.sm_count for partition in made] == [share.sm_count for share in plan]
    drawing = str(plan)
    assert "132 SMs" in drawing
    assert "(30 requested)" in drawing


@pytest.mark.parametrize(
    "counts", [[8], [64, 64], [128], [132], [8, 16, 24, 32], [12], [8] * 15, [100, 24], [60, 56]], ids=str
)
def test_partitions_are_disjoint_and_make_up_the_device(bench: Bench, counts: Any) -> None:
    with gpu.partition(bench.device, counts, exact=True) as partitions:
        assert sum(partition.sm_count for partition in partitions) == bench.device.resources.sm.sm_count
        seen = []
        for partition in partitions:
            stream = partition.create_stream()
            marks = bench.zeros(1024, stream)
            bench.launch(stream, mark_sms, marks, np.int64(500_000), grid=2 * partition.sm_count, block=1024)
            seen.append(set(np.nonzero(bench.read(marks, stream))[0].tolist()))
        assert [len(sms) for sms in seen] == [partition.sm_count for partition in partitions]
        for one, other in itertools.combinations(seen, 2):
            assert not one & other


def test_closing_waits_for_the_work_under_way(bench: Bench) -> None:
    with gpu.partition(bench.device, [16]) as partitions:
        stream = partitions[0].create_stream()
        bench.launch(stream, spin, np.int64(20_000_000))
        event = stream.record()
        assert not event.is_done
    assert event.is_done
    assert stream.is_closed
    assert len(partitions) == 0
    partitions.close()  # again does nothing


def test_a_failure_half_way_leaves_nothing_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Device:
        """The device, out of contexts after the first."""

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.device, name)

        def create_context(self, options: Any) -> Any:
            if made:
                raise bench.names.CUDAError("out of contexts")
            made.append(bench.device.create_context(options))
            return made[-1]

    monkeypatch.setattr(
        "headrace.gpu.partitions.backend_of", lambda device: SimpleNamespace(names=bench.names)
    )
    with pytest.raises(bench.names.CUDAError, match="out of contexts"):
        gpu.partition(Device(), [16, 40])
    assert made[0].is_closed


def test_a_current_partition_is_refused_but_the_others_are_closed(bench: Bench) -> None:
    partitions = gpu.partition(bench.device, [16, 40])
    contexts = [partition.context for partition in partitions]
    stream = partitions[1].create_stream()
    previous = bench.device.set_current(contexts[1])
    try:
        with pytest.raises(RuntimeError, match="while it is current"):
            partitions.close()
        assert [context.is_closed for context in contexts] == [True, False, True]
        assert not stream.is_closed
        assert [partition.name for partition in partitions] == ["1"]
    finally:
        bench.device.set_current(previous)
    partitions.close()
    assert contexts[1].is_closed
    assert stream.is_closed
    assert len(partitions) == 0


class Proxy:
    """Something of a device's that does one thing in another way."""

    def __init__(self, real: Bench, **instead: Any) -> None:
        self._real = real
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_stream_that_fails_keeps_nothing_open(bench: Bench) -> None:
    def fail() -> Never:
        raise bench.names.CUDAError("CUDA_ERROR_LAUNCH_FAILED")

    partitions = gpu.partition(bench.device, [16])
    part = partitions[0]
    streams = [part.create_stream() for _ in range(3)]
    context = part.context
    part._streams[1] = Proxy(streams[1], sync=fail)
    with pytest.raises(bench.names.CUDAError, match="LAUNCH_FAILED"):
        partitions.close()
    assert context.is_closed
    assert all(stream.is_closed for stream in streams)
    assert len(partitions) == 0


def test_an_error_that_is_not_about_splitting_is_not_taken_for_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def split(options: Any, dry_run: Any = False) -> Never:
        raise bench.names.CUDAError("CUDA_ERROR_LAUNCH_FAILED: an earlier kernel")

    resources = Proxy(bench.device.resources, sm=Proxy(bench.device.resources.sm, split=split))
    monkeypatch.setattr(
        "headrace.gpu.partitions.backend_of", lambda device: SimpleNamespace(names=bench.names)
    )
    with pytest.raises(bench.names.CUDAError, match="LAUNCH_FAILED"):
        gpu.partition(Proxy(bench.device, resources=resources), [16])


def test_workqueues_need_driver_13_1(bench: Bench) -> None:
    try:
        _ = bench.device.resources.workqueue
    except RuntimeError:
        with pytest.raises(RuntimeError, match="13.1"):
            gpu.partition(bench.device, [16], sharing_scope="green_ctx_balanced")
    else:
        gpu.partition(bench.device, [16], sharing_scope="green_ctx_balanced").close()
