"""What holds under every scheduler, and what each adds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import ConditionType, CountCondition, IOSpec, PeriodicCondition
from penstock.conditions import AsynchronousCondition, AsynchronousEventState, BooleanCondition
from penstock.resources import ManualClock, SyntheticClock
from penstock.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler
from tests.harness import (
    App,
    MakeScheduler,
    Step,
    event_based,
    multi_thread,
    run,
    sink,
    source,
    through,
)

threaded = pytest.mark.parametrize("scheduler", [multi_thread, event_based])


# Shapes of graphs.


def test_a_cycle_turns_from_a_seed_message(scheduler: MakeScheduler) -> None:
    turns: list[int] = []

    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            turns.append(i.receive("in"))
            if len(turns) < 100:
                o.emit(turns[-1] + 1, "out")

        loop = Step(app, inputs=["in"], outputs=["out"], body=turn, name="loop")
        back = through(app, name="back")
        app.add_flow(source(app, [0], name="seed"), loop)
        app.add_flow(loop, back)
        app.add_flow(back, loop)

    run(compose, scheduler)
    assert turns == list(range(100))


def test_a_diamond_joins_what_it_split(scheduler: MakeScheduler) -> None:
    taken: list[tuple[int, int]] = []

    def compose(app: App) -> None:
        numbers = source(app, range(20))
        join = Step(
            app,
            inputs=["left", "right"],
            body=lambda op, i, o: taken.append((i.receive("left"), i.receive("right"))),
            name="join",
        )
        for name, factor in (("left", 1), ("right", -1)):
            branch = through(app, name=name, change=lambda value, factor=factor: value * factor)
            app.add_flow(numbers, branch)
            app.add_flow(branch, join, {("out", name)})

    run(compose, scheduler)
    assert taken == [(n, -n) for n in range(20)]


def test_a_slow_branch_holds_the_source_and_not_the_other_way_round(scheduler: MakeScheduler) -> None:
    fast: list[int] = []
    slow: list[int] = []

    def compose(app: App) -> None:
        numbers = source(app, range(10))
        app.add_flow(numbers, sink(app, fast, name="fast"))
        app.add_flow(numbers, sink(app, slow, PeriodicCondition(app, 1_000), name="slow"))

    run(compose, scheduler)
    assert fast == slow == list(range(10))


def test_an_operator_may_emit_nothing(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            value = i.receive()
            if value % 3 == 0:
                o.emit(value)

        keep = Step(app, inputs=["in"], outputs=["out"], body=body, name="keep")
        app.add_flow(source(app, range(10)), keep)
        app.add_flow(keep, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 3, 6, 9]


def test_a_chain_longer_than_the_recursion_limit_runs(scheduler: MakeScheduler) -> None:
    taken: list[int] = []
    length = sys.getrecursionlimit() + 50

    def compose(app: App) -> None:
        last = source(app, range(2))
        for n in range(length):
            stage = through(app, name=f"stage{n}")
            app.add_flow(last, stage)
            last = stage
        app.add_flow(last, sink(app, taken))

    run(compose, scheduler)
    assert taken == [0, 1]


def test_a_cycle_does_not_keep_the_thread_to_itself(scheduler: MakeScheduler) -> None:
    turns: list[int] = []

    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            turns.append(op.ticks)
            o.emit(i.receive("in") or 0, "out")

        def setup(spec: Any) -> None:
            spec.input("in").condition(ConditionType.NONE)
            spec.output("out")

        first = Step(app, setup=setup, body=turn, name="first")
        second = through(app, name="second")
        app.add_flow(first, second)
        app.add_flow(second, first)
        app.add_operator(
            Step(
                app,
                body=lambda op, i, o: op.ticks == 50 and op.fragment.stop_execution(),
                name="other",
            )
        )

    app = run(compose, scheduler)
    assert app.graph.find("other").ticks >= 50  # type: ignore[attr-defined]


def test_a_cycle_and_an_operator_beside_it_run_equally_often() -> None:
    def compose(app: App) -> None:
        def turn(op: Step, i: Any, o: Any) -> None:
            o.emit(i.receive())
            if op.ticks == 1_000:
                op.fragment.stop_execution()

        loop = Step(app, inputs=["in"], outputs=["out"], body=turn, name="loop")
        back = through(app, name="back")
        app.add_flow(source(app, [0], name="seed"), loop)
        app.add_flow(loop, back)
        app.add_flow(back, loop)
        app.add_operator(Step(app, name="other"))

    app = run(compose)
    assert app.graph.find("other").ticks >= 990  # type: ignore[attr-defined]


# The end of a run.


def test_a_run_ends_when_nothing_is_ready_running_or_pending(scheduler: MakeScheduler) -> None:
    app = run(
        lambda app: app.add_flow(source(app, range(3)), sink(app, [], CountCondition(app, 1))), scheduler
    )
    assert app.undelivered() == {"sink.in": 1}


def test_a_deadlock_is_waited_out_in_the_clocks_time(scheduler: MakeScheduler) -> None:
    app = App(
        lambda app: app.add_operator(Step(app, CountCondition(app, 1))),
        scheduler,
        stop_on_deadlock_timeout=500,
    )
    app.run()
    # Every operator is done for good, so there is nothing to wait for.
    assert app.now == 0

    def stuck(app: App) -> None:
        app.add_flow(source(app, [1]), Step(app, inputs=[("in", {"size": 2})], name="b"))

    app = App(stuck, scheduler, stop_on_deadlock_timeout=500)
    app.run()
    assert app.now == 500_000_000


def test_work_that_comes_during_the_wait_begins_it_anew(scheduler: MakeScheduler) -> None:
    """An operator is released from outside while the deadlock timeout runs; the timeout starts again."""
    clock = SyntheticClock()
    ran = threading.Event()
    holder: list[AsynchronousCondition] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.WAIT
        holder[:] = [event]

        def body(op: Step, i: Any, o: Any) -> None:
            event.event_state = AsynchronousEventState.WAIT
            ran.set()

        app.add_operator(Step(app, event, body=body))

    app = App(compose, scheduler, clock=clock, stop_on_deadlock_timeout=100)
    future = app.run_async()
    while not holder or app._engine is None or app._engine.deadlock_at is None:
        threading.Event().wait(0.001)
    clock.advance_by(60_000_000)
    holder[0].event_state = AsynchronousEventState.READY
    assert ran.wait(10)
    while app._engine is not None and app._engine.deadlock_at != 160_000_000:
        threading.Event().wait(0.001)
    clock.advance_by(60_000_000)
    assert not future.done()
    clock.advance_by(40_000_000)
    future.result(timeout=10)


def test_without_stop_on_deadlock_a_run_waits_until_it_is_stopped(scheduler: MakeScheduler) -> None:
    started = threading.Event()

    def compose(app: App) -> None:
        first = Step(
            app, CountCondition(app, 1), outputs=["out"], body=lambda op, i, o: started.set(), name="a"
        )
        app.add_flow(first, sink(app, []))

    app = App(compose, scheduler, stop_on_deadlock=False)
    future = app.run_async()
    assert started.wait(10)
    assert not future.done()
    app.stop_execution()
    future.result(timeout=10)


def test_a_negative_deadlock_timeout_means_never_to_stop(scheduler: MakeScheduler) -> None:
    assert not scheduler(App(lambda app: None), stop_on_deadlock_timeout=-1).stop_on_deadlock


def test_a_run_ends_at_its_longest_duration(scheduler: MakeScheduler) -> None:
    times: list[int] = []

    def compose(app: App) -> None:
        clock = app.scheduler().clock
        app.add_operator(
            Step(app, PeriodicCondition(app, 300_000), body=lambda op, i, o: times.append(clock.timestamp()))
        )

    run(compose, scheduler, max_duration_ms=1)
    assert times == [0, 300_000, 600_000, 900_000]


def test_time_does_not_jump_to_the_longest_duration_while_an_event_is_outstanding(
    scheduler: MakeScheduler,
) -> None:
    ticks: list[int] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)

        def body(op: Step, i: Any, o: Any) -> None:
            ticks.append(op.ticks)
            event.event_state = AsynchronousEventState.EVENT_WAITING
            done = AsynchronousEventState.EVENT_DONE
            threading.Timer(0.005, lambda: setattr(event, "event_state", done)).start()

        app.add_operator(Step(app, event, CountCondition(app, 3), body=body))

    run(compose, scheduler, max_duration_ms=1)
    assert ticks == [1, 2, 3]


def test_a_longest_duration_does_not_delay_the_end(scheduler: MakeScheduler) -> None:
    app = App(
        lambda app: app.add_operator(Step(app, CountCondition(app, 1))), scheduler, max_duration_ms=60_000
    )
    app.run()
    assert app.now == 0


# Failures.


class Fragile(Step):
    """Fails in one phase, and notes what was called."""

    def __init__(self, fragment: Any, *args: Any, log: list[str], fails: str = "", **kwargs: Any) -> None:
        self.log, self.fails = log, fails
        super().__init__(fragment, *args, **kwargs)

    def _called(self, phase: str) -> None:
        self.log.append(f"{phase} {self.name}")
        if self.fails == phase:
            raise ZeroDivisionError(f"{phase} on purpose")

    def initialize(self) -> None:
        if self.fails == "initialize":
            self._called("initialize")

    def start(self) -> None:
        self._called("start")

    def stop(self) -> None:
        self._called("stop")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        super().compute(op_input, op_output, context)
        if self.fails == "compute" and self.ticks == 2:
            self._called("compute")


def fragile(app: App, log: list[str], fails: str) -> None:
    a = Fragile(
        app, CountCondition(app, 5), log=log, outputs=["out"], body=lambda op, i, o: o.emit(1), name="a"
    )
    b = Fragile(app, log=log, fails=fails, inputs=["in"], body=lambda op, i, o: i.receive(), name="b")
    c = Fragile(app, log=log, name="c")
    app.add_flow(a, b)
    app.add_operator(c)


@pytest.mark.parametrize("phase", ["initialize", "start", "compute", "stop"])
def test_an_exception_comes_out_as_itself_with_the_operator_named(
    scheduler: MakeScheduler, phase: str
) -> None:
    log: list[str] = []
    settings = {} if phase == "compute" else {"max_duration_ms": 0}
    with pytest.raises(ZeroDivisionError, match=f"{phase} on purpose") as caught:
        run(lambda app: fragile(app, log, phase), scheduler, **settings)
    assert caught.value.__notes__ == [f"raised in {phase} of operator 'b' (Fragile)"]
    started = {entry.split()[1] for entry in log if entry.startswith("start")}
    stopped = [entry.split()[1] for entry in log if entry.startswith("stop")]
    assert set(stopped) == started
    assert len(stopped) == len(started)


def test_a_failed_application_runs_again(scheduler: MakeScheduler) -> None:
    log: list[str] = []
    fails = ["compute"]

    def compose(app: App) -> None:
        fragile(app, log, fails.pop() if fails else "")
        app.graph.find("c").add_arg(CountCondition(app, 1))

    app = App(compose, scheduler)
    with pytest.raises(ZeroDivisionError):
        app.run()
    app.run()
    assert log.count("stop b") == 2


def test_a_second_failure_while_stopping_is_noted_on_the_first(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        log: list[str] = []
        app.add_operator(Fragile(app, CountCondition(app, 3), log=log, fails="compute", name="a"))
        app.add_operator(Fragile(app, CountCondition(app, 1), log=log, fails="stop", name="b"))

    with pytest.raises(ZeroDivisionError, match="compute on purpose") as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == [
        "raised in compute of operator 'a' (Fragile)",
        "and while stopping: ZeroDivisionError: stop on purpose",
    ]


def test_what_an_operator_held_is_released_when_a_run_fails(scheduler: MakeScheduler) -> None:
    import gc
    import weakref

    class Data:
        pass

    kept: list[weakref.ref[Data]] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            data = Data()
            kept.append(weakref.ref(data))
            o.emit(data)
            if op.ticks == 3:
                raise ZeroDivisionError

        a = Step(app, outputs=["out"], body=body, name="a")
        app.add_flow(a, Step(app, inputs=[("in", {"size": 8})], name="b"))

    app = App(compose, scheduler)
    with pytest.raises(ZeroDivisionError):
        app.run()
    gc.collect()
    assert [reference() for reference in kept] == [None] * 3


CTRL_C = """
import signal, sys, threading
from penstock import Application, Operator
from penstock import schedulers
class Forever(Operator):
    def compute(self, op_input, op_output, context):
        if not ready.is_set():
            ready.set()
            print("running", flush=True)
    def stop(self):
        print("stopped", flush=True)
