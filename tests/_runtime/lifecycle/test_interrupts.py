"""Ctrl-C and SIGTERM: everything is stopped once, in whatever moment they come, and then they come out of run()."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace import CountCondition, waits
from headrace.core import Resource
from tests.harness import PATIENCE, SCHEDULERS, App, MakeScheduler, Step, event_based, greedy, threaded
from tests.limits import THOROUGH, pairs

pytestmark = pytest.mark.turns()  # every test under every scheduler


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Signals as a program has them that installs nothing; a parent may have left them ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    after = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class Log(logging.Handler):
    """The lines of the log, and a way to wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._more:
            self.lines.append(record.getMessage())
            self._more.notify_all()

    def has(self, text: str, seconds: float) -> bool:
        with self._more:
            return self._more.wait_for(lambda: any(text in line for line in self.lines), seconds)

    def wait_for(self, text: str) -> str:
        with self._more:
            assert self.has(text, 10), self.lines
        return next(line for line in self.lines if text in line)


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    logger = logging.getLogger("headrace")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def interrupt_main(number: int = signal.SIGINT) -> None:
    signal.pthread_kill(threading.main_thread().ident, number)  # type: ignore[arg-type]


class Stops(Step):
    """Notes its start and stop in the application's `log`."""

    def start(self) -> None:
        self.fragment.log.append(f"start {self.name}")  # type: ignore[attr-defined]

    def stop(self) -> None:
        self.fragment.log.append(f"stop {self.name}")  # type: ignore[attr-defined]


@threaded
def test_further_interrupts_wait_for_the_compute_and_name_it(scheduler: MakeScheduler, log: Log) -> None:
    events: list[str] = []

    def body(op: Step, i: Any, o: Any) -> None:
        waits = "waits for compute of 'slow' (Stops)"
        for text in (f"stops because of SIGINT: it {waits}", *2 * [f"'App' is stopping and still {waits}"]):
            log.lines.clear()
            # CPython sees a signal late that comes as the thread is about to block: then the next is seen.
            while not log.has(text, 0.1):
                interrupt_main()
        events.append("computed")

    def compose(app: Any) -> None:
        app.log = events
        app.add_operator(Stops(app, body=body, name="slow"))

    app = App(compose, scheduler)
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert events == ["start slow", "computed", "stop slow"]
    assert app.outcome.ended_by == "interrupted"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace worker")]


@pytest.mark.parametrize(
    ("scheduler", "where", "number"),
    pairs(
        SCHEDULERS,
        ["compose", "initialize", "start", "compute", "stop", "release"],
        [signal.SIGINT, signal.SIGTERM],
    ),
)
def test_an_interrupt_anywhere_stops_what_was_started_and_then_comes_out(
    scheduler: MakeScheduler, where: str, number: int
) -> None:
    log: list[str] = []

    def now(phase: str) -> None:
        if phase == where:
            signal.raise_signal(number)

    class Held(Resource):
        def release(self) -> None:
            log.append("release")
            now("release")

    class Loud(Stops):
        def initialize(self) -> None:
            if self.name == "b":
                now("initialize")

        def start(self) -> None:
            super().start()
            if self.name == "b":
                now("start")

        def stop(self) -> None:
            super().stop()
            now("stop")

    def compose(app: Any) -> None:
        app.log = log
        a, b = Loud(app, Held(app), CountCondition(app, 1), name="a"), Loud(app, name="b")
        app.add_operator(a)
        app.add_operator(b)
        b.add_arg(CountCondition(app, 1))
        now("compose")
        b._body = lambda op, i, o: interrupt_main(number) if where == "compute" else None

    app = App(compose, scheduler)
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit
    with pytest.raises(expected) as caught:
        app.run()
    if number == signal.SIGTERM:
        assert caught.value.code == 143  # type: ignore[attr-defined]
    started = [entry.split()[1] for entry in log if entry.startswith("start")]
    stopped = [entry.split()[1] for entry in log if entry.startswith("stop")]
    assert stopped == started[::-1]
    if where not in ("compose", "initialize"):
        assert started == ["a", "b"]
        assert log[-1] == "release"
    if where != "compose":
        assert app.outcome.ended_by == "interrupted"
    where = ""
    assert app.run().ended_by == "finished"


