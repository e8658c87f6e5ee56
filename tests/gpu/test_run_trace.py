"""The trace of a run looks the same on a GPU and on a simulated one."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

import noisy_neighbour
from headrace.observe import TraceWriter, watch
from tests.gpu.bench import Bench
from tests.observe.traces.traces import Trace, load

FRAMES = 200


@pytest.fixture(scope="module")
def files() -> dict[bool, Path]:
    """The traces by whether the device is simulated: all tests look at the same run."""
    return {}


@pytest.fixture
def file(of_this_process: Bench, files: dict[bool, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a critical flow beside a noisy one, each on its own slice."""
    is_simulated = of_this_process.is_simulated
    if is_simulated not in files:
        file = tmp_path_factory.mktemp("traces") / "out.json"
        app = noisy_neighbour.Neighbours(FRAMES, noise=True, partitioned=True)
        watch(app, TraceWriter(file))
        app.run()
        files[is_simulated] = file
    return files[is_simulated]


@pytest.fixture
def trace(file: Path) -> Trace:
    return load(file)


def test_streams_are_grouped_by_slice(bench: Bench, trace: Trace) -> None:
    total = bench.device.resources.sm.sm_count
    tracks = {(event["name"], trace.track_of(event)) for event in trace.of("X", cat="gpu")}
    assert tracks == {
        (f"{flow}_{end}", f"GPU 0: slice {part}, {count} of {total} SMs / stream of {flow}_{end}")
        for flow, part, count in (("critical", "critical", 16), ("noisy", "leftover", total - 16))
        for end in ("transmitter", "receiver")
    }


def test_intervals_are_as_long_as_the_kernels(bench: Bench, trace: Trace) -> None:
    """The kernels of the critical flow take 100 and 50 µs.

    On an idle stream the interval begins before the launch, so the host's time to launch the kernel, beside the
    threads of the noisy flow, is added.
    """
    for name, length in (("critical_transmitter", 100), ("critical_receiver", 50)):
        shown = [event["dur"] for event in trace.of("X", cat="gpu", name=name)][10:]
        assert length * 0.95 <= min(shown) <= length * 1.05 + 60
        assert statistics.median(shown) <= length + 150


def test_every_message_has_an_arrow_and_every_compute_one_to_the_device(bench: Bench, trace: Trace) -> None:
    arrows = [(begin["cat"], begin["name"], end["cat"], end["name"]) for begin, end in trace.arrows]
    hop = ("compute", "critical_transmitter", "compute", "critical_receiver")
    assert arrows.count(hop) == FRAMES
    for name in ("critical_transmitter", "critical_receiver"):
        assert arrows.count(("compute", name, "gpu", name)) == FRAMES


def test_a_path_is_divided_without_rest(bench: Bench, trace: Trace) -> None:
    paths = [
        event["args"]
        for event in trace.of("b", cat="path")
        if event["args"]["source"] == "critical_transmitter"
    ]
    assert len(paths) == FRAMES
    for path in paths:
        assert sum(path["parts_us"].values()) == pytest.approx(path["latency_us"], abs=0.01)


def test_kernels_lie_within_the_interval_of_their_compute(bench: Bench, trace: Trace) -> None:
    """The clocks of CUPTI and of the timed events agree within 20 µs."""
    if not bench.is_simulated:
        pytest.importorskip("cupti.cupti")
    assert trace.header["kernels"] == "shown"
    intervals: dict[Any, Any] = {
        (event["name"], event["args"]["compute"]): event for event in trace.of("X", cat="gpu")
    }
    shown = [event for event in trace.of("X", cat="kernel") if event["name"] in ("make_frame", "check_frame")]
    matched = 0
    for event in shown:
        interval = intervals.get((event["args"].get("operator"), event["args"].get("compute")))
        if interval is not None:
            matched += 1
            assert interval["ts"] - 20 <= event["ts"]
            assert event["ts"] + event["dur"] <= interval["ts"] + interval["dur"] + 20
    assert matched >= 2 * FRAMES
