"""Coroutines and async generators as operators."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headrace import Application, CountCondition, Input, IOSpec, Operator, op
from headrace.conditions import PeriodicCondition
from headrace.core import Stuck
from headrace.gpu import sim
from headrace.resources import MachineClock, ManualClock, SyntheticClock
from headrace.schedulers import EventBasedScheduler, GreedyScheduler
from tests.harness import PATIENCE, App, MakeScheduler, Step, run, sink, source, wait_until


@op
async def numbers(*, count: int) -> Any:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


def test_an_async_generator_yields_several_values_for_a_message(scheduler: MakeScheduler) -> None:
    @op
    async def count_up(value: int) -> Any:
        for step in range(value):
            await asyncio.sleep(0)
            yield value, step

    taken: list[Any] = []

    def compose(app: App) -> None:
        middle = count_up(app)
        app.add_flow(source(app, [2, 0, 1]), middle, sink(app, taken))

    run(compose, scheduler)
    assert taken == [(2, 0), (2, 1), (1, 0)]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_count_counts_calls(scheduler: MakeScheduler, count: int) -> None:
    begun: list[int] = []
    taken: list[int] = []

    @op(on_error="skip")
    async def twice(value: int) -> Any:
        begun.append(value)
        await asyncio.sleep(0)
        yield value
        if value == 2:
            raise ValueError("the second")
        yield -value

    def compose(app: App) -> None:
        middle = twice(app, CountCondition(app, count))
        app.add_flow(source(app, range(1, 9)), middle, sink(app, taken))

    run(compose, scheduler)
    assert begun == list(range(1, count + 1))
    assert taken == [1, -1, 2, 3, -3, 4, -4][: 2 * count - (count > 1)]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_message_is_taken_for_a_call_that_is_not_counted(
    scheduler: MakeScheduler, concurrency: int
) -> None:
    taken: list[int] = []

    @op(concurrency=concurrency)
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value

    def compose(app: App) -> None:
        middle = later(app, CountCondition(app, 5))
        app.add_flow(source(app, range(1, 12), name="numbers"), middle, sink(app, taken))

    outcome = run(compose, scheduler).outcome
    assert taken == [1, 2, 3, 4, 5]
    assert outcome.operators["later"].undelivered == {"value": 1}
    assert outcome.operators["numbers"].computes == 6


def _on_a_clock_of_the_test(app: Any, **settings: Any) -> GreedyScheduler:
    return GreedyScheduler(app, clock=SyntheticClock(app))


@pytest.mark.parametrize("is_source", [False, True])
def test_a_deadline_is_that_of_a_call(is_source: bool) -> None:
    found: list[Stuck] = []
    taken: list[int] = []

    async def hang_in_here(app: Any) -> int:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        app.release = lambda: loop.call_soon_threadsafe(event.set)

        def advance() -> None:
            # The call of a source begins before the run does, which watches it.
            wait_until(lambda: app.progress().computing.get("hang") is not None, "the watch of the call")
            app.scheduler().clock.advance_by("2ms")

        loop.call_soon(advance)  # when this coroutine awaits the event
        await event.wait()
        return 1

    def compose(app: App) -> None:
        def on_stuck(stuck: Stuck) -> None:
            found.append(stuck)
            app.release()  # type: ignore[attr-defined]

        @op(deadline="1ms", on_stuck=on_stuck)
        async def hang() -> int:
            return await hang_in_here(app)

        @op(deadline="1ms", on_stuck=on_stuck)
        async def hang_for(value: int) -> int:
            return await hang_in_here(app)

        first = CountCondition(app, 1)
        stuck = hang(app, first, name="hang") if is_source else hang_for(app, first, name="hang")
        if not is_source:
            app.add_flow(source(app, [1]), stuck)
        app.add_flow(stuck, sink(app, taken))

    outcome = run(compose, _on_a_clock_of_the_test).outcome
    assert taken == [1]
    (stuck,) = found
    assert (stuck.operator, stuck.seconds) == ("hang", 0.002)
    assert "return await hang_in_here(app)" in stuck.stack
    assert "await event.wait()" in stuck.stack
    assert outcome.operators["hang"].stuck == 1


def test_a_call_that_waits_for_the_event_loop_is_reported_with_what_the_loop_does() -> None:
    found: list[Stuck] = []
    blocked, reported = threading.Event(), threading.Event()

    def block_the_loop(app: Any) -> None:
        blocked.set()
        wait_until(lambda: app.progress().computing.get("wait") is not None, "the call of the other")
        app.scheduler().clock.advance_by("2ms")
        assert reported.wait(PATIENCE)

    def compose(app: App) -> None:
        @op
        async def block() -> None:  # a source: its call begins at the start
            block_the_loop(app)

        @op
        def send() -> int:
            assert blocked.wait(PATIENCE)
            return 1

        def on_stuck(stuck: Stuck) -> None:
            found.append(stuck)
            reported.set()

        @op(deadline="1ms", on_stuck=on_stuck)
        async def wait(value: int) -> None:
            pass

        app.add_operator(block(app, CountCondition(app, 1)))
        app.add_flow(send(app, CountCondition(app, 1)), wait(app))

    run(compose, _on_a_clock_of_the_test)
    (stuck,) = found
    assert stuck.operator == "wait"
    assert "assert reported.wait(PATIENCE)" in stuck.stack


def test_a_call_that_ends_while_its_watch_begins_is_not_watched_any_more() -> None:
    calls: list[Any] = []
    ends: list[int] = []

    @op
    async def one() -> int:
        calls.append((asyncio.get_running_loop(), event := asyncio.Event()))
        await event.wait()
        return 1

    def compose(app: App) -> None:
        def watch(stack: Any) -> Any:
            wait_until(lambda: calls, "the call")
            loop, event = calls[0]
            loop.call_soon_threadsafe(event.set)
            wait_until(lambda: call.is_done, "the end of the call")
            return lambda: ends.append(1)

        class Late(Operator):
            def start(self) -> None:
                nonlocal call
                (call,) = first._calls
                first.watch_calls(watch)

            def setup(self, spec: Any) -> None:
                spec.input("in")

            def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
                op_input.receive("in")

        call: Any = None
        first: Any = one(app, CountCondition(app, 1))
        app.add_flow(first, Late(app, name="late"))

    run(compose)
    assert ends == [1]


def test_calls_overlap_only_if_asked_for_and_results_stay_in_order(scheduler: MakeScheduler) -> None:
    most = {1: 0, 3: 0}

    def make(concurrency: int) -> Any:
        active = 0
        gate: list[asyncio.Barrier] = []

        @op(concurrency=concurrency, inputs={"value": Input(policy=IOSpec.QueuePolicy.FAULT)})
        async def wait(value: int, *, metadata: dict[str, Any]) -> int:
            nonlocal active
            active += 1
            most[concurrency] = max(most[concurrency], active)
            gate[:] = gate or [asyncio.Barrier(concurrency)]
            await gate[0].wait()  # passes only if as many calls are in progress
            for _ in range(3 - value % 3):  # later calls end earlier
                await asyncio.sleep(0)
            active -= 1
            metadata["value"] = value
            return value

        return wait

    for concurrency in most:
        taken: list[Any] = []

        @op(outputs=())
        def take(value: int, *, metadata: dict[str, Any]) -> None:
            taken.append((value, metadata["value"]))  # noqa: B023

        def compose(app: App) -> None:
            waits = make(concurrency)(app)  # noqa: B023
            app.add_flow(source(app, range(9)), waits, take(app))

        run(compose, scheduler)
        assert taken == [(value, value) for value in range(9)]
    assert most == {1: 1, 3: 3}


def test_an_error_stops_the_run_and_names_the_operator() -> None:
    @op
    async def fail(value: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(f"bad {value}")

    def compose(app: App) -> None:
        app.add_flow(source(app, [1, 2]), fail(app))

    with pytest.raises(ValueError, match="bad 1") as caught:
        run(compose)
    assert "operator 'fail'" in "".join(caught.value.__notes__)
    assert not _loops()


@pytest.mark.parametrize("policy", ["skip", {"restart": 1}])
def test_an_error_that_is_skipped_loses_only_its_own_message(policy: Any, scheduler: MakeScheduler) -> None:
    @op(on_error=policy)
    async def check(value: int) -> int:
        if value == 2:
            raise ValueError(value)
        return value

    taken: list[int] = []

    def compose(app: App) -> None:
        checks = check(app)
        app.add_flow(source(app, [1, 2, 3, 4]), checks, sink(app, taken))

    run(compose, scheduler)
    assert taken == [1, 3, 4]


def test_what_still_awaits_is_cancelled_when_the_run_ends(scheduler: MakeScheduler) -> None:
    ended: list[str] = []

    @op
    async def forever(value: int) -> int:
        try:
            app.stop_execution()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("call")
        return value

    @op
    async def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            ended.append("generator")

    class Stops(Application):
        def compose(self) -> None:
            self.add_flow(endless(self), forever(self))

    app = Stops()
    app.scheduler(scheduler(app))
    assert app.run().ended_by == "stopped"
    assert sorted(ended) == ["call", "generator"]
    assert not _loops()


def test_a_coroutine_that_cancels_itself_is_an_error() -> None:
    @op
    async def gives_up(value: int) -> int:
        raise asyncio.CancelledError

    def compose(app: App) -> None:
        app.add_flow(source(app, [1]), gives_up(app))

    with pytest.raises(RuntimeError, match="'gives_up': its function was cancelled"):
        run(compose)


def test_what_an_async_function_cannot_have_is_refused() -> None:
    with pytest.raises(TypeError, match="concurrency=2 needs an `async def`"):

        @op(concurrency=2)
        def plain(value: int) -> int:
            return value

    with pytest.raises(TypeError, match="cannot be captured"):

        @op(capturable=True)
        async def captured(value: int) -> int:
            return value

    with pytest.raises(TypeError, match="take `metadata`"):

        @op
        async def contextual(value: int, *, context: Any) -> int:
            return value


def _loops() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "event loop" in thread.name]


def test_a_source_ends_with_an_error_that_is_skipped(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    @op(on_error="skip")
    async def one() -> Any:
        yield 1
        raise ValueError("no more")

    app = run(lambda app: app.add_flow(one(app), sink(app, taken)), scheduler)
    assert taken == [1]
    assert (app.outcome.ended_by, app.outcome.skipped) == ("finished", 1)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("time", ["manual", "machine"])
def test_virtual_time_stands_still_during_a_call(time: str, workers: int) -> None:
    times: list[Any] = []

    @op
    async def slowly(value: int) -> int:
        for _ in range(50):  # others could run meanwhile
            await asyncio.sleep(0)
        return value

    def compose(app: Any) -> None:
        stage = slowly(app)
        app.add_flow(source(app, range(3), PeriodicCondition(app, "10ms")), stage)

        def note(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            times.append((op_input.receive("in"), context.timestamp // 1_000_000))

        app.add_flow(stage, Step(app, inputs=["in"], body=note, name="note"))
        ticks = CountCondition(app, 40), PeriodicCondition(app, "1ms")
        app.add_operator(Step(app, *ticks, body=lambda self, i, o: None, name="ticks"))

    def make(app: Any, clock: Any = None) -> Any:
        kind = MachineClock if time == "machine" else ManualClock
        return EventBasedScheduler(app, worker_thread_number=workers, clock=kind(app))

    with sim.Machine("h200"):
        App(compose, make).run()
    assert times == [(0, 0), (1, 10), (2, 20)]