@pytest.mark.parametrize("scheduler", [greedy, event_based])
def test_an_interrupt_at_any_line_of_a_run_stops_what_was_started(scheduler: MakeScheduler) -> None:
    """At the lines that a run goes through on the main thread outside of operators, one run each.

    Every fifth one, and in a thorough run each.
    """
    package = str(Path(headrace.__file__).parent)
    files = (
        "lifecycle/run.py",
        "tear_down.py",
        "interrupts.py",
        "fragment.py",
        "accounts.py",
        "run_streams.py",
    )
    countdown = 0

    def line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal countdown
        if event == "line":
            countdown -= 1
            if countdown == 0:
                signal.raise_signal(signal.SIGINT)
        return line

    def call(frame: Any, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        return line if name.startswith(package) and name.endswith(files) else None

    def compose(app: Any) -> None:
        app.log = log
        a = Stops(app, CountCondition(app, 2), outputs=["out"], body=lambda op, i, o: o.emit(1), name="a")
        app.add_flow(a, Stops(app, inputs=["in"], body=lambda op, i, o: i.receive(), name="b"))

    app = App(compose, scheduler)
    number = 0
    interrupted = 0
    while True:
        number += 1 if THOROUGH else 5
        countdown = number
        log: list[str] = []
        before = sys.gettrace()
        try:
            sys.settrace(call)
            try:
                app.run()
            finally:
                sys.settrace(before)
        except KeyboardInterrupt:
            interrupted += 1
        else:
            if countdown > 0:
                break  # the run was over before
            raise AssertionError(f"the interrupt at line {number} was lost")
        started = [entry.split()[1] for entry in log if entry.startswith("start")]
        stopped = [entry.split()[1] for entry in log if entry.startswith("stop")]
        # One whose start was about to be called counts as started half-way.
        assert stopped in (started[::-1], ["a", "b"][: len(started) + 1][::-1]), number
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, number
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, number
        countdown = 0
        log = []
        assert app.run().ended_by == "finished", number
    assert interrupted > (100 if THOROUGH else 20)


def test_an_interrupt_comes_out_before_an_error_which_is_attached(scheduler: MakeScheduler) -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        raise ZeroDivisionError("on purpose")

    class Interrupted(Step):
        def stop(self) -> None:
            signal.raise_signal(signal.SIGINT)

    app = App(lambda app: app.add_operator(Interrupted(app, body=body, name="a")), scheduler)
    with pytest.raises(KeyboardInterrupt) as caught:
        app.run()
    assert isinstance(caught.value.__context__, ZeroDivisionError)
    assert [str(error) for error in caught.value.other_errors] == ["on purpose"]  # type: ignore[attr-defined]


def test_a_second_interrupt_does_not_cut_short_what_an_operator_does_about_the_first() -> None:
    log: list[str] = []

    def body(op: Step, i: Any, o: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            log.append("saved")
            raise

    with pytest.raises(KeyboardInterrupt):
        App(lambda app: app.add_operator(Step(app, body=body, name="a"))).run()
    assert log == ["saved"]


def test_an_interrupt_that_an_operator_swallows_still_ends_the_run_and_comes_out() -> None:
    def body(op: Step, i: Any, o: Any) -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    app = App(lambda app: app.add_operator(Step(app, body=body, name="a")))
    with pytest.raises(KeyboardInterrupt):
        app.run()
    assert app.outcome.operators["a"].computes == 1


def test_a_handler_of_the_programs_that_raises_does_not_break_the_tear_down() -> None:
    log: list[str] = []

    class Bell(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        raise Bell

    class Rings(Stops):
        def stop(self) -> None:
            super().stop()
            signal.raise_signal(signal.SIGINT)

    def compose(app: Any) -> None:
        app.log = log
        app.add_operator(Stops(app, CountCondition(app, 1), name="a"))
        app.add_operator(Rings(app, CountCondition(app, 1), name="b"))

    signal.signal(signal.SIGINT, ring)
    try:
        with pytest.raises(Bell):
            App(compose).run()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert log == ["start a", "start b", "stop b", "stop a"]


def test_a_handler_that_is_installed_during_the_run_stays_after_it() -> None:
    def handle(number: int, frame: Any) -> None:
        pass

    def body(op: Step, i: Any, o: Any) -> None:
        signal.signal(signal.SIGTERM, handle)

    App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body))).run()
    assert signal.getsignal(signal.SIGTERM) is handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_signals_that_the_process_ignores_stay_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def body(op: Step, i: Any, o: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)

    try:
        app = App(lambda app: app.add_operator(Step(app, CountCondition(app, 2), body=body)))
        assert app.run().ended_by == "finished"
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_a_run_on_a_thread_of_its_own_leaves_signals_to_the_main_thread() -> None:
    running = threading.Event()
    app = App(lambda app: app.add_operator(Step(app, body=lambda op, i, o: running.set())))
    future = app.run_async()
    assert running.wait(PATIENCE)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not future.done()
    app.stop_execution()
    assert future.result(timeout=PATIENCE).ended_by == "stopped"


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_a_signal_that_another_thread_gets_ends_the_wait_for_a_run_on_a_thread_of_its_own(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_LONGEST", 1e-3)
    waiting, wait_for_futures = threading.Event(), waits.wait_for_futures

    def wait(*arguments: Any) -> bool:
        waiting.set()
        return wait_for_futures(*arguments)

    monkeypatch.setattr(waits, "wait_for_futures", wait)

    def body(op: Step, i: Any, o: Any) -> None:
        waiting.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    once = App(lambda app: app.add_operator(Step(app, CountCondition(app, 1), body=body)))
    endless = App(lambda app: app.add_operator(Step(app)))
    future = endless.run_async()
    with pytest.raises(TimeoutError):
        getattr(future, ask)(timeout=0)
    waiting.clear()
    other = once.run_async()
    with pytest.raises(KeyboardInterrupt):
        getattr(future, ask)()
    with pytest.raises(TimeoutError):
        getattr(future, ask)(timeout=0)
    endless.stop_execution()
    assert future.exception() is None
    assert (future.result().ended_by, other.result().ended_by) == ("stopped", "finished")


@threaded
def test_when_two_operators_raise_the_first_comes_out_and_the_second_is_attached(
    scheduler: MakeScheduler, log: Log
) -> None:
    both = threading.Barrier(2, timeout=PATIENCE)

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            both.wait()
            raise ZeroDivisionError(op.name)

        app.add_operator(Step(app, body=body, name="a"))
        app.add_operator(Step(app, body=body, name="b"))

    app = App(compose, scheduler)
    with pytest.raises(ZeroDivisionError) as caught:
        app.run()
    first = str(caught.value)
    second = "b" if first == "a" else "a"
    assert caught.value.__notes__ == [
        f"raised in compute of operator {first!r} (Step)",
        f"and in the same run: ZeroDivisionError: {second}",
    ]
    (other,) = caught.value.other_errors  # type: ignore[attr-defined]
    assert str(other) == second
    assert other.__notes__ == [f"raised in compute of operator {second!r} (Step)"]
    assert app.outcome.ended_by == "failed"
    assert [str(error) for error in app.outcome.errors] == [
        f"ZeroDivisionError: {name} (raised in compute of operator {name!r} (Step))"
        for name in (first, second)
    ]
    log.wait_for("an error in addition to the one that run() raises")


@pytest.mark.parametrize("comes_in", ["the block", "its end"])
def test_no_interrupt_leaves_the_block_of_a_run_before_everything_is_stopped(comes_in: str, log: Log) -> None:
    events: list[str] = []
    computes, may_end = threading.Event(), threading.Event()

    def body(op: Step, i: Any, o: Any) -> None:
        computes.set()
        may_end.wait(PATIENCE)
        events.append("computed")

    def compose(app: Any) -> None:
        app.log = events
        app.add_operator(Stops(app, CountCondition(app, 1), body=body, name="slow"))

    def interrupt_twice() -> None:
        for text in ("stops because of SIGINT: it waits for", "is stopping and still waits for"):
            while not log.has(text, 0.1):
                interrupt_main()
        may_end.set()

    app = App(compose)
    interrupting = threading.Thread(target=interrupt_twice)
    with pytest.raises(KeyboardInterrupt), app.running():
        assert computes.wait(PATIENCE)  # or the end of the block ends the source before it computes
        interrupting.start()
        if comes_in == "the block":
            raise KeyboardInterrupt
    interrupting.join()
    assert events == ["start slow", "computed", "stop slow"]
    assert app.outcome is not None  # of a run that is over


def test_an_interrupt_as_the_thread_of_a_run_begins_does_not_leave_it_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)

    app = App(lambda app: app.add_operator(Step(app, name="endless")))
    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt), app.running():
        pytest.fail("the block is not entered")
    assert app.outcome is not None  # of a run that is over


