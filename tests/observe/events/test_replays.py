"""What is recorded of frames that a captured segment replays: the same as if its operators had computed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headrace.core import EndedBy
from headrace.gpu import sim
from headrace.gpu.executables import Executables
from headrace.observe import NvtxRanges, Watcher, watch
from headrace.observe.events.gpu_timing import Sampling, SimulatedTime
from headrace.observe.events.observation import Observation
from tests.harness import App, MakeScheduler, event_based, greedy
from tests.harness.segments import MS, Collects, branches, chain
from tests.observe.traces.traces import traced

pytestmark = pytest.mark.usefixtures("machine")


def observed(compose: Callable[[Any], None], scheduler: MakeScheduler = greedy) -> tuple[App, Collects, Any]:
    app = App(compose, scheduler)
    collects = Collects()
    watch(app, collects)
    tracker = app.track()
    app.run()
    return app, collects, tracker


def both(
    compose: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler = greedy
) -> list[tuple[App, Collects, Any]]:
    """Return what is observed with and without capture."""
    captured = observed(compose, scheduler)
    assert captured[0].segment.state == "captured", captured[0].segment.report()  # type: ignore[attr-defined]
    monkeypatch.setenv("HEADRACE_CAPTURE", "off")
    return [captured, observed(compose, scheduler)]


def refuse(*_: Any) -> None:
    raise sim.CUDAError("CUDA_ERROR_NOT_SUPPORTED: no records")


def test_messages_and_paths_are_those_of_a_run_without_capture(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    (app, captured, _), (plain_app, plain, _) = both(branches, monkeypatch, scheduler)
    assert app.sink.seen == plain_app.sink.seen  # type: ignore[attr-defined]
    assert captured.structure() == plain.structure()
    assert captured.paths() == plain.paths()
    assert set(captured.paths()) == {
        "camera,a,b,d,sink",
        "camera,a,c,d,sink",
        "camera,a,b,monitor",
        "aside,d,sink",
    }


def test_replays_on_several_threads_have_their_threads() -> None:
    app = App(lambda app: chain(app, 40, large=5, shapes=1), event_based)
    collects = Collects()
    collects.wants_threads = True
    watch(app, collects)
    threads: dict[int, int] = {}

    class Notes(Watcher):
        def around_replays(self, segment: Any, replay: Any) -> Any:
            def noted(*arguments: Any) -> None:
                replay(*arguments)
                threads[len(threads)] = threading.get_ident()

            return noted

    watch(app, Notes())
    app.run()
    for name in ("one", "three"):
        found = [
            int(thread)
            for each in collects.of(name)
            for thread, flag in zip(each.threads, each.is_replayed, strict=True)
            if flag
        ]
        assert found == list(threads.values()), name
        assert all(int(thread) for each in collects.of(name) for thread in each.threads)


def test_a_replay_that_fails_ends_the_run_and_its_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Executables.launch
    launches = 0

    def launch(self: Any, *arguments: Any) -> None:
        nonlocal launches
        launches += 1
        if launches == 10:
            raise RuntimeError("the device is gone")
        original(self, *arguments)

    monkeypatch.setattr(SimulatedTime, "is_sampled", property(lambda _: True, lambda *_: None))
    monkeypatch.setattr(Sampling, "takes", lambda self, now: False)  # not by the graphs that take times
    monkeypatch.setattr(Executables, "launch", launch)
    app = App(chain)
    collects = Collects()
    watch(app, collects)
    with pytest.raises(RuntimeError, match="the device is gone"):
        app.run()
    assert app.outcome is not None
    assert app.outcome.ended_by is EndedBy.FAILED
    counts = {name: sum(len(each.started) for each in collects.of(name)) for name in ("one", "three")}
    assert counts == {"one": counts["one"], "three": counts["one"]}
    assert 10 <= counts["one"] < 20


def test_it_is_known_which_computes_were_replayed() -> None:
    app, collects, _ = observed(lambda app: chain(app, warmup=3, check_every=None))
    flags = collects.replayed("two")
    assert flags == [False] * 3 + [True] * 17
    assert collects.replayed("one") == collects.replayed("three") == flags
    assert not any(collects.replayed("sink"))
    assert app.segment.replayed == 17  # type: ignore[attr-defined]


def test_the_time_on_the_device_is_that_of_each_operators_own_kernels() -> None:
    _, collects, tracker = observed(chain)
    for name, length in (("one", 1), ("two", 2), ("three", 3)):
        times = collects.gpu_times(name)
        assert len(times) == 20
        assert all(length * MS <= time < (length + 0.1) * MS for time in times), name
        # The first, which was computed, is exact, too: its stream waited for the operator before.
        assert tracker.statistics.operator(name).gpu.count == 20
        assert not tracker.statistics.operator(name).gpu.is_bound


def test_each_replay_is_timed_at_an_ordinary_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader comes seldom. If only the first replays were timed, the start would stand for all of the run."""
    monkeypatch.setattr(SimulatedTime, "is_sampled", property(lambda _: True, lambda *_: None))

    _, collects, _ = observed(lambda app: chain(app, 60, 10 * MS))
    assert all(time > 0 for time in collects.gpu_times("two"))
    assert all(bool(value) for each in collects.of("two") for value in each.is_timed)


