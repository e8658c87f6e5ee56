"""Runs with captured segments: all schedulers, clocks and ends of a run, and what can go wrong in it."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from headrace._runtime.scheduling.engine import is_compiled
from headrace.capture import CaptureRefused
from headrace.capture import segment as captured
from headrace.capture.recording import record
from headrace.core import MetadataPolicy
from headrace.resources import (
    RealtimeClock,
)
from headrace.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.gpu.segment_programs import (
    COUNT,
    FRAMES,
    Blend,
    Sink,
    Source,
    Stage,
    Work,
    both,
    chain,
    run_with,
    seen_by,
    three,
)
from tests.harness import PATIENCE, App, MakeScheduler, event_based, greedy
from tests.harness.application import SEVERAL
from tests.limits import THOROUGH, pairs

pytestmark = pytest.mark.usefixtures("of_this_process")


def workers(kind: type, count: int) -> MakeScheduler:
    def make(app: Any, **settings: Any) -> Any:
        from tests.harness.application import _in_virtual_time

        return kind(app, worker_thread_number=count, **_in_virtual_time(app, settings))

    return make


def two_segments(app: Any) -> None:
    """Two segments, one after the other, with a branch around the second and an operator between them."""
    a, b, c, d = (Stage(app, times=k, plus=k, name=f"s{k}") for k in (2, 3, 4, 5))
    between, blend = Stage(app, name="between"), Blend(app, name="blend")
    blend.metadata_policy = MetadataPolicy.UPDATE
    chain(app, Source(app, frames=30, details=True, name="source"), a, b, between, c, d)
    app.add_flow(d, blend, {("out", "one")})
    app.add_flow(b, blend, {("out", "two")})
    chain(app, blend, Sink(app, late=2, name="sink"))
    app.capture(a, b, name="first")
    app.capture(c, d, name="second")


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (EventBasedScheduler, 1),
        *([(MultiThreadScheduler, 2), (EventBasedScheduler, 3)] if THOROUGH else []),
        (MultiThreadScheduler, 5),
    ],
)
def test_any_number_of_workers(kind: type, count: int) -> None:
    ran = both(two_segments, scheduler=workers(kind, count))
    assert [(one.state, one.replayed) for one in ran.segments] == [("captured", 29)] * 2


@pytest.mark.parametrize(
    ("kind", "count"), pairs([EventBasedScheduler, MultiThreadScheduler][: 1 + THOROUGH], SEVERAL)
)
def test_operators_on_other_workers_may_wait_for_the_device(
    kind: type, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA forbids that while a stream captures, so nothing else computes while a frame is recorded."""
    computing: set[str] = set()
    beside: list[set[str]] = []

    def wait(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        computing.add(self.name)
        op_output.emit(op_input.receive("in"), "out")
        op_input.receive_cuda_stream("in").device.sync()
        computing.discard(self.name)

    def compose(app: Any) -> None:
        members = [Stage(app, name="one"), Stage(app, name="two")]
        chain(app, Source(app, frames=20, name="source"), *members, Sink(app, late=2, name="sink"))
        for name in ("left", "right"):
            source, waiting = Source(app, frames=40, name=name), Work(app, body=wait, name=f"waiting {name}")
            chain(app, source, waiting, Sink(app, name=f"sink of {name}"))
        app.capture(*members)

    def noting(*args: Any) -> Any:
        beside.append(set(computing))
        return record(*args)

    monkeypatch.setattr(captured, "record", noting)
    ran = both(compose, scheduler=workers(kind, count))
    assert ran.segment.state == "captured"
    if not is_compiled():  # compiled code calls it directly
        assert beside == [set()]


@pytest.mark.parametrize(("scheduler", "computed"), [(greedy, 2), (workers(EventBasedScheduler, 2), 3)])
def test_a_frame_that_others_may_compute_beside_is_not_recorded_but_the_next_one(
    scheduler: MakeScheduler, computed: int
) -> None:
    """The first frame of the small kind is followed by large ones, whose recording lets others compute again."""

    def compose(app: Any) -> None:
        counts = (COUNT, 2 * COUNT, 2 * COUNT, COUNT)
        members = [Stage(app, name="one"), Stage(app, name="two")]
        chain(app, Source(app, counts=counts, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members)

    segment = both(compose, scheduler=scheduler).segment
    assert (segment.recordings, segment.replayed) == (2, FRAMES - computed)


def test_a_frame_is_recorded_beside_others_if_nothing_can_compute_alone() -> None:
    def compose(app: Any) -> None:
        def give_up(frame: Any, number: int) -> Any:
            source._headrace.node.engine.alone.is_given_up = (
                True  # as after a second in which another compute did not end
            )
            return frame

        source = Source(app, make=give_up, name="source")
        members = [Stage(app, name="one"), Stage(app, name="two")]
        chain(app, source, *members, Sink(app, name="sink"))
        app.capture(*members)

    segment = both(compose, scheduler=workers(EventBasedScheduler, 2)).segment
    assert (segment.recordings, segment.replayed) == (1, FRAMES - 1)


@pytest.mark.parametrize("make", [GreedyScheduler, EventBasedScheduler])
def test_real_time(make: type) -> None:
    def scheduler(app: Any, **settings: Any) -> Any:
        return make(app, clock=RealtimeClock(app))

    ran = both(two_segments, scheduler=scheduler)
    assert [(one.state, one.replayed) for one in ran.segments] == [("captured", 29)] * 2


# The environment.


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", ("off", 0, 0)),
        ("verify", ("captured", FRAMES - 1, 1)),
        ("strict", ("captured", FRAMES - 1, 1)),
        ("auto", ("captured", FRAMES - 1, 1)),
        ("", ("captured", FRAMES - 1, 1)),
    ],
)
def test_what_the_environment_asks_for(mode: str, expected: tuple[str, int, int]) -> None:
    segment = both(three, mode).segment
    assert (segment.state, segment.replayed, segment.recordings) == expected