ready = threading.Event()
# A parent that runs in the background may have left the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
class App(Application):
    def compose(self):
        self.scheduler(getattr(schedulers, sys.argv[1])(self))
        self.add_operator(Forever(self))
app = App()
try:
    app.run()
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
"""


@pytest.mark.parametrize("scheduler", ["GreedyScheduler", "MultiThreadScheduler", "EventBasedScheduler"])
def test_ctrl_c_stops_every_operator_and_comes_out_of_run(scheduler: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, scheduler], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert out.splitlines() == ["stopped", "interrupted 1"], err


# Several threads.


@threaded
def test_operators_run_at_the_same_time_on_different_threads(scheduler: MakeScheduler) -> None:
    """Two operators wait for each other inside compute: only two threads can do that."""
    barrier = threading.Barrier(2, timeout=10)

    def compose(app: App) -> None:
        for name in "ab":
            app.add_operator(
                Step(app, CountCondition(app, 5), body=lambda op, i, o: barrier.wait(), name=name)
            )

    run(compose, scheduler)


@threaded
def test_an_operator_that_was_quick_and_is_not_any_more_keeps_nobody_from_running(
    scheduler: MakeScheduler,
) -> None:
    """For what is done in a moment no second thread is woken; one stands by in case it is not done after all."""
    others = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        def sometimes_slow(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 200:
                others.clear()
                seen.append(others.wait(10))  # only the other operator ends this

        app.add_operator(Step(app, CountCondition(app, 200), body=sometimes_slow, name="sometimes_slow"))

        def go_on_until_it_was_slow(op: Step, i: Any, o: Any) -> None:
            others.set()
            if seen:
                op.stop_execution()

        app.add_operator(Step(app, body=go_on_until_it_was_slow, name="other"))

    run(compose, scheduler)
    assert seen == [True]


@threaded
def test_an_event_is_seen_while_an_operator_that_was_quick_is_not_any_more(scheduler: MakeScheduler) -> None:
    """Nobody stands by before the event comes: there is nothing else to run."""
    done = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        event = AsynchronousCondition(app)
        event.event_state = AsynchronousEventState.WAIT

        def sometimes_slow(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 200:
                event.event_state = AsynchronousEventState.READY
                seen.append(done.wait(10))  # only the other operator ends this

        app.add_operator(Step(app, CountCondition(app, 200), body=sometimes_slow, name="sometimes_slow"))
        other = Step(app, event, CountCondition(app, 1), body=lambda op, i, o: done.set(), name="other")
        app.add_operator(other)

    run(compose, scheduler)
    assert seen == [True]


@threaded
def test_what_gets_done_in_a_pool_is_not_taken_for_the_operator_that_was_to_be_quick(
    scheduler: MakeScheduler,
) -> None:
    others = threading.Event()
    is_over = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        def sometimes_slow(op: Step, i: Any, o: Any) -> None:
            stands_by = op._node.ready_queue.standby is not None  # type: ignore[union-attr]
            if stands_by and not seen:
                others.clear()
                seen.append(others.wait(5))  # only the other operator ends this
                is_over.set()

        app.add_operator(Step(app, CountCondition(app, 20_000), body=sometimes_slow, name="sometimes_slow"))
        app.add_operator(
            Step(app, CountCondition(app, 20_000), body=lambda op, i, o: others.set(), name="other")
        )
        goes_on = BooleanCondition(app)
        busy = Step(
            app, goes_on, body=lambda op, i, o: is_over.is_set() and goes_on.disable_tick(), name="busy"
        )
        app.make_thread_pool("pool").add(busy, True)
        app.add_operator(busy)

    run(compose, scheduler)
    assert seen == [True]


@threaded
def test_an_operator_that_was_quick_and_is_not_any_more_does_not_hold_up_its_producer(
    scheduler: MakeScheduler,
) -> None:
    """What is done in a moment does not tell of the room it made; the worker that stands by does, if need be."""
    made = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        def make_one(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks)
            made.set()

        def sometimes_slow(op: Step, i: Any, o: Any) -> None:
            made.clear()
            stands_by = op._node.ready_queue.standby is not None  # type: ignore[union-attr]
            i.receive()
            if stands_by and not seen:
                seen.append(made.wait(10))  # only the producer ends this

        producer = Step(app, CountCondition(app, 20_000), outputs=["out"], body=make_one, name="producer")
        app.add_flow(producer, Step(app, inputs=["in"], body=sometimes_slow, name="sometimes_slow"))

    run(compose, scheduler)
    assert seen == [True]


@threaded
def test_an_operator_that_should_have_been_quick_keeps_nobody_from_what_is_announced(
    scheduler: MakeScheduler,
) -> None:
    """It was alone when it began, so that nobody was called to stand by."""
    waiting, done = AsynchronousEventState.EVENT_WAITING, AsynchronousEventState.EVENT_DONE
    ran = threading.Event()
    seen: list[bool] = []

    def compose(app: App) -> None:
        mine, other = (AsynchronousCondition(app, name=name) for name in ("mine", "other"))
        mine.event_state = other.event_state = waiting

        def slow(op: Step, i: Any, o: Any) -> None:
            other.event_state = done
            seen.append(ran.wait(10))  # only the other operator ends this

        app.add_operator(Step(app, mine, CountCondition(app, 1), body=slow, name="slow"))
        app.add_operator(
            Step(app, other, CountCondition(app, 1), body=lambda op, i, o: ran.set(), name="other")
        )
        app.begin = threading.Timer(0.2, lambda: setattr(mine, "event_state", done))
        app.begin.start()

    run(compose, scheduler)
    assert seen == [True]


@threaded
def test_stages_of_a_pipeline_overlap(scheduler: MakeScheduler) -> None:
    """The source makes the next message while the sink is still busy with the last."""
    barrier = threading.Barrier(2, timeout=10)

    def compose(app: App) -> None:
        def make_one(op: Step, i: Any, o: Any) -> None:
            if op.ticks > 1:
                barrier.wait()
            o.emit(op.ticks)

        def use_one(op: Step, i: Any, o: Any) -> None:
            if i.receive() < 5:
                barrier.wait()

        a = Step(app, CountCondition(app, 5), outputs=["out"], body=make_one, name="a")
        app.add_flow(a, Step(app, inputs=["in"], body=use_one, name="b"))

    run(compose, scheduler)


@threaded
def test_a_sleeping_worker_is_woken_for_what_is_left_over(scheduler: MakeScheduler) -> None:
    """Every tick makes two operators ready at once, while the other workers are asleep."""
    barrier = threading.Barrier(2, timeout=10)

    def compose(app: App) -> None:
        for name in "ab":
            pace, count = PeriodicCondition(app, 1_000), CountCondition(app, 5)
            app.add_operator(Step(app, pace, count, body=lambda op, i, o: barrier.wait(), name=name))

    run(compose, scheduler)


@pytest.fixture
def restless() -> Iterator[None]:
    """Have the interpreter switch threads as often as it can, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@threaded
