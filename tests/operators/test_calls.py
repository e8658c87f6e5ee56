"""Calls: a request that a program puts into a feed, and the answer that stems from it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from headrace import ConditionType, Input, gpu, op
from headrace.core import CrossingError, FeedClosedError, FeedFullError, IOSpec, UnansweredError, retry, skip
from headrace.gpu import sim
from headrace.operators import FeedOp, ResultsOp, split_batch
from tests.gpu.segment_programs import Sink, Source, Stage
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
    write_frame,
)
from tests.limits import pairs

Connect = Callable[[App, FeedOp, ResultsOp], None]


def service(connect: Connect, scheduler: MakeScheduler = greedy, size: int = 64) -> App:
    """Return an application with a feed, results, and what `connect` puts between them."""

    def compose(app: App) -> None:
        connect(app, FeedOp(app, name="asked", size=size), ResultsOp(app, name="found"))

    return App(compose, scheduler)


def chain(*functions: Any, scheduler: MakeScheduler = greedy, size: int = 64, **options: Any) -> App:
    """Return a service of functions in a row; the options are those of the first one."""

    def connect(app: App, feed: FeedOp, results: ResultsOp) -> None:
        stages = [function(app, **(options if not n else {})) for n, function in enumerate(functions)]
        for left, right in zip([feed, *stages], [*stages, results], strict=True):
            app.add_flow(left, right)

    return service(connect, scheduler, size)


async def asked(app: App, *values: Any, **options: Any) -> list[Any]:
    """Return the answers to calls that are under way together; those that failed are the exceptions."""
    async with app.running():
        calls = [app.call("asked", value, **options) for value in values]
        return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)


def answers(app: App, *values: Any, **options: Any) -> list[Any]:
    return asyncio.run(asked(app, *values, **options))


@op
def double(value: int) -> int:
    if value < 0:
        raise ValueError(f"{value} is negative")
    return 2 * value


@op
def keep_even(value: int) -> int | None:
    return value if value % 2 == 0 else None


BATCH = {"values": Input(size=4).condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)}


@op(inputs=BATCH)
def double_all(values: tuple[int, ...]) -> list[Any]:
    return [2 * value if value >= 0 else ValueError(f"{value} is negative") for value in values]


@op(inputs=BATCH)
def total(values: tuple[int, ...]) -> int:
    return sum(values)


@op(inputs=BATCH)
def shorten(values: tuple[int, ...]) -> list[int]:
    return [*values, 0]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_call_gets_its_own_answer(scheduler: MakeScheduler) -> None:
    assert answers(chain(double, scheduler=scheduler), *range(50)) == list(range(0, 100, 2))


def test_answers_find_their_calls_in_another_order() -> None:
    @op(concurrency=3)
    async def wait(value: int) -> int:
        for _ in range(3 - value):
            await asyncio.sleep(0)
        return value

    def connect(app: App, feed: FeedOp, results: ResultsOp) -> None:
        left, right = wait(app, name="left"), double(app, name="right")
        for each in (left, right):
            app.add_flow(feed, each, results)

    for value in answers(service(connect), 0, 1, 2):
        assert value in (0, 1, 2, 4)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_batch_answers_each_call_with_its_item(scheduler: MakeScheduler) -> None:
    assert answers(chain(double_all, scheduler=scheduler), *range(23)) == list(range(0, 46, 2))


def test_a_batch_of_one_is_a_batch() -> None:
    assert answers(chain(double_all), 4) == [8]
    assert answers(chain(double), 4) == [8]


def test_a_batch_may_be_split_and_joined_again() -> None:
    app = chain(double_all, split_batch, double, double_all, split_batch)
    assert answers(app, *range(9)) == list(range(0, 72, 8))


def test_a_failed_item_answers_its_own_call_with_its_error() -> None:
    found = answers(chain(double_all, split_batch), 1, -2, 3)
    assert [found[0], str(found[1]), found[2]] == [2, "-2 is negative", 6]
    assert type(found[1]) is ValueError


def test_a_batch_with_a_wrong_number_of_items_answers_nobody_wrongly() -> None:
    for app in (chain(shorten), chain(shorten, split_batch)):
        for error in answers(app, 1, 2, 3):
            assert isinstance(error, UnansweredError)
            assert "it must hold one item for each" in str(error)
    (error,) = answers(chain(total), 1)
    assert "the result of a batch of 1 requests is one int" in str(error)


def test_an_operator_that_skips_errors_answers_with_them() -> None:
    found = answers(chain(double, on_error="skip"), 1, -1, 2)
    assert [found[0], repr(found[1]), found[2]] == [2, "ValueError('-1 is negative')", 4]


def test_a_retried_call_is_answered_once_it_succeeds_or_fails_for_good() -> None:
    attempts = []

    @op
    def fail_twice(value: int) -> int:
        attempts.append(value)
        if attempts.count(value) <= value:
            raise ValueError(f"attempt {attempts.count(value)}")
        return value

    found = answers(chain(fail_twice, on_error=retry(2) | skip()), 1, 2, 3)
    assert found[:2] == [1, 2]
    assert str(found[2]).startswith("attempt 3")


def test_a_dead_letter_answers_its_call_with_the_error() -> None:
    def connect(app: App, feed: FeedOp, results: ResultsOp) -> None:
        middle = double(app, on_error={"dead_letter": "failed"})
        app.add_flow(feed, middle)
        app.add_flow(middle, results, {("out", "in")})
        app.add_flow(middle, keep_even(app), {("failed", "value")})

    found = answers(service(connect), -4, 4)
    assert [str(found[0]), found[1]] == ["-4 is negative", 8]


def test_a_run_that_fails_answers_every_call_with_its_exception() -> None:
    async def call() -> list[Any]:
        app = chain(double)
        with pytest.raises(ValueError, match="-1 is negative"):
            async with app.running():
                app.pause()
                calls = [asyncio.ensure_future(app.call("asked", value)) for value in (-1, 1, 2)]
                await asyncio.sleep(0)
                app.resume()
                found = await asyncio.gather(*calls, return_exceptions=True)
        return found

    for error in asyncio.run(call()):
        assert "-1 is negative" in str(error)


def test_a_call_whose_message_is_dropped_ends() -> None:
    found = answers(chain(keep_even), 1, 2)
    assert isinstance(found[0], UnansweredError)
    assert found[1] == 2


def test_a_call_whose_message_a_full_queue_drops_ends() -> None:
    def connect(app: App, feed: FeedOp, results: ResultsOp) -> None:
        middle = double(app)
        app.add_flow(feed, middle, policy=IOSpec.QueuePolicy.POP)
        app.add_flow(middle, results)

    async def call() -> list[Any]:
        app = service(connect)
        async with app.running():
            app.pause()
            calls = [asyncio.ensure_future(app.call("asked", value)) for value in (1, 2, 3)]
            await asyncio.sleep(0)
            app.step(3, op_name="asked")
            assert await asyncio.to_thread(app.wait_until_paused, PATIENCE)
            app.resume()
            return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)

    assert [type(each) for each in asyncio.run(call())] == [UnansweredError, UnansweredError, int]


def test_a_call_that_nobody_answers_in_time_is_withdrawn() -> None:
    async def call() -> list[Any]:
        app = chain(double)
        async with app.running():
            app.pause()
            app.wait_until_paused(PATIENCE)
            with pytest.raises(TimeoutError, match=r"feed 'asked': a call had no answer after 0\.001 s"):
                await app.call("asked", 1, timeout="1ms")
            assert len(app.feed("asked")) == 0
            task = asyncio.ensure_future(app.call("asked", 2))
            await asyncio.sleep(0)
            assert len(app.feed("asked")) == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(app.feed("asked")) == 0
            app.resume()
            return [await app.call("asked", 3)]

    assert asyncio.run(call()) == [6]


def test_a_full_feed_refuses_a_call_at_once() -> None:
    async def call() -> list[Any]:
        app = chain(double, size=2)
        async with app.running():
            app.pause()
            app.wait_until_paused(PATIENCE)
            calls = [asyncio.ensure_future(app.call("asked", value)) for value in (1, 2)]
            await asyncio.sleep(0)
            with pytest.raises(FeedFullError, match="feed 'asked' is full: 2 frames wait"):
                await app.call("asked", 3)
            app.resume()
            return await asyncio.gather(*calls)

    assert asyncio.run(call()) == [2, 4]


def test_a_closed_feed_and_a_run_that_ends_refuse_calls() -> None:
    async def call() -> None:
        app = chain(double)
        async with app.running():
            app.pause()
            app.wait_until_paused(PATIENCE)
            task = asyncio.ensure_future(app.call("asked", 1))
            await asyncio.sleep(0)
            app.stop_execution()
            with pytest.raises(FeedClosedError, match="the run has ended before the answer"):
                await task
        with pytest.raises(FeedClosedError):
            await app.call("asked", 2)

    asyncio.run(call())


def test_replicas_answer_the_calls_that_they_took() -> None:
    assert answers(chain(double, workers=3), *range(30)) == list(range(0, 60, 2))


@pytest.mark.parametrize(("scheduler", "named"), pairs(SCHEDULERS, [False, True]))
def test_answers_on_a_device_keep_their_order_and_their_memory(
    machine: sim.Machine, scheduler: MakeScheduler, named: bool
) -> None:
    """The program's kernels take longer than those of the run: a missing wait or early release shows."""

    def compose(app: App) -> None:
        feed, doubler = FeedOp(app, name="asked", size=4), Doubler(app, name="doubler")
        app.add_flow(feed, doubler, ResultsOp(app, name="found"))

    app, seen = App(compose, scheduler), []
    stream = gpu.StreamHandle(sim.Device(0).create_stream())

    async def call(number: int) -> None:
        data = frame(stream)
        write_frame(stream, 5 * MS, data, number)
        answering = app.call("asked", data, stream=stream if named else None)
        del data
        read_frame(stream, 7 * MS, await answering, seen)

    async def call_all() -> None:
        async with app.running():
            for first in range(1, 21, 4):
                await asyncio.gather(*[call(first + n) for n in range(4)])

    with gpu.use_stream(stream) if not named else gpu.use_stream(sim.Device(0).create_stream()):
        asyncio.run(call_all())
    stream.stream.sync()
    assert sorted(seen) == list(range(2, 42, 2))


