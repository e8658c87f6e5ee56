"""The stream that travels with what is emitted: the operator's own, a borrowed one, or the default one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import CountCondition, gpu
from headrace.resources import CudaStreamPool
from tests.harness import (
    MS,
    Consumer,
    Doubler,
    Producer,
    Step,
    frame,
    launch,
    once,
    run,
    write_frame,
)
from tests.harness.devices import use_device


def test_what_is_emitted_carries_the_stream() -> None:
    streams: list[tuple[int, list[Any]]] = []

    def compose(app: Any) -> None:
        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            self.mine = op_input.receive_cuda_stream("in")
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            streams.append((middle_step.mine, op_input.receive_cuda_streams("in")))

        middle_step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), middle_step)
        app.add_flow(middle_step, Step(app, inputs=("in",), body=last, name="last"))

    run(compose)
    assert all(found == [mine] for mine, found in streams)


@pytest.mark.parametrize("size", [0, 1])
def test_a_stream_of_its_own_takes_the_place_of_a_borrowed_one_in_what_is_emitted(size: int) -> None:
    """Where the pool has one to give; otherwise the borrowed one stays."""

    class Doubling(Doubler):
        streams: list[int]

        def start(self) -> None:
            self.streams = []

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            allocate = bool(self.streams)

            class Input:
                receive = op_input.receive

                def receive_cuda_stream(self, port: str) -> Any:
                    return op_input.receive_cuda_stream(port, allocate=allocate)

            super().compute(Input(), op_output, context)
            self.streams.append(int(op_input.receive_cuda_stream("in", allocate=allocate)))

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        app.consumer.seconds = MS / 10
        app.doubler = Doubling(app, CudaStreamPool(app, 0, 0, 0, 0, 1), name="doubler")
        if size == 0:
            pool = app.doubler.resources["cuda_stream_pool"]
            app.add_operator(
                Step(
                    app,
                    CountCondition(app, 1),
                    pool,
                    body=lambda self, i, o, c: c.allocate_cuda_stream("the last"),
                    name="first",
                )
            )
        app.add_flow(Producer(app, CountCondition(app, 6), name="producer"), app.doubler)
        app.add_flow(app.doubler, app.consumer)

    app = run(compose)
    assert app.consumer.seen == [2 * number for number in range(6)]
    borrowed, *own = app.doubler.streams
    assert len(set(own)) == 1
    assert (borrowed in own) is (size == 0)


def test_no_stream_at_all_means_the_default_stream_and_none_is_emitted() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            app.found.append((int(stream), stream.__cuda_stream__()))
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found.append(op_input.receive_cuda_streams("in"))

        source = once(app)
        middle_step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(source, middle_step)
        app.add_flow(middle_step, Step(app, inputs=("in",), body=last, name="last"))

    assert run(compose).found == [(0, (0, 0)), [None]]


def test_the_default_stream_that_was_given_can_be_emitted() -> None:
    def compose(app: Any) -> None:
        app.found = []

        def middle(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            op_output.set_cuda_stream(stream, "out")
            app.found.append(context.device_from_stream(stream))
            op_output.emit(data, "out")

        def last(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            app.found += op_input.receive_cuda_streams("in")

        source = once(app)
        step = Step(app, inputs=("in",), outputs=("out",), body=middle, name="middle")
        app.add_flow(source, step)
        app.add_flow(step, Step(app, inputs=("in",), body=last, name="last"))

    device, stream = run(compose).found
    assert device == 0
    assert stream.stream is gpu.LEGACY_DEFAULT_STREAM


def test_what_stands_for_a_stream_where_there_is_no_device_can_be_emitted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_device(monkeypatch, "none")

    def compose(app: Any) -> None:
        def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            op_output.set_cuda_stream(op_input.receive_cuda_stream("in"), "out")
            op_output.emit(data, "out")

        source = once(app)
        app.last = Step(
            app, inputs=("in",), body=lambda self, i, o, c: setattr(self, "got", i.receive("in")), name="last"
        )
        step = Step(app, inputs=("in",), outputs=("out",), body=pass_on, name="step")
        app.add_flow(source, step)
        app.add_flow(step, app.last)

    assert run(compose).last.got == 1


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("second", ["another stream", "the default stream"])
def test_what_was_made_on_a_borrowed_stream_is_waited_for_whichever_is_borrowed_next(
    second: str, slow: int
) -> None:
    """What is made in one compute is sent at once and in the next, which may have only the default stream."""

    def compose(app: Any) -> None:
        app.seen = []
        pool = CudaStreamPool(app, stream_flags=1)  # streams that the default stream does not wait for

        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if second == "another stream":
                op_output.set_cuda_stream(context.allocate_cuda_stream("mine"), "out")
            op_output.emit(1, "out")

        def borrow(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            stream = op_input.receive_cuda_stream("in", allocate=False)
            made = self.ticks, frame(stream)
            seconds = 9 * MS if self.ticks % 2 == slow else MS / 10
            write_frame(stream, seconds, made[1], self.ticks)
            op_output.emit(made, "now")
            if self.ticks > 1:
                op_output.emit(self.made, "later")
            self.made = made

        def take(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            number, data = op_input.receive("in")
            stream = op_input.receive_cuda_stream("in")
            launch(
                stream,
                MS / 10,
                lambda source: app.seen.append((number, int(source.view(np.int64)[0]))),
                data,
            )

        borrower = Step(app, inputs=("in",), outputs=("now", "later"), body=borrow, name="borrower")
        app.add_flow(Producer(app, CountCondition(app, 3), pool, name="first"), borrower)
        app.add_flow(
            Step(app, CountCondition(app, 3), pool, outputs=("out",), body=send, name="second"), borrower
        )
        for port in ("now", "later"):
            app.add_flow(borrower, Step(app, pool, inputs=("in",), body=take, name=port), {(port, "in")})

    app = run(compose)
    assert len(app.seen) == 11
    assert all(number == found for number, found in app.seen)