def test_producers_that_do_not_wait_never_overfill_the_queue_they_share(
    scheduler: MakeScheduler, restless: None
) -> None:
    longest: list[int] = []

    def compose(app: App) -> None:
        def take(op: Step, i: Any, o: Any) -> None:
            longest.append(len(i.receive()))

        def setup_sink(spec: Any) -> None:
            port = spec.input("in", size=2, policy=IOSpec.QueuePolicy.REJECT)
            port.condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)

        def setup(spec: Any) -> None:
            spec.output("out").condition(ConditionType.NONE)

        def burst(op: Step, i: Any, o: Any) -> None:
            for _ in range(20):
                o.emit(1)

        collect = Step(app, setup=setup_sink, body=take, name="collect")
        for n in range(4):
            app.add_flow(Step(app, CountCondition(app, 200), setup=setup, body=burst, name=f"s{n}"), collect)

    app = run(compose, scheduler)
    assert max(longest) <= 2
    assert sum(longest) + sum(app.dropped().values()) + sum(app.undelivered().values()) == 4 * 200 * 20


def test_one_worker_takes_a_message_through_a_chain_without_waking_another() -> None:
    """With one message on its way there is one ready operator, so one thread does it all."""
    threads: list[str] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            threads.append(threading.current_thread().name)
            o.emit(i.receive())

        last = source(app, [1])
        for n in range(8):
            stage = Step(app, inputs=["in"], outputs=["out"], body=body, name=f"stage{n}")
            app.add_flow(last, stage)
            last = stage

    run(compose, event_based)
    assert len(set(threads)) == 1


