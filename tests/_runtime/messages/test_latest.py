"""Queues that keep their newest message, which is received any number of times."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any
from weakref import ref

import pytest

from headrace import op
from headrace.conditions import CountCondition, PeriodicCondition
from headrace.core import GraphError, Input, IOSpec, aligned
from tests.harness import App, MakeScheduler, Step, greedy, run, sink, source

LATEST = IOSpec.QueuePolicy.LATEST


def read(
    written: int, every: str, count: int, reads_every: str, scheduler: Any, by_flow: bool = False
) -> tuple[list[Any], App]:
    """Write numbers at one rate, and read them at another."""
    seen: list[Any] = []

    def compose(app: App) -> None:
        writer = source(app, range(1, written + 1), PeriodicCondition(app, every), name="writer")
        reader = Step(
            app,
            PeriodicCondition(app, reads_every),
            CountCondition(app, count),
            inputs=[("in", {} if by_flow else {"policy": LATEST})],
            body=lambda self, i, o: seen.append(i.receive("in")),
            name="reader",
        )
        app.add_flow(writer, reader, policy=LATEST if by_flow else None)

    return seen, run(compose, scheduler)


@pytest.mark.parametrize("by_flow", [False, True])
def test_a_fast_reader_sees_the_newest_message_again(scheduler: MakeScheduler, by_flow: bool) -> None:
    (first, *seen), app = read(4, "100ms", 10, "70ms", scheduler, by_flow)
    assert first in (None, 1)  # of two that are due at once, another worker may take either
    assert seen == [1, 2, 3, 3, 4, 4, 4, 4, 4]
    assert (app.outcome.dropped, app.outcome.undelivered) == ({}, {})


def test_a_slow_reader_misses_messages_which_are_counted(scheduler: MakeScheduler) -> None:
    (first, *seen), app = read(20, "20ms", 5, "93ms", scheduler)
    assert first in (None, 1)
    assert seen == [5, 10, 14, 19]
    assert app.outcome.operators["reader"].dropped == {"in": 14 if first else 15}
    assert app.outcome.operators["reader"].undelivered == {"in": 1}


def test_a_writer_that_is_due_with_its_reader_writes_first_on_one_thread() -> None:
    assert read(4, "100ms", 10, "50ms", greedy)[0] == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert read(20, "20ms", 5, "100ms", greedy)[0] == [1, 6, 11, 16, 20]


def test_before_the_first_message_there_is_none() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        reader = Step(
            app,
            CountCondition(app, 2),
            inputs=[("in", {"policy": LATEST})],
            body=lambda self, i, o: seen.append(i.receive("in")),
        )
        app.add_flow(source(app, []), reader)

    run(compose)
    assert seen == [None, None]


def test_the_newest_message_is_let_go_with_the_run() -> None:
    class Message:
        pass

    sent: list[ref[Message]] = []

    def send(self: Any, op_input: Any, op_output: Any) -> None:
        message = Message()
        sent.append(ref(message))
        op_output.emit(message)

    def compose(app: App) -> None:
        writer = Step(app, CountCondition(app, 2), outputs=["out"], body=send, name="writer")
        reader = Step(
            app,
            CountCondition(app, 3),
            inputs=[("in", {"policy": LATEST})],
            body=lambda self, i, o: i.receive("in") and None,
            name="reader",
        )
        app.add_flow(writer, reader)

    app = run(compose)
    gc.collect()
    assert [message() for message in sent] == [None, None]
    del app


def test_several_places_and_joins_are_refused() -> None:
    def several(app: App) -> None:
        app.add_flow(source(app, [1]), sink(app, []), size=2, policy=LATEST)

    with pytest.raises(GraphError, match="keeps one message, and room for 2"):
        run(several)

    def joined(app: App) -> None:
        both = Step(
            app, inputs=["a", ("b", {"policy": LATEST})], setup=lambda spec: spec.join(aligned("1ms"))
        )
        app.add_flow(source(app, [1], name="x"), both["a"])
        app.add_flow(source(app, [1], name="y"), both["b"])

    with pytest.raises(GraphError, match="use the rule reuse_last"):
        run(joined)


@pytest.mark.parametrize("is_tracked", [False, True])
def test_a_compute_that_failed_leaves_the_newest_message_for_the_next(is_tracked: bool) -> None:
    seen: list[Any] = []

    def body(self: Any, op_input: Any, op_output: Any) -> None:
        if self.ticks % 2:
            raise ValueError("every other time")
        seen.append(op_input.receive("in"))

    def compose(app: App) -> None:
        reader = Step(
            app,
            PeriodicCondition(app, "1ms"),
            CountCondition(app, 8),
            inputs=[("in", {"policy": LATEST})],
            body=body,
            on_error="skip",
        )
        app.add_flow(source(app, range(5), PeriodicCondition(app, "1ms")), reader)

    app = App(compose)
    with app.track() if is_tracked else nullcontext():
        app.run()
    assert seen == [1, 3, 4, 4]


def test_a_receive_of_all_finds_the_newest_message_again() -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        reader = Step(
            app,
            PeriodicCondition(app, "1ms"),
            CountCondition(app, 4),
            inputs=[("in", {"policy": LATEST})],
            body=lambda self, i, o: seen.append((i.receive("in", kind="multi"), i.receive("in"))),
        )
        app.add_flow(source(app, [1, 2], PeriodicCondition(app, "2ms")), reader)

    run(compose)
    assert seen == [((1,), 1), ((1,), 1), ((2,), 2), ((2,), 2)]


@pytest.mark.parametrize("by_flow", [False, True])
def test_a_function_that_waits_for_nothing_is_refused(by_flow: bool) -> None:
    seen: list[Any] = []

    @op(inputs={"value": Input() if by_flow else Input(policy=LATEST)})
    def show(value: Any) -> None:
        seen.append(value)

    def compose(app: App, *conditions: Any) -> None:
        shown = show(app, *conditions)
        app.add_flow(source(app, [1]), shown, policy=LATEST if by_flow else None)

    with pytest.raises(GraphError, match=r"'show' waits for nothing.*PeriodicCondition"):
        run(compose)
    run(lambda app: compose(app, PeriodicCondition(app, "1ms"), CountCondition(app, 2)))
    assert seen == [1, 1]