def test_operators_side_by_side_and_joined_are_timed_one_by_one() -> None:
    _, collects, _ = observed(branches)
    for name, length in (("a", 1), ("b", 2), ("c", 4), ("d", 3)):
        replayed = [
            time for time, flag in zip(collects.gpu_times(name), collects.replayed(name), strict=True) if flag
        ]
        assert len(replayed) == 19
        assert all(length * MS <= time < (length + 0.1) * MS for time in replayed), name


def test_the_work_of_a_replay_is_in_its_order_and_inside_the_frame() -> None:
    _, collects, _ = observed(chain)
    ends = {}
    for name in ("one", "two", "three"):
        work = [each for computes in collects.of(name) for each in computes.gpu]
        assert len({id(each.stream) for each in work}) == 1  # one track in a trace
        ends[name] = (
            np.concatenate([each.started for each in work])[-20:],
            np.concatenate([each.ended for each in work])[-20:],
        )
    assert (ends["one"][1] <= ends["two"][0]).all()
    assert (ends["two"][1] <= ends["three"][0]).all()
    (flows,) = {each.path.name for each in collects.flows}
    assert flows == "source,one,two,three,sink"
    done = np.concatenate([each.done for each in collects.flows])
    assert (done >= ends["three"][1]).all()


def test_times_on_the_host_follow_each_other_and_fill_the_replay() -> None:
    """Virtual time stands still in a replay, so this clock counts how often it is read."""
    app = App(chain)
    collects = Collects()
    watch(app, collects)
    ticks = 0

    def now() -> int:
        nonlocal ticks
        ticks += 1
        return ticks * 100

    original = Observation._choose_clock

    def choose(self: Any, engine: Any) -> None:
        original(self, engine)
        self.now = now

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observation, "_choose_clock", choose)
        app.run()
    intervals = {
        name: [
            (int(a), int(b))
            for each in collects.of(name)
            for a, b, flag in zip(each.started, each.ended, each.is_replayed, strict=True)
            if flag
        ]
        for name in ("one", "two", "three")
    }
    for (a, b), (c, d), (e, f) in zip(*intervals.values(), strict=True):
        assert a < b == c < d == e < f
        assert abs((b - a) - (d - c)) <= 1
    for flows in collects.flows:
        assert (np.diff(flows.times, axis=1) >= 0).all()