@threaded
def test_compute_never_runs_twice_at_once(scheduler: MakeScheduler) -> None:
    overlaps: list[str] = []

    def compose(app: App) -> None:
        def body(op: Any, i: Any, o: Any) -> None:
            if not op.alone.acquire(blocking=False):
                overlaps.append(op.name)
                return
            try:
                i.receive()
            finally:
                op.alone.release()

        busy: Any = Step(app, inputs=[("in", {"size": 8})], body=body, name="busy")
        busy.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        busy.alone = threading.Lock()
        for n in range(4):
            app.add_flow(source(app, range(200), name=f"s{n}"), busy)

    run(compose, scheduler)
    assert overlaps == []


@threaded
def test_an_operator_in_a_pool_keeps_to_its_own_thread(scheduler: MakeScheduler) -> None:
    threads: dict[str, set[str]] = {"mine": set(), "other": set(), "shared1": set(), "shared2": set()}

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            threads[op.name].add(threading.current_thread().name)

        made = {name: Step(app, CountCondition(app, 20), body=body, name=name) for name in threads}
        for operator in made.values():
            app.add_operator(operator)
        pool = app.make_thread_pool("pool", 2)
        pool.add(made["mine"], pin_operator=True)
        pool.add([made["shared1"], made["shared2"]], pin_operator=False)
        assert pool.operators == [made["mine"], made["shared1"], made["shared2"]]

    run(compose, scheduler)
    assert len(threads["mine"]) == 1
    assert not threads["mine"] & (threads["other"] | threads["shared1"] | threads["shared2"])
    assert not threads["other"] & (threads["shared1"] | threads["shared2"])


