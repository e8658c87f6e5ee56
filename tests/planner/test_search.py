"""The search finds the optimum of the model, and the same one each time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace import gpu
from headrace.gpu import sim
from headrace.planner import Target
from headrace.planner.deciding import best_layouts, flows_of
from headrace.planner.measured import Curve, Measured, OperatorTimes, Times
from headrace.planner.measuring import offered_sizes, what_fits
from headrace.planner.model import MOST_LOAD, Layout, launch_bound_rows, load, margin, predict
from tests.planner.programs import ALL, HOST, SIZES, fits, neighbours, random_program, waves


def by_brute_force(measured: Measured, targets: Sequence[Target]) -> Iterator[tuple[float, int]]:
    """Yield the smallest margin and the rest of every layout that keeps up."""
    groups = flows_of(measured, targets)
    declared = load(measured, Layout({}, ALL, {}), "")
    for sizes in itertools.product(range(0, ALL, 8), repeat=len(groups)):
        rest = ALL - sum(sizes)
        slices = {name: size for name, size in zip(groups, sizes, strict=True) if size}
        layout = Layout(slices, rest, {each: name for name in slices for each in groups[name]})
        on_rest = [n for n, one in measured.operators.items() if one.curve and n not in layout.places]
        if rest < 0 or (on_rest and (not rest or load(measured, layout, "") > max(MOST_LOAD, declared))):
            continue
        yield min(margin(measured, layout, target) for target in targets), rest


# The last two have three groups, of which brute force has 4,913 layouts.
@pytest.mark.parametrize("seed", [*range(6), *range(8, 12), pytest.param(6, marks=pytest.mark.thorough), 7])
def test_the_best_layout_is_that_of_brute_force(seed: int) -> None:
    measured, targets = random_program(seed)
    expected = max((round(least, 2), rest) for least, rest in by_brute_force(measured, targets))
    best = best_layouts(measured, targets, fits)[0]
    assert (round(best.least, 2), best.layout.rest) == expected


def test_the_same_measurements_give_the_same_layouts_in_the_same_order() -> None:
    measured, targets = random_program(3)
    assert best_layouts(measured, targets, fits) == best_layouts(measured, targets, fits)


def test_a_deadline_beside_kernels_that_fill_the_device_gets_a_slice() -> None:
    """The longest kernel of others is waited for where SMs are shared: planted interference."""
    measured = neighbours()
    target = Target.parse("control: p99 < 500us")
    shared = Layout({}, ALL, {})
    assert predict(measured, shared, target).value > 1.8e6
    best = best_layouts(measured, [target], fits)[0].layout
    assert best.slices == {"control": 8}
    assert predict(measured, best, target).value < 200e3


def test_copies_of_others_are_met_on_every_slice_and_their_kernels_on_the_same_one_only() -> None:
    """Planted interference: what copies for 1 ms a frame, on SMs of its own."""
    copied = 1e6
    alone = neighbours()
    operators = {
        **alone.operators,
        "control": replace(alone.operators["control"], copies=10e3),
        "net": replace(alone.operators["net"], copies=copied),
    }
    measured = replace(alone, operators=operators)
    target = Target.parse("control: p99 < 500us")
    apart = Layout({"control": 8}, ALL - 8, {"control": "control"})
    assert predict(alone, apart, target).value < 200e3
    assert predict(measured, apart, target).value > copied
    shared = Layout({}, ALL, {})
    less = load(alone, shared, "") - load(measured, shared, "")
    assert less == pytest.approx((60 * copied + 400 * 10e3) / 1e9)


def test_a_frame_that_is_joined_comes_after_the_work_of_all_its_parts() -> None:
    """Three cameras of one rate, which tick together, and a network that needs a picture of each."""
    cameras, work = [f"camera{n}" for n in range(3)], [f"prepare{n}" for n in range(3)]
    operators = {name: OperatorTimes(HOST, None, 30, 1e9 / 30) for name in cameras}
    operators |= {name: OperatorTimes(HOST, waves(264, 100), 30) for name in (*work, "net")}
    flows = [*zip(cameras, work, strict=True), *((name, "net") for name in work)]
    measured = Measured("device", ALL, SIZES, operators, flows)
    target = Target.parse("camera0->net: p50 < 1ms")
    shared = predict(measured, Layout({}, ALL, {}), target).value
    assert shared == pytest.approx(4 * 100e3, rel=0.01)  # all of it is launched meanwhile
    alone = predict(measured, Layout({}, ALL, {}), Target.parse("prepare0: p50 < 1ms")).value
    assert alone < shared - 2 * 100e3


def test_bandwidth_that_slices_share_is_part_of_the_prediction() -> None:
    measured = neighbours()
    target = Target.parse("vision: p50 < 20ms")
    layout = best_layouts(measured, [target], fits)[0].layout
    quiet = predict(measured, layout, target).value
    one = measured.operators["net"]
    slower = OperatorTimes(one.host, one.curve, one.rate, inflation=1.5)
    busy = Measured(measured.device, ALL, SIZES, {**measured.operators, "net": slower}, measured.flows)
    assert predict(busy, layout, target).value > 1.3 * quiet


def test_a_slice_that_would_be_too_busy_is_no_solution() -> None:
    measured = Measured(
        "device",
        ALL,
        SIZES,
        {"tick": OperatorTimes(HOST, None, 1000, 1e6), "work": OperatorTimes(HOST, waves(160, 180), 1000)},
        [("tick", "work")],
    )
    target = Target.parse("work: p50 < 5ms")
    best = best_layouts(measured, [target], fits)
    loads = [load(measured, one.layout, "work") for one in best if one.layout.slices]
    assert loads
    assert all(each <= MOST_LOAD for each in loads)


def test_what_has_no_goal_keeps_the_sms_that_its_rate_needs() -> None:
    """The whole device would serve the goal best."""
    measured = neighbours()
    best = best_layouts(measured, [Target.parse("control: p50 < 121us")], fits)[0].layout
    assert load(measured, best, "") <= MOST_LOAD


def test_a_curve_never_rises_and_is_that_of_the_next_smaller_measured_size() -> None:
    curve = Curve({8: Times(400, 500), 16: Times(200, 260), 24: Times(210, 240)})
    assert [curve.at(count).p50 for count in (4, 8, 15, 16, 24, 132)] == [800, 400, 400, 200, 200, 200]
    assert curve.at(24).p99 == 240


def test_launch_bound_chains_on_one_slice_are_rows() -> None:
    quick, slow = waves(4, 5), waves(4, 500)
    operators = {
        "source": OperatorTimes(HOST, None, 100),
        "a": OperatorTimes(HOST, quick, 100),
        "b": OperatorTimes(HOST, quick, 100),
        "c": OperatorTimes(HOST, slow, 100),
        "d": OperatorTimes(HOST, quick, 100),
        "e": OperatorTimes(HOST, quick, 100),
    }
    flows = [("source", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]
    measured = Measured("device", ALL, SIZES, operators, flows)
    assert launch_bound_rows(measured, Layout({}, ALL, {})) == [["a", "b"], ["d", "e"]]
    parted = Layout({"s": 8}, 124, {"e": "s"})
    assert launch_bound_rows(measured, parted) == [["a", "b"]]


@pytest.mark.parametrize("profile", sorted(sim.PROFILES))
def test_offered_sizes_are_what_the_device_provides_without_rounding(profile: str) -> None:
    with sim.Machine(profile):
        device: Any = gpu.Device(0)
        sizes = offered_sizes(device)
        assert sizes == sorted(set(sizes))
        assert len(sizes) > 1
        for size in sizes:
            assert gpu.partition(device, [size], dry_run=True)[0].sm_count == size
        provided = what_fits(device)
        all_sms = device.resources.sm.sm_count
        assert provided([sizes[0]]) == all_sms - sizes[0]
        assert provided([sizes[-1], sizes[-1]]) is None
