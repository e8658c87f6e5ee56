"""HEADRACE_CHECK=streams reports who forgot to be ordered after what it received, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import CountCondition, gpu
from headrace.resources import CudaStreamPool
from tests._runtime.streams.pipelines import Sending
from tests.harness import (
    MS,
    Consumer,
    Doubler,
    MakeScheduler,
    Producer,
    Step,
    launch,
    run,
)


def checked(
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[..., None],
    wrap: Any = None,
    outputs: tuple[str, ...] = (),
) -> None:
    """Run a slow sender into an operator under the checker, whose warnings are errors here."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        sender = Sending(app, CountCondition(app, 4), name="sender")
        sender.seconds = MS
        if wrap is not None:
            sender.wrap = wrap
        taker = Step(app, inputs=("in",), outputs=outputs, body=body, name="taker")
        app.add_flow(sender, taker)
        if outputs:
            app.add_flow(taker, Consumer(app, name="last"))

    run(compose)


@pytest.mark.parametrize("emits", [False, True])
def test_the_checker_reports_who_forgot_to_be_ordered_and_where(
    monkeypatch: pytest.MonkeyPatch, emits: bool
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    def forget(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        stream = context.allocate_cuda_stream("mine")
        launch(stream, MS / 10, lambda source: None, data)
        if emits:
            op_output.set_cuda_stream(stream)
            op_output.emit(data, "out")

    with pytest.raises(
        UnorderedStreamWarning,
        match="'taker' finished without being ordered after .* at 'in'; call receive_cuda",
    ):
        checked(monkeypatch, forget, outputs=("out",) if emits else ())


def test_the_checker_reports_who_asked_which_streams_came_and_forgot_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    def ignore(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        op_input.receive_cuda_streams("in")
        launch(context.allocate_cuda_stream("mine"), MS / 10, lambda source: None, data)

    with pytest.raises(UnorderedStreamWarning, match="'taker' finished"):
        checked(monkeypatch, ignore)


def test_the_checker_reports_who_keeps_a_stream_and_forgets_later_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    def forget_later(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        if self.ticks == 1:
            self.stream = context.allocate_cuda_stream("mine")
            context.synchronize_streams(op_input.receive_cuda_streams("in"), self.stream)
        launch(self.stream, MS / 10, lambda source: None, data)

    with pytest.raises(UnorderedStreamWarning, match="'taker' finished .* at 'in'"):
        checked(monkeypatch, forget_later)


def test_the_checker_reports_who_keeps_a_stream_and_never_orders_another_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    computes: list[int] = []

    def forget_other(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = [op_input.receive("a"), op_input.receive("b")]
        if self.ticks == 1:
            self.stream = op_input.receive_cuda_stream(
                "a"
            )  # after what came at both; later only at this port
        launch(self.stream, MS / 10, lambda *sources: None, *data)
        computes.append(self.ticks)

    with pytest.raises(UnorderedStreamWarning, match="'taker' finished .* at 'b'"):
        checked_join(monkeypatch, forget_other)
    assert computes == [1, 2]


def test_the_checker_reports_who_works_on_a_stream_that_came_with_another_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    def read_both(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = [op_input.receive("a"), op_input.receive("b")]
        if self.ticks == 1:
            (self.stream,) = op_input.receive_cuda_streams("a")
        launch(self.stream, MS / 10, lambda *sources: None, *data)

    with pytest.raises(UnorderedStreamWarning, match="'taker' finished .* at 'b'"):
        checked_join(monkeypatch, read_both)


@pytest.mark.parametrize("flags", [0, 1])
def test_the_checker_reports_who_keeps_the_default_stream_where_cuda_does_not_order_it(
    monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    from headrace.core.errors import UnorderedStreamWarning

    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        def send(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            if self.ticks > 1:
                stream = context.allocate_cuda_stream("mine")
                launch(stream, MS, lambda: None)
            op_output.emit(1, "out")

        def keep(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            if self.ticks == 1:
                self.stream = op_input.receive_cuda_stream("in", allocate=False)
                assert self.stream == 0
            launch(self.stream, MS / 10, lambda: None)

        pool = CudaStreamPool(app, stream_flags=flags)
        sends = Step(app, CountCondition(app, 4), pool, outputs=("out",), body=send, name="sends")
        app.add_flow(sends, Step(app, inputs=("in",), body=keep, name="taker"))

    if flags:
        with pytest.raises(UnorderedStreamWarning, match="'taker' finished .* at 'in'"):
            run(compose)
    else:
        run(compose)


def checked_join(monkeypatch: pytest.MonkeyPatch, body: Callable[..., None]) -> None:
    """Run two senders into the inputs ``a`` and ``b`` of an operator under the checker."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        taker = Step(app, inputs=("a", "b"), body=body, name="taker")
        for port in ("a", "b"):
            app.add_flow(Producer(app, CountCondition(app, 4), name=port), taker, {("out", port)})

    run(compose)


def test_the_checker_has_nothing_to_say_of_a_stream_that_was_ordered_after_all_ports_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read_both(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = [op_input.receive("a"), op_input.receive("b")]
        stream = op_input.receive_cuda_stream("a", allocate=self.ticks > 2)
        launch(stream, MS / 10, lambda *sources: None, *data)

    checked_join(monkeypatch, read_both)


@pytest.mark.parametrize("keeps", [False, True])
def test_the_checker_has_nothing_to_say_of_a_message_of_several_streams_that_is_ordered_by_hand(
    monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """The one stream that it gives waits for the others."""
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        def join(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("a"), op_input.receive("b")), "out")

        def by_hand(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            data = op_input.receive("in")
            (theirs,) = op_input.receive_cuda_streams("in")
            if keeps:
                launch(theirs, MS / 10, lambda *sources: None, *data)
                return
            mine = context.allocate_cuda_stream("mine")
            context.synchronize_streams([theirs], mine)
            launch(mine, MS / 10, lambda *sources: None, *data)

        joint = Step(app, inputs=("a", "b"), outputs=("out",), body=join, name="joint")
        for port in ("a", "b"):
            app.add_flow(Producer(app, CountCondition(app, 4), name=port), joint, {("out", port)})
        app.add_flow(joint, Step(app, inputs=("in",), body=by_hand, name="taker"))

    run(compose)


@pytest.mark.parametrize("allocate", [True, False])
def test_the_checker_has_nothing_to_say_of_a_stream_that_is_kept_and_ordered_anyway(
    monkeypatch: pytest.MonkeyPatch, allocate: bool
) -> None:
    """The operator's own is ordered as each message is received; that of the sender needs no order."""

    def keep(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        if self.ticks == 1:
            self.stream = op_input.receive_cuda_stream("in", allocate=allocate)
        launch(self.stream, MS / 10, lambda source: None, data)

    checked(monkeypatch, keep)


def test_the_checker_has_nothing_to_say_of_one_that_only_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    checked(monkeypatch, lambda self, op_input, op_output, context: op_input.receive("in"))


def test_the_checker_has_nothing_to_say_of_what_is_ordered_without_being_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pass_on(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")

    checked(monkeypatch, pass_on, outputs=("out",))


def test_the_checker_has_nothing_to_say_of_work_on_the_stream_that_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        data = op_input.receive("in")
        (theirs,) = op_input.receive_cuda_streams("in")
        launch(theirs, MS / 10, lambda source: None, data)

    checked(monkeypatch, read)


def test_the_checker_has_nothing_to_say_of_a_tensor_that_was_taken_to_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from headrace import as_tensor

    def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
        tensor = op_input.receive("in")["frame"]
        stream = context.allocate_cuda_stream("mine")
        as_tensor(tensor, stream=stream)

    checked(monkeypatch, read, wrap=lambda data: {"frame": as_tensor(data)})


def test_the_checker_has_nothing_to_say_of_an_ambient_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        def read(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            launch(gpu.current_stream(), MS / 10, lambda source: None, op_input.receive("in"))

        taker = Step(app, inputs=("in",), body=read, setup=lambda spec: spec.ambient_stream(), name="taker")
        app.add_flow(Producer(app, CountCondition(app, 4), name="producer"), taker)

    run(compose)


def test_the_checker_has_nothing_to_say_of_a_doubler_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        app.consumer = Consumer(app, name="consumer")
        doubler = Doubler(app, name="doubler")
        app.add_flow(Producer(app, CountCondition(app, 4), name="producer"), doubler)
        app.add_flow(doubler, app.consumer)

    assert run(compose).consumer.seen == [0, 2, 4, 6]


def test_the_checker_has_nothing_to_say_about_those_who_did(
    monkeypatch: pytest.MonkeyPatch, scheduler: MakeScheduler
) -> None:
    monkeypatch.setenv("HEADRACE_CHECK", "streams")

    def compose(app: Any) -> None:
        def by_hand(self: Any, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")
            mine = context.allocate_cuda_stream("mine")
            context.synchronize_streams(op_input.receive_cuda_streams("in"), mine)

        producer = Producer(app, CountCondition(app, 5), name="producer")
        app.consumer = Consumer(app, name="consumer")
        app.add_flow(producer, app.consumer)
        app.add_flow(producer, Step(app, inputs=("in",), body=by_hand, name="by_hand"))

    assert run(compose, scheduler).consumer.seen == list(range(5))


def test_the_checker_is_off_unless_asked_for() -> None:
    def compose(app: Any) -> None:
        forgetful = Step(app, inputs=("in",), body=lambda self, i, o, c: i.receive("in"), name="forgetful")
        app.add_flow(Producer(app, CountCondition(app, 3), name="producer"), forgetful)

    run(compose)