@threaded
def test_messages_cross_between_pools(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: App) -> None:
        a, b, c = source(app, range(50)), through(app, name="b"), sink(app, taken)
        app.add_flow(a, b)
        app.add_flow(b, c)
        app.make_thread_pool("first").add(a)
        app.make_thread_pool("last").add([b], pin_operator=False)

    run(compose, scheduler)
    assert taken == list(range(50))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned here")
def test_threads_are_pinned_to_cores() -> None:
    core = min(os.sched_getaffinity(0))
    seen: dict[str, set[int]] = {}

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            seen[op.name] = os.sched_getaffinity(0)

        pinned = Step(app, CountCondition(app, 1), body=body, name="pinned")
        plain = Step(app, CountCondition(app, 1), body=body, name="plain")
        app.make_thread_pool("pool").add(pinned, True, [core])
        app.add_operator(pinned)
        app.add_operator(plain)

    run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=1, pin_cores=[core]))
    assert seen == {"pinned": {core}, "plain": {core}}
    assert os.sched_getaffinity(0) >= {core}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be pinned here")
def test_a_core_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(OSError) as caught:
        run(
            lambda app: app.add_operator(Step(app, CountCondition(app, 1))),
            lambda app: EventBasedScheduler(app, pin_cores=[4095]),
        )
    assert "cannot pin a worker thread to cores [4095]" in caught.value.__notes__[0]