@pytest.mark.parametrize("warmup", [1, 2, 5])
def test_how_many_frames_come_first(warmup: int) -> None:
    ran = both(lambda app: three(app, warmup=warmup) and None)
    assert ran.segment.replayed == FRAMES - warmup


def test_the_first_frame_which_may_compile_is_no_time_to_compare_with() -> None:
    alone = both(lambda app: three(app, check_every=None) and None)
    (outcome,) = alone.app.outcome.segments
    assert (outcome.replayed, outcome.eager_ns, outcome.saved) == (FRAMES - 1, None, 0.0)
    assert "saved" not in str(outcome)


@pytest.mark.parametrize("options", [{"warmup": 2, "check_every": None}, {"check_every": 0}], ids=str)
def test_later_frames_and_those_that_are_checked_are_times_to_compare_with(options: dict[str, Any]) -> None:
    (outcome,) = both(lambda app: three(app, **options) and None).app.outcome.segments
    assert outcome.eager_ns is not None
    assert outcome.eager_ns > 0


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"HEADRACE_CAPTURE='sometimes': must be one of auto, off, verify, strict"
    ):
        run_with(three, "sometimes")


def test_two_programs_run_at_once() -> None:
    expected = run_with(two_segments, "off").seen
    apps = [App(two_segments, event_based) for _ in range(2)]
    futures = [app.run_async() for app in apps]
    for future in futures:
        future.result(timeout=PATIENCE)
    for app in apps:
        assert seen_by(app) == expected
        assert [segment.state for segment in app.segments] == ["captured"] * 2


def test_nothing_of_a_run_is_left() -> None:
    """Neither memory nor operators outlive a run with recordings."""
    import weakref

    def ran() -> list[Any]:
        app = App(two_segments, event_based)
        app.run()
        found = [weakref.ref(app), *map(weakref.ref, app.graph)]
        return found

    references = ran()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)


def test_a_warning_is_raised_once_for_each_segment(recwarn: pytest.WarningsRecorder) -> None:
    def compose(app: Any) -> None:
        def body(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            frame = op_input.receive("in")
            op_input.receive_cuda_stream("in").stream.sync()
            op_output.emit(frame, "out")

        members = [Work(app, body=body, name=f"m{k}") for k in range(4)]
        chain(app, Source(app, frames=30, name="source"), *members, Sink(app, name="sink"))
        app.capture(*members[:2], name="one")
        app.capture(*members[2:], name="two")

    with pytest.warns(CaptureRefused) as warned:
        run_with(compose)
    assert sorted(str(one.message)[:13] for one in warned) == ["segment 'one'", "segment 'two'"]
