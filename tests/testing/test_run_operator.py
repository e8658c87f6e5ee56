"""An operator can be tested by itself, as it runs in a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import (
    ConditionType,
    EventBasedScheduler,
    IOSpec,
    Operator,
    gpu,
    op,
)
from headrace.conditions import (
    ExpiringMessageAvailableCondition,
    MessageAvailableCondition,
    OrConditionCombiner,
)
from headrace.core import GraphError, ParameterError, PortError, UnreceivedMessageWarning
from headrace.gpu import sim
from headrace.testing import Message, run_operator
from tests.harness import switching_often

MS = 1_000_000


@op
def square(value: int) -> int:
    return value * value


@op
def numbers(*, count: int) -> Any:
    yield from range(count)


class Average(Operator):
    """The mean of the last values."""

    def setup(self, spec: Any) -> None:
        spec.input("value")
        spec.output("average")
        spec.param("window", 3)

    def start(self) -> None:
        self.recent: list[float] = []
        self.stopped = False

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.recent.append(op_input.receive("value"))
        del self.recent[: -self.window]  # type: ignore[attr-defined]
        op_output.emit(sum(self.recent) / len(self.recent), "average")

    def stop(self) -> None:
        self.stopped = True


class Tick(Operator):
    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(context.timestamp // MS, "out")


def test_a_class_gives_what_it_emits_for_each_output() -> None:
    outcome = run_operator(Average, inputs={"value": [1, 2, 3, 7]}, window=2)
    assert outcome["average"] == [1, 1.5, 2.5, 5]
    assert outcome == {"average": [1, 1.5, 2.5, 5]}
    assert outcome.steps == 4
    assert outcome.operator.stopped
    assert repr(outcome) == "<OperatorResult of 'average' after 4 steps: {'average': [1.0, 1.5, 2.5, 5.0]}>"


def test_a_source_runs_to_its_end_or_for_so_many_steps() -> None:
    assert run_operator(numbers, count=3) == {"out": [0, 1, 2]}
    assert run_operator(Tick, steps=2) == {"out": [0, 0]}
    assert run_operator(numbers, count=9, steps=2) == {"out": [0, 1]}


def test_several_inputs_and_outputs_are_told_by_name() -> None:
    @op(outputs=("low", "high"))
    def sort(left: int, right: int) -> tuple[int, int]:
        return min(left, right), max(left, right)

    outcome = run_operator(sort, inputs={"left": [1, 9], "right": [5, 5]})
    assert outcome == {"low": [1, 5], "high": [5, 9]}


def test_any_number_of_connections_is_a_list_for_each() -> None:
    @op
    def total(*values: int) -> int:
        return sum(values)

    assert run_operator(total, inputs={"values": [[1, 2], [10, 20], [100, 200]]}) == {"out": [111, 222]}


def test_metadata_and_timestamps_go_in_and_come_out() -> None:
    class Stamp(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            value = op_input.receive("in")
            stamp = op_input.get_acquisition_timestamp("in")
            self.metadata["seen"] = True
            op_output.emit(value, "out", acq_timestamp=-1 if stamp is None else stamp + 1)

    outcome = run_operator(Stamp, inputs=[Message("a", {"frame": 7}, acq_timestamp=100), "b"])
    assert outcome.messages["out"] == [
        Message("a", {"frame": 7, "seen": True}, 101, 0),
        Message("b", {"seen": True}, None, 0),
    ]


def test_time_is_virtual_and_messages_come_when_they_are_sent() -> None:
    outcome = run_operator(square, inputs=[Message(2, at="10min"), Message(3, at="20min"), 4])
    assert [(message.data, message.at) for message in outcome.messages["out"]] == [
        (4, 600_000 * MS),
        (9, 1_200_000 * MS),
        (16, 1_200_000 * MS),
    ]


def test_a_batch_that_is_never_complete_comes_when_its_time_is_up() -> None:
    class Batch(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in", size=4)
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit(op_input.receive("in"), "out")

    def batches(app: Any) -> Batch:
        return Batch(app, ExpiringMessageAvailableCondition(app, 4, "50ms", receiver="in"))

    outcome = run_operator(batches, inputs=[1, Message(2, at="20ms"), Message(3, at="60ms")])
    assert [(message.data, message.at) for message in outcome.messages["out"]] == [
        ((1, 2), 50 * MS),
        ((3,), 110 * MS),
    ]
    # Without the condition it waits for four.
    outcome = run_operator(Batch, inputs=[1, 2, 3])
    assert outcome == {"out": []}
    assert outcome.not_received == {"in": 3}


def test_an_input_that_may_stay_empty_need_not_be_given() -> None:
    class Optional(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.input("extra").condition(ConditionType.NONE)
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("in"), op_input.receive("extra")), "out")

    assert run_operator(Optional, inputs={"in": [1, 2]}) == {"out": [(1, None), (2, None)]}


def test_an_input_that_is_combined_with_one_that_gets_messages_need_not_be_given() -> None:
    class Either(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.input("other")
            spec.or_combine_port_conditions(["in", "other"])
            spec.output("out")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_output.emit((op_input.receive("in"), op_input.receive("other")), "out")

    assert run_operator(Either, inputs={"other": [1, 2]}) == {"out": [(None, 1), (None, 2)]}
    with pytest.raises(GraphError, match="would wait for its input 'in' forever"):
        run_operator(Either)

    class Both(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")
            spec.input("other")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            op_input.receive("in")

    def given(app: Any) -> Operator:
        terms = [MessageAvailableCondition(app, receiver=port) for port in ("in", "other")]
        return Both(app, OrConditionCombiner(app, terms))

    assert run_operator(given, inputs={"in": [1, 2]}).steps == 2


def test_a_function_of_any_number_of_messages_that_gets_none_is_an_error() -> None:
    @op
    def total(*values: int) -> int:
        return sum(values)

    for inputs in (None, {}, {"values": []}):
        with pytest.raises(GraphError, match=r"without messages forever: .* inputs=\{'values': \[\[...\], "):
            run_operator(total, inputs=inputs)
    assert run_operator(total, steps=2) == {"out": [0, 0]}


def test_an_exception_comes_out_as_itself() -> None:
    with pytest.raises(TypeError, match="unsupported operand|can't multiply"):
        run_operator(square, inputs=["a"])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: run_operator(square, inputs={"valu": [1]}),
            PortError,
            "has no input 'valu'; it has 'value'",
        ),
        (
            lambda: run_operator(square),
            GraphError,
            r"would wait for its input 'value' forever: .* inputs=\{'value': \[...\]\}",
        ),
        (lambda: run_operator(Average, inputs=[1], windw=2), ParameterError, "has no parameter 'windw'"),
        (lambda: run_operator(numbers), ParameterError, "needs a value for 'count'"),
        (lambda: run_operator(numbers, inputs=[1], count=1), GraphError, "no inputs, and inputs were given"),
        (lambda: run_operator(lambda app: 3), TypeError, "a function that creates an operator .* returned 3"),
        (lambda: run_operator(3), TypeError, "takes an Operator class or a function with @op, not 3"),  # type: ignore[arg-type]
        (lambda: run_operator(square, inputs=[1])["ou"], PortError, "has no output 'ou'; it has 'out'"),
        (
            lambda: run_operator(Tick),
            RuntimeError,
            r"'tick' was still running after \d+ steps; pass steps=\.\.\.",
        ),
    ],
)
def test_a_mistake_is_told(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_an_operator_that_forgets_to_receive_does_not_run_for_ever() -> None:
    class Forgetful(Operator):
        def setup(self, spec: Any) -> None:
            spec.input("in")

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            pass

    with (
        pytest.warns(UnreceivedMessageWarning, match="operator 'forgetful' has computed"),
        pytest.raises(RuntimeError, match="check that it receives its messages"),
    ):
        run_operator(Forgetful, inputs=[1])


def test_messages_that_are_emitted_while_others_are_collected_are_collected_later() -> None:
    """With a second worker, the operator goes on while its messages are taken off their queue."""
    with switching_often():
        for _ in range(5):
            outcome = run_operator(
                Tick, steps=1000, scheduler=lambda app: EventBasedScheduler(app, worker_thread_number=2)
            )
            assert len(outcome["out"]) == 1000


def test_arrays_are_sent_as_tensors_as_in_a_pipeline() -> None:
    @op
    def double(frame: Any) -> Any:
        return {"frame": 2 * np.asarray(frame["frame"])}

    (frame,) = run_operator(double, inputs=[{"frame": np.arange(3)}])["out"]
    assert np.asarray(frame["frame"]).tolist() == [0, 2, 4]


class Kernel(Operator):
    """Launches a kernel of a millisecond for each message."""

    seconds = 1e-3

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out", policy=IOSpec.QueuePolicy.FAULT)
        self.seen: list[int] = []

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        value = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        kernel = sim.Kernel("k", self.seconds, lambda: self.seen.append(value))
        sim.launch(stream.stream, sim.LaunchConfig(grid=1, block=32), kernel)
        op_output.emit(value, "out")


def test_the_device_is_simulated_in_virtual_time_and_done_at_the_end() -> None:
    assert run_operator(Kernel, inputs=range(5)).operator.seen == [0, 1, 2, 3, 4]
    with sim.Machine("h200") as machine:
        run_operator(Kernel, inputs=range(20))
        assert machine.now >= 20e-3
    assert gpu.backend() == "sim"


@op
def shown(value: int) -> None:
    print(value)


def test_a_function_that_is_a_sink_emits_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run_operator(shown, inputs=[1, 2])
    assert (outcome, outcome.steps) == ({"out": []}, 2)
    assert capsys.readouterr().out == "1\n2\n"


@pytest.mark.parametrize("on", ["threads", "processes"])
def test_an_operator_with_replicas_emits_what_these_emit(on: str) -> None:
    outcome = run_operator(square, inputs=[1, 2, 3, 4], steps=3, workers=2, on=on)
    assert outcome == {"out": [1, 4, 9]}
    assert (outcome.steps, outcome.not_received) == (3, {"value": 1})