@pytest.mark.parametrize("in_block", [True, False], ids=["in the block", "at its end"])
def test_a_second_interrupt_of_an_async_block_still_ends_the_run(in_block: bool, log: Log) -> None:
    """The first one cancels the task; asyncio's handler raises at the second, out of the event loop."""
    events: list[str] = []
    computes, ends = threading.Event(), threading.Event()

    def body(op: Step, i: Any, o: Any) -> None:
        computes.set()
        assert ends.wait(PATIENCE)
        # As above, a signal may come as the thread is about to block.
        for text in ("'App' stops because of SIGINT", "'App' is stopping and still waits"):
            while not log.has(text, 0.1):
                interrupt_main()

    def compose(app: Any) -> None:
        app.log = events
        app.add_operator(Stops(app, CountCondition(app, 1), body=body, name="slow"))

    app = App(compose, greedy)

    async def main() -> None:
        try:
            async with app.running():
                while not computes.is_set():
                    await asyncio.sleep(0)
                if in_block:
                    signal.raise_signal(signal.SIGINT)
                    await asyncio.sleep(PATIENCE)
                ends.set()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    def begin_to_end(*_: Any) -> None:
        ends.set()
        stop()

    stop = app.stop_execution
    app.stop_execution = begin_to_end  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert events == ["start slow", "stop slow", "cancelled"]
    assert app.outcome.ended_by in ("interrupted", "stopped")
