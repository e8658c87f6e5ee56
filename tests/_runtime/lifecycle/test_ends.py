"""How the end of a stream travels, and what an operator may still do then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import ConditionType, CountCondition, Input, Operator, PeriodicCondition, op
from headrace.conditions import BooleanCondition
from tests.harness import PATIENCE, App, MakeScheduler, Step, greedy, run, sink, source


class Ending(Step):
    """A step whose `end` is a function of the test."""

    def __init__(self, *args: Any, end: Callable[..., Any], **kwargs: Any) -> None:
        self.end_body = end
        super().__init__(*args, **kwargs)

    def end(self, op_input: Any, op_output: Any, context: Any) -> Any:
        return self.end_body(self, op_input, op_output)


@pytest.mark.parametrize("taken_behind", [1, 2])
def test_an_end_comes_while_others_run_also_if_nobody_takes_messages_behind_it(taken_behind: int) -> None:
    ended_at: list[int] = []

    def compose(app: App) -> None:
        other = Step(app, CountCondition(app, 50), name="other")
        ending = Ending(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda op, i, o: o.emit(i.receive()),
            end=lambda op, i, o: ended_at.append(other.ticks),
        )
        app.add_operator(other)
        app.add_flow(source(app, range(2)), ending, sink(app, [], CountCondition(app, taken_behind)))

    run(compose)
    assert len(ended_at) == 1
    assert ended_at[0] < 10


def test_an_end_receives_what_is_left_and_counts_what_it_leaves(scheduler: MakeScheduler) -> None:
    left: list[Any] = []

    def compose(app: App) -> None:
        def end(op: Step, i: Any, o: Any) -> None:
            left.append((i.has_ended("a"), i.has_ended("b"), i.receive("a"), i.receive("b"), i.receive("a")))

        join = Ending(
            app,
            inputs=["a", ("b", {"size": 3})],
            body=lambda op, i, o: (i.receive("a"), i.receive("b")),
            end=end,
            name="join",
        )
        app.add_flow(source(app, range(4), name="few"), join, {("out", "b")})
        app.add_flow(source(app, range(9), name="many"), join, {("out", "a")})

    outcome = run(compose, scheduler).outcome
    # The join takes three at 'b' with one at 'a', and cannot go on with the fourth.
    ((a_has_ended, b_has_ended, one, rest, two),) = left
    assert (a_has_ended, b_has_ended, rest) == (False, True, (3,))
    # A worker beside it may be late with the next one, or send another one as soon as there is room.
    received = [number for number in (one, two) if number is not None]
    assert received == [1] or (scheduler is not greedy and received in ([], [1, 2]))
    assert (outcome.ended_by, outcome.undelivered) == ("finished", {"join.a": 1})


@pytest.mark.parametrize("how", ["count", "condition", "stop_execution"])
def test_an_operator_that_ends_by_itself_gets_its_end(scheduler: MakeScheduler, how: str) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        switch = BooleanCondition(app, name="switch")

        def body(op: Step, i: Any, o: Any) -> None:
            o.emit(op.ticks)
            if op.ticks == 3 and how == "condition":
                switch.disable_tick()
            elif op.ticks == 3 and how == "stop_execution":
                op.stop_execution()

        parts = [CountCondition(app, 3)] if how == "count" else [switch]
        camera = Ending(app, *parts, outputs=["out"], body=body, end=lambda op, i, o: o.emit("end"))
        app.add_flow(camera, sink(app, taken))

    assert run(compose, scheduler).outcome.ended_by == "finished"
    assert taken == [1, 2, 3, "end"]


@pytest.mark.parametrize("how", ["stopped", "duration", "failed"])
def test_a_run_that_does_not_end_by_itself_calls_no_end(scheduler: MakeScheduler, how: str) -> None:
    ends: list[str] = []

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            i.receive()
            if op.ticks == 3 and how == "stopped":
                app.stop_execution()
            elif op.ticks == 3 and how == "failed":
                raise ZeroDivisionError

        last = Ending(app, inputs=["in"], body=body, end=lambda op, i, o: ends.append("end"))
        app.add_flow(source(app, range(9), PeriodicCondition(app, "1ms")), last)

    app = App(compose, scheduler)
    if how == "failed":
        with pytest.raises(ZeroDivisionError):
            app.run()
    else:
        app.run(duration="5ms" if how == "duration" else None)
    assert (app.outcome.ended_by, ends) == (how, [])


def test_an_error_in_an_end_ends_the_run_and_says_where(scheduler: MakeScheduler) -> None:
    def compose(app: App) -> None:
        last = Ending(
            app, inputs=["in"], body=lambda op, i, o: i.receive(), end=lambda op, i, o: 1 / 0, name="x"
        )
        app.add_flow(source(app, range(2)), last)

    with pytest.raises(ZeroDivisionError) as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == ["raised in end of operator 'x' (Ending)"]


@pytest.mark.parametrize("policy", ["skip", {"restart": 2}])
def test_an_error_in_an_end_is_skipped_and_counted_if_the_policy_says_so(policy: Any) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        def end(op: Step, i: Any, o: Any) -> Iterator[None]:
            o.emit("rest")
            yield
            raise ValueError("on purpose")

        last = Ending(
            app,
            inputs=["in"],
            outputs=["out"],
            body=lambda op, i, o: i.receive(),
            end=end,
            name="x",
            on_error=policy,
        )
        app.add_flow(source(app, range(2)), last, sink(app, taken))

    outcome = run(compose).outcome
    assert (outcome.ended_by, taken) == ("finished", ["rest"])
    assert (outcome.skipped, outcome.restarts) == (1, 0)
    assert outcome.operators["x"].last_error == "ValueError: on purpose"


def test_an_end_that_yields_is_closed_if_the_run_is_stopped_meanwhile() -> None:
    log: list[str] = []

    def compose(app: App) -> None:
        def end(op: Step, i: Any, o: Any) -> Iterator[None]:
            try:
                app.stop_execution()
                yield
                log.append("went on")
            finally:
                log.append("closed")

        last = Ending(app, inputs=["in"], body=lambda op, i, o: i.receive(), end=end)
        app.add_flow(source(app, range(2)), last)

    assert run(compose).outcome.ended_by == "stopped"
    assert log == ["closed"]


@pytest.mark.parametrize(("steps", "done"), [(1, []), (2, [1]), (3, [1, "end"])])
def test_an_end_is_one_step_of_a_paused_run(steps: int, done: list[Any]) -> None:
    log: list[Any] = []

    def compose(app: App) -> None:
        last = Ending(
            app,
            inputs=["in"],
            body=lambda op, i, o: log.append(i.receive()),
            end=lambda op, i, o: log.append("end"),
            name="last",
        )
        app.add_flow(source(app, [1]), last)
        app.step(steps)

    app = App(compose)
    future = app.run_async()
    assert app.wait_until_paused(PATIENCE)
    assert log == done
    app.resume()
    future.result(PATIENCE)
    assert log == [1, "end"]


# Functions.


def test_the_end_of_a_function_gets_what_is_left_and_its_parameters(scheduler: MakeScheduler) -> None:
    @op(inputs={"values": Input(size=4)})
    def total(values: Any, *, scale: int = 1) -> int:
        return scale * sum(values)

    @total.end
    def rest(values: Any, *, scale: int, context: Any) -> Iterator[Any]:
        assert context is not None
        for value in values:
            yield scale * value

    taken: list[Any] = []

    def compose(app: App) -> None:
        totals = total(app, scale=10)
        app.add_flow(source(app, range(6)), totals, sink(app, taken))

    run(compose, scheduler)
    assert taken == [60, 40, 50]
    assert list(rest([1], scale=2, context=0)) == [2], "it is still a plain function"


def test_the_end_of_a_function_takes_only_what_the_function_has() -> None:
    @op
    def scale(value: Any, *, factor: int) -> Any:
        return value

    with pytest.raises(TypeError, match="'valu' of rest is not an input of scale; there are 'value'"):

        @scale.end
        def rest(valu: Any) -> None: ...

    with pytest.raises(TypeError, match="'factr' of rest is not a parameter of scale"):

        @scale.end
        def rest(*, factr: int) -> None: ...

    with pytest.raises(TypeError, match="takes a plain function"):
        scale.end(3)  # type: ignore[arg-type]
    scale.end(lambda: None)
    with pytest.raises(TypeError, match="has an end already"):
        scale.end(lambda: None)


def test_an_end_with_other_arguments_is_refused_where_the_class_is_written() -> None:
    with pytest.raises(TypeError, match=r"must be def end\(self, op_input, op_output, context\)"):

        class Wrong(Operator):
            def end(self) -> None: ...  # type: ignore[override]


# Errors and limits from outside.


def test_an_error_from_another_thread_comes_out_of_the_run_as_itself(scheduler: MakeScheduler) -> None:
    error = ConnectionError("gone")

    def compose(app: App) -> None:
        def body(op: Step, i: Any, o: Any) -> None:
            if op.ticks == 3:
                failing = threading.Thread(target=app.fail, args=[error])
                failing.start()
                failing.join()

        app.add_operator(Step(app, body=body))

    app = App(compose, scheduler)
    with pytest.raises(ConnectionError) as caught:
        app.run()
    assert caught.value is error
    assert app.outcome.ended_by == "failed"
    app.fail(error)  # no run: no effect
    with pytest.raises(TypeError, match="fail takes an exception"):
        app.fail("gone")  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["compose", "start", "stop"])
def test_an_error_from_outside_is_not_lost_whenever_it_comes(when: str) -> None:
    error = ConnectionError("gone")

    class Fails(Step):
        def start(self) -> None:
            if when == "start":
                app.fail(error)

        def stop(self) -> None:
            if when == "stop":
                app.fail(error)

    def compose(app: App) -> None:
        if when == "compose":
            app.fail(error)
        app.add_operator(Fails(app, CountCondition(app, 1)))

    app = App(compose)
    with pytest.raises(ConnectionError) as caught:
        app.run()
    assert caught.value is error


def test_max_messages_ends_a_source_with_an_input_that_is_not_connected(scheduler: MakeScheduler) -> None:
    taken: list[int] = []

    def compose(app: Any) -> None:
        camera = Step(
            app, inputs=["in"], outputs=["out"], body=lambda op, i, o: o.emit(op.ticks, "out"), name="camera"
        )
        camera.spec.inputs["in"].condition(ConditionType.NONE)
        app.add_flow(camera, sink(app, taken))

    app = App(compose, scheduler)
    assert app.run(max_messages=3).ended_by == "finished"
    assert taken == [1, 2, 3]


def test_max_messages_ends_each_source_and_the_run_is_finished(
    scheduler: MakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Any] = []

    def compose(app: App) -> None:
        app.add_flow(source(app, range(90)), sink(app, taken))

    app = App(compose, scheduler)
    assert app.run(max_messages=7).ended_by == "finished"
    assert taken == list(range(7))
    monkeypatch.setenv("HEADRACE_COUNT", "2")
    taken.clear()
    app.run(max_messages=7)
    assert taken == [0, 1], "the environment comes first"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"duration": 5}, "must have a unit, as in '5s'"),
        ({"duration": "5"}, "must be a number with a unit"),
        ({"duration": 0.0}, "must be more than 0"),
        ({"max_messages": 0}, "must be at least 1"),
        ({"max_messages": 2.5}, "must be an int"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        App(lambda app: None).run(**limits)


# Any graph.


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_an_interrupt_in_an_end_is_noted_as_such(scheduler: MakeScheduler, on_error: str) -> None:
    def end(op: Step, i: Any, o: Any) -> None:
        raise KeyboardInterrupt

    def compose(app: App) -> None:
        last = Ending(app, inputs=["in"], body=lambda op, i, o: i.receive(), end=end, name="last")
        last.on_error = on_error
        app.add_flow(source(app, range(2)), last)

    with pytest.raises(KeyboardInterrupt) as caught:
        run(compose, scheduler)
    assert caught.value.__notes__ == ["raised in end of operator 'last' (Ending)"]