def test_a_pool_refuses_what_it_cannot_run() -> None:
    app = App(lambda app: None)
    operator = Step(app, name="a")
    pool = app.make_thread_pool("pool")
    pool.add(operator)
    with pytest.raises(ValueError, match="operator 'a' is in thread pool 'pool' already"):
        app.make_thread_pool("other").add(operator)
    with pytest.raises(ValueError, match="initial_size must be at least 1"):
        app.make_thread_pool("none", 0)

    def compose(app: App) -> None:
        app.add_operator(Step(app, CountCondition(app, 1), name="b"))
        app.make_thread_pool("pool").add(lost)

    app = App(compose, event_based)
    lost = Step(app, name="lost")
    with pytest.raises(ValueError, match="holds operator 'lost', which is not part"):
        app.run()


def test_parameters_of_schedulers_are_checked() -> None:
    with pytest.raises(ValueError, match="worker_thread_number must be at least 1"):
        MultiThreadScheduler(None, worker_thread_number=0)
    with pytest.raises(TypeError, match="worker_thread_number must be an int"):
        EventBasedScheduler(None, worker_thread_number="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="clock must be a Clock"):
        GreedyScheduler(None, clock=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a Scheduler"):
        App(lambda app: None).scheduler("greedy")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="does not take 'worker_thread_number'"):
        GreedyScheduler(None, worker_thread_number=2)
    assert GreedyScheduler(None).workers == 0
    assert EventBasedScheduler(None, worker_thread_number=3).workers == 3


@threaded
def test_shared_queues_never_hold_more_than_they_can(scheduler: MakeScheduler) -> None:
    """Producers that run at once never both take the last place, whatever the policy."""
    longest: list[int] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            longest.append(len(op._node.inputs[0]))  # type: ignore[union-attr]
            i.receive()

        busy = Step(
            app, inputs=[("in", {"size": 2, "policy": IOSpec.QueuePolicy.FAULT})], body=body, name="busy"
        )
        busy.spec.inputs["in"].condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
        for n in range(5):
            app.add_flow(source(app, range(100), name=f"s{n}"), busy)

    run(compose, scheduler)
    assert max(longest) <= 2


def test_the_clock_of_a_scheduler_can_be_asked_for() -> None:
    clock = ManualClock()
    assert GreedyScheduler(None, clock=clock).clock is clock