def test_segments_that_the_driver_does_not_divide_are_shown_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (
        "observe.events.replays.captured_frontier",
        "gpu.executables.instantiate_with_records",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"headrace.{name}", refuse)
            app, collects, _ = observed(chain)
        assert app.segment.state == "captured"  # type: ignore[attr-defined]
        replayed = slice(1, None)
        assert all(6 * MS <= time < 6.1 * MS for time in collects.gpu_times("three")[replayed])
        assert collects.gpu_times("one")[replayed] == collects.gpu_times("two")[replayed] == [0] * 19
        streams = {work.stream.name for each in collects.of("three")[-1:] for work in each.gpu}
        assert "middle" in streams


def test_only_some_replays_are_timed_if_not_every_time_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedTime, "is_sampled", property(lambda _: True, lambda *_: None))
    monkeypatch.setattr("headrace.observe.events.gpu_timing._INTERVAL", 50 * MS)
    monkeypatch.setattr("headrace.observe.events.gpu_timing._BURST", 1)
    _, collects, _ = observed(lambda app: chain(app, 60, 10 * MS))
    timed = [bool(value) for each in collects.of("two") for value in each.is_timed][1:]
    replayed = collects.gpu_times("two")[1:]
    assert [time > 0 for time in replayed] == timed
    places = [place for place, is_timed in enumerate(timed) if is_timed]
    assert len(places) >= 2
    assert all(after - before >= 5 for before, after in pairwise(places))  # frames of 10 ms
    assert all(2 * MS <= time < 2.1 * MS for time in replayed if time)


def test_ordinary_frames_between_replays_are_recorded_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    _, collects, _ = observed(lambda app: chain(app, 30, large=5, shapes=1))
    flags = collects.replayed("two")
    assert flags[10:] == [(frame % 5 != 4) for frame in range(10, 30)]
    times = collects.gpu_times("two")
    assert all(2 * MS <= time < 2.1 * MS for time in times)
    work = [each for computes in collects.of("two") for each in computes.gpu]
    started = np.concatenate([each.started for each in work])
    assert (np.diff(started) > 0).all()


def test_a_trace_shows_operators_of_a_replay_on_their_slices(tmp_path: Path) -> None:
    trace = traced(
        lambda app: chain(app, slices={"one": 16, "two": 24, "three": 32}), tmp_path / "trace.json"
    )
    for name, length, count in (("one", 1, 16), ("two", 2, 24), ("three", 3, 32)):
        shown = trace.of("X", cat="gpu", name=name)[-20:]
        track = f"GPU 0: slice {name}, {count} of 132 SMs / stream of {name}"
        assert {trace.track_of(event) for event in shown} == {track}
        assert all(length * 1e3 <= event["dur"] < (length + 0.1) * 1e3 for event in shown)
        computes = trace.of("X", cat="compute", name=name)
        assert [event["args"].get("replayed", False) for event in computes] == [False] + [True] * 19
    assert len(trace.of("b", name="source → one → two → three → sink")) == 20


def test_a_trace_shows_a_segment_that_is_not_divided_on_a_track_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("headrace.observe.events.replays.captured_frontier", refuse)
    trace = traced(lambda app: chain(app, slices={"three": 32}), tmp_path / "trace.json")
    tracks = [trace.track_of(event) for event in trace.of("X", cat="gpu", name="three")[-20:]]
    assert (
        tracks
        == ["GPU 0: slice three, 32 of 132 SMs / stream of three"]
        + ["GPU 0: all 132 SMs / segment middle"] * 19
    )


def test_nvtx_ranges_of_replays_have_the_name_of_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[str] = []

    class Domain:
        def get_event_attributes(self, message: str, payload: int) -> SimpleNamespace:
            return SimpleNamespace(message=message, payload=payload)

        def push_range(self, attributes: SimpleNamespace) -> None:
            pushed.append(attributes.message)

        def pop_range(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "nvtx", SimpleNamespace(get_domain=lambda name: Domain()))
    app = App(chain)
    watch(app, NvtxRanges())
    app.run()
    assert {name: pushed.count(name) for name in ("source", "one", "three", "middle")} == {
        "source": 20,
        "one": 1,
        "three": 1,
        "middle": 19,
    }
