"""Frames that a program puts into a run, and takes out of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace import CountCondition, gpu, op
from headrace.core import FeedClosedError, GraphError
from headrace.gpu import sim
from headrace.operators import FeedOp, ResultsOp
from tests.harness import (
    MS,
    PATIENCE,
    SCHEDULERS,
    App,
    Doubler,
    MakeScheduler,
    frame,
    greedy,
    read_frame,
    sink,
    wait_until,
    write_frame,
)
from tests.limits import pairs


@op
def double(value: int) -> int:
    if value < 0:
        raise ValueError(f"{value} is negative")
    return 2 * value


def doubling(scheduler: MakeScheduler = greedy, size: int = 2) -> App:
    """Return an application that doubles what it is fed."""

    def compose(app: App) -> None:
        feed, middle = FeedOp(app, name="frames", size=size), double(app)
        app.add_flow(feed, middle, ResultsOp(app, name="found", size=size))

    return App(compose, scheduler)


def test_metadata_and_timestamps_travel_with_the_frames() -> None:
    app = doubling()
    with app.running():
        app.feed("frames").put(1, metadata={"request": 7}, acq_timestamp=123)
        results = app.results("found")
        assert next(results) == 2
        assert results.metadata == {"request": 7}
        assert results.acq_timestamp == 123


def test_a_full_feed_makes_the_program_wait() -> None:
    app = doubling()
    with app.running():
        app.pause()
        assert app.wait_until_paused(PATIENCE)
        feed = app.feed("frames")
        feed.put(0)
        feed.put(1)
        with pytest.raises(TimeoutError, match="'frames' was full for 0 s: 2 frames wait"):
            feed.put(2, timeout=0)
        app.resume()
        feed.put(3)
        feed.close()
        assert list(app.results("found")) == [0, 2, 6]


def test_a_run_that_fails_raises_in_put_and_in_the_iteration(scheduler: MakeScheduler) -> None:
    app = doubling(scheduler)
    with pytest.raises(ValueError, match="-1 is negative"), app.running() as future:
        feed, results = app.feed("frames"), app.results("found")
        feed.put(1)
        feed.put(-1)
        assert future.exception() is not None
        with pytest.raises(ValueError, match="-1 is negative"):
            feed.put(2)
        assert next(results) == 2  # what was made before comes first
        with pytest.raises(ValueError, match="-1 is negative"):
            next(results)
    assert app.outcome.ended_by == "failed"


def test_a_put_that_waits_is_woken_by_the_failure() -> None:
    may_fail = threading.Event()

    @op
    def fail_late(value: int) -> None:
        may_fail.wait(PATIENCE)
        raise ValueError("late")

    def compose(app: App) -> None:
        app.add_flow(FeedOp(app, name="frames", size=1), fail_late(app))

    app = App(compose)
    with pytest.raises(ValueError, match="late"), app.running():
        feed = app.feed("frames")

        def let_fail() -> None:
            wait_until(lambda: feed._channel._waiting, "a put that waits for room")
            may_fail.set()

        threading.Thread(target=let_fail).start()
        while True:
            feed.put(1)


def test_a_put_after_the_end_raises_a_named_error() -> None:
    def compose(app: App) -> None:
        app.add_flow(FeedOp(app, name="frames"), ResultsOp(app, name="found"))
        app.add_flow(FeedOp(app, name="open"), ResultsOp(app, name="kept"))  # the run goes on

    app = App(compose)
    with app.running():
        feed = app.feed("frames")
        feed.close()
        with pytest.raises(FeedClosedError, match="'frames' was closed"):
            feed.put(1)
    with pytest.raises(FeedClosedError, match="its run has ended"):
        feed.put(1)


@pytest.mark.parametrize("end", ["condition", "stop_execution"])
def test_a_feed_whose_operator_has_ended_takes_no_more(end: str) -> None:
    def compose(app: App) -> None:
        conditions = [CountCondition(app, 1)] if end == "condition" else []
        app.add_flow(FeedOp(app, *conditions, name="frames", size=1), ResultsOp(app, name="found"))

    app = App(compose)
    with app.running():
        feed, results = app.feed("frames"), app.results("found")
        feed.put(1)
        assert next(results) == 1
        if end == "stop_execution":
            app.stop_execution("frames")
        with pytest.raises(FeedClosedError):
            for _ in range(100):
                feed.put(2)


def test_leaving_the_block_lets_everything_that_was_put_reach_the_other_operators(
    scheduler: MakeScheduler,
) -> None:
    stored: list[int] = []

    def compose(app: App) -> None:
        feed = FeedOp(app, name="frames")
        app.add_flow(feed, sink(app, stored))
        app.add_flow(feed, ResultsOp(app, name="found", size=1))

    app = App(compose, scheduler)
    with app.running():
        feed, results = app.feed("frames"), app.results("found")
        for value in range(4):
            feed.put(value)
        for _ in results:
            break  # left early
    assert stored == [0, 1, 2, 3]
    assert results.dropped == 3
    assert feed.undelivered == 0


def test_an_exception_in_the_block_stops_the_run() -> None:
    app = doubling()
    with pytest.raises(KeyError), app.running():
        raise KeyError("mine")
    assert app.outcome.ended_by == "stopped"
    assert not _threads_of(app)


def test_an_error_of_compose_is_raised_where_the_block_begins() -> None:
    def compose(app: App) -> None:
        raise ValueError("no graph")

    with pytest.raises(ValueError, match="no graph"), App(compose).running():
        pytest.fail("the block must not begin")


def test_names_that_are_wrong_are_refused() -> None:
    app = doubling()
    with pytest.raises(GraphError, match="is not running; call it in a block `with app.running"):
        app.feed("frames")
    with app.running():
        with pytest.raises(GraphError, match="no FeedOp 'found'; it has 'frames'"):
            app.feed("found")
        with pytest.raises(GraphError, match="no ResultsOp 'double'; it has 'found'"):
            app.results("double")


# asyncio


def test_tasks_put_and_take(scheduler: MakeScheduler) -> None:
    app = doubling(scheduler)

    async def put_all() -> None:
        with app.feed("frames") as feed:
            for value in range(20):
                await feed.put_async(value)

    async def main() -> list[int]:
        async with app.running():
            putting = asyncio.create_task(put_all())
            taken = [value async for value in app.results("found")]
            await putting
        return taken

    assert asyncio.run(main()) == list(range(0, 40, 2))
    assert not _threads_of(app)


def test_a_failure_is_raised_in_tasks() -> None:
    app = doubling()

    async def main() -> None:
        async with app.running():
            feed = app.feed("frames")
            await feed.put_async(-1)
            async for _ in app.results("found"):
                pytest.fail("nothing was made")

    with pytest.raises(ValueError, match="-1 is negative"):
        asyncio.run(main())


def test_a_put_that_is_cancelled_has_put_nothing() -> None:
    app = doubling(size=1)

    async def main() -> list[int]:
        async with app.running():
            app.pause()
            assert await asyncio.to_thread(app.wait_until_paused, PATIENCE)
            feed = app.feed("frames")
            await feed.put_async(1)
            waits = asyncio.create_task(feed.put_async(2))
            await asyncio.sleep(0)  # it has begun, and waits for room
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            app.resume()
            await feed.put_async(3)
            feed.close()
            return [value async for value in app.results("found")]

    assert asyncio.run(main()) == [2, 6]


# Frames on a device


def fed_frames(app: App) -> None:
    feed, doubler = FeedOp(app, name="frames"), Doubler(app, name="doubler")
    app.add_flow(feed, doubler, ResultsOp(app, name="found"))


@pytest.mark.parametrize(("scheduler", "named", "ahead"), pairs(SCHEDULERS, [False, True], [1, 3]))
def test_frames_on_a_device_keep_their_order_and_their_memory(
    machine: sim.Machine, scheduler: MakeScheduler, named: bool, ahead: int
) -> None:
    """The program's kernels take longer than those of the run: a missing wait or early release shows."""
    app, seen = App(fed_frames, scheduler), []
    stream = gpu.StreamHandle(sim.Device(0).create_stream())
    with (
        gpu.use_stream(stream) if not named else gpu.use_stream(sim.Device(0).create_stream()),
        app.running(),
    ):
        feed, results = app.feed("frames"), app.results("found")
        results.stream = stream if named else None
        waiting = 0
        for number in range(1, 25):
            data = frame(stream)
            write_frame(stream, 5 * MS, data, number)
            feed.put(data, stream=stream if named else None)
            del data
            waiting += 1
            if waiting == ahead:
                read_frame(stream, 7 * MS, next(results), seen)
                waiting -= 1
        feed.close()
        for data in results:
            read_frame(stream, 7 * MS, data, seen)
            del data
    assert seen == [2 * number for number in range(1, 25)]


def test_when_the_iteration_ends_the_work_on_its_frames_is_complete(machine: sim.Machine) -> None:
    app, seen = App(fed_frames), []
    stream = gpu.StreamHandle(sim.Device(0).create_stream())
    with gpu.use_stream(stream), app.running() as future:
        for number in (1, 2):
            data = frame(stream)
            write_frame(stream, MS, data, number)
            app.feed("frames").put(data)
        app.feed("frames").close()
        future.result()
        with machine.attach():
            for data in app.results("found"):
                read_frame(stream, MS, data, seen)
            assert seen == [2, 4]


def _threads_of(app: App) -> list[str]:
    return [thread.name for thread in threading.enumerate() if app.name in thread.name]