def test_a_captured_segment_passes_calls_on(machine: sim.Machine) -> None:
    class Fill(Source):
        """Makes the frame of the number that it receives."""

        def setup(self, spec: Any) -> None:
            spec.input("in")
            super().setup(spec)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.number = op_input.receive("in")
            super().compute(op_input, op_output, context)

    class Read(Sink):
        def setup(self, spec: Any) -> None:
            super().setup(spec)
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            op_output.emit(self.seen[-1].numbers[1][0], "out")

    def connect(app: App, feed: FeedOp, results: ResultsOp) -> None:
        members = [Stage(app, times=times, plus=1, name=f"stage {times}") for times in (2, 3)]
        fill = Fill(app, frames=100, name="fill")
        for left, right in pairwise([feed, fill, *members, Read(app, name="read"), results]):
            app.add_flow(left, right)
        app.capture(*members)

    app = service(connect)
    assert answers(app, *range(20)) == [3 * (2 * 100 * number + 1) + 1 for number in range(20)]
    (segment,) = app.segments
    assert segment.replayed > 10


def test_replicas_on_processes_answer_calls() -> None:
    chained = chain(double_all, split_batch, workers=2, on="processes")
    assert answers(chained, *range(9)) == list(range(0, 18, 2))
    found = answers(chain(double, workers=2, on="processes", on_error="skip"), 1, -1, 2, lambda: 3)
    assert [found[0], repr(found[1]), found[2]] == [2, "ValueError('-1 is negative')", 4]
    assert isinstance(found[3], CrossingError)


def test_nothing_of_a_call_is_left() -> None:
    class Payload:
        pass

    @op
    def pass_on(value: Any) -> Any:
        return value

    answers(chain(pass_on), *(Payload() for _ in range(3)))
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Payload)]
