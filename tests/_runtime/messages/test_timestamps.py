"""Acquisition timestamps: what travels with a message from operator to operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, IOSpec, op
from headrace._runtime.messages.envelope import Envelope
from tests.harness import App, MakeScheduler, Step, run, source, through
from tests.harness.internals import input_queues


def stamped(app: Any, times: list[Any], name: str = "stamped") -> Step:
    return Step(
        app,
        CountCondition(app, len(times)),
        outputs=["out"],
        body=lambda op, i, o: o.emit(op.ticks, acq_timestamp=times[op.ticks - 1]),
        name=name,
    )


def clock(app: Any, seen: list[Any], name: str = "clock", **port: Any) -> Step:
    def take(op: Step, i: Any, o: Any) -> None:
        i.receive()
        seen.append(i.get_acquisition_timestamp())

    return Step(app, inputs=[("in", port)], body=take, name=name)


@pytest.mark.parametrize("metadata", [True, False])
def test_a_timestamp_passes_through_operators_that_do_not_know_of_it(
    scheduler: MakeScheduler, metadata: bool
) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        app.enable_metadata(metadata)
        stages = [stamped(app, [500, -1, 502, -1]), *(through(app, name=f"t{n}") for n in range(3))]
        for before, after in zip(stages, [*stages[1:], clock(app, seen)], strict=True):
            app.add_flow(before, after)

    run(compose, scheduler)
    assert seen == [500, None, 502, None]


@pytest.mark.parametrize(
    ("left", "right", "oldest"), [(30, 20, 20), (20, 30, 20), (-1, 20, 20), (-1, -1, None)]
)
def test_what_comes_of_several_messages_is_as_old_as_the_oldest(
    scheduler: MakeScheduler, left: int, right: int, oldest: Any
) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        join = Step(
            app,
            inputs=["left", "right"],
            outputs=["out"],
            body=lambda op, i, o: o.emit((i.receive("left"), i.receive("right"))),
            name="join",
        )
        app.add_flow(stamped(app, [left], "l"), join, {("out", "left")})
        app.add_flow(stamped(app, [right], "r"), join, {("out", "right")})
        app.add_flow(join, clock(app, seen))

    run(compose, scheduler)
    assert seen == [oldest]


@pytest.mark.parametrize("size", [3, IOSpec.ANY_SIZE])
def test_a_batch_is_as_old_as_the_oldest_in_it(size: Any) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        batch = Step(
            app,
            inputs=[("in", {"size": size})],
            outputs=["out"],
            body=lambda op, i, o: o.emit(len(i.receive())),
            name="batch",
        )
        if size == 3:
            app.add_flow(stamped(app, [40, 30, 50]), batch)
        else:
            for n, time in enumerate([40, 30, 50]):
                app.add_flow(stamped(app, [time], f"s{n}"), batch)
        app.add_flow(batch, clock(app, seen))

    run(compose)
    assert seen == [30]


def test_an_operator_that_names_another_sends_that(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    def compose(app: App) -> None:
        def send(op: Step, i: Any, o: Any) -> None:
            received = i.receive()
            if received == 1:
                o.emit(1, acq_timestamp=np.int64(9))
            elif received == 2:
                o.emit(2, acq_timestamp=None)
            else:
                o.emit(3)

        middle = Step(app, inputs=["in"], outputs=["out"], body=send, name="middle")
        app.add_flow(stamped(app, [500, 501, 502]), middle, clock(app, seen))

    run(compose, scheduler)
    assert seen == [9, None, 502]


def test_the_context_says_the_timestamp_of_what_is_emitted_and_takes_another(
    scheduler: MakeScheduler,
) -> None:
    seen: list[Any] = []
    sent: list[Any] = []

    @op
    def camera(*, context: Any) -> Any:
        for n in range(3):
            context.acq_timestamp = np.uint32(100 + n)
            yield n

    @op
    def process(frame: int, *, context: Any) -> int:
        seen.append((frame, context.acq_timestamp, context.input.get_acquisition_timestamp("frame")))
        if frame == 1:
            context.acq_timestamp = 55
        elif frame == 2:
            context.acq_timestamp = None
        return frame

    def compose(app: App) -> None:
        middle = process(app)
        app.add_flow(camera(app), middle, clock(app, sent))

    run(compose, scheduler)
    assert seen == [(0, 100, 100), (1, 101, 101), (2, 102, 102)]
    assert sent == [100, 55, None]


def test_a_function_is_given_the_metadata_that_came_and_adds_to_what_goes(scheduler: MakeScheduler) -> None:
    seen: list[Any] = []

    @op
    def number(value: int, *, metadata: Any) -> int:
        metadata["number"] = value
        return value

    @op
    def show(value: int, *, metadata: Any, prefix: str = "") -> None:
        seen.append((prefix, value, dict(metadata)))

    def compose(app: App) -> None:
        middle = number(app)
        app.add_flow(source(app, [1, 2]), middle, show(app, prefix=">"))

    run(compose, scheduler)
    assert seen == [(">", 1, {"number": 1}), (">", 2, {"number": 2})]


def test_what_the_run_gives_is_no_parameter_and_may_be_given_by_hand() -> None:
    from headrace.core import ParameterError

    @op
    def show(value: int, *, metadata: Any = None, context: Any = None) -> Any:
        return value, metadata

    assert show(3, metadata={"a": 1}) == (3, {"a": 1})
    with pytest.raises(ParameterError, match="has no parameter 'metadata'"):
        run(lambda app: app.add_flow(source(app, [1]), show(app, metadata={})))


@pytest.mark.usefixtures("no_device_yet")
def test_a_message_without_a_timestamp_or_metadata_is_the_object_itself() -> None:
    kinds: list[Any] = []

    def compose(app: App) -> None:
        def take(op: Step, i: Any, o: Any) -> None:
            kinds.append(type(input_queues(op)[0].peek()))
            i.receive()

        def change(op: Step, i: Any, o: Any) -> None:
            value = i.receive()
            op.metadata.setdefault("x", 1)
            op.metadata.clear()
            o.emit(value)

        middle = Step(app, inputs=["in"], outputs=["out"], body=change, name="middle")
        app.add_flow(stamped(app, [-1, 5]), middle, Step(app, inputs=["in"], body=take))

    run(compose)
    assert kinds == [int, Envelope]


@pytest.mark.parametrize("wrong", [1.7e9, np.float64(3), "5"])
def test_a_timestamp_that_is_no_int_is_refused_rather_than_rounded(wrong: Any) -> None:
    """Seconds, as time.time() gives them, would be taken for nanoseconds."""
    with pytest.raises(TypeError, match="an int of nanoseconds"):
        run(lambda app: app.add_flow(stamped(app, [wrong]), clock(app, [])))

    @op
    def sensor(*, context: Any) -> Any:
        context.acq_timestamp = wrong
        yield 1

    with pytest.raises(TypeError, match="an int of nanoseconds"):
        run(lambda app: app.add_flow(sensor(app), clock(app, [])))
