"""Programs with execution flows, dynamic flows and connectors, as they are written for the SDK.

What is expected here was printed by the SDK 4.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace_holoscan import conditions, core, resources, schedulers
from headrace_holoscan.absent import NotHereError

ASYNC = core.IOSpec.ConnectorType.ASYNC_BUFFER


class Simple(core.Operator):
    def __init__(self, fragment: Any, log: list[Any], *args: Any, **kwargs: Any) -> None:
        self.value, self.log = 0, log
        super().__init__(fragment, *args, **kwargs)

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.value += 1
        self.log.append(self.name)


class Tx(Simple):
    def setup(self, spec: Any) -> None:
        spec.output("output")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.value += 1
        op_output.emit(self.value, "output")


class Rx(Simple):
    def setup(self, spec: Any) -> None:
        spec.input("input")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.log.append((self.name, op_input.receive("input")))


class Pass(Rx):
    def setup(self, spec: Any) -> None:
        super().setup(spec)
        spec.output("output")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("input"), "output")


def run(compose: Callable[[Any, list[Any]], None], workers: int = 0) -> list[Any]:
    """Run an application, and return what its operators noted."""
    log: list[Any] = []

    class App(core.Application):
        def compose(self) -> None:
            clock = resources.ManualClock(self)
            if workers:
                self.scheduler(
                    schedulers.EventBasedScheduler(self, worker_thread_number=workers, clock=clock)
                )
            else:
                self.scheduler(schedulers.GreedyScheduler(self, clock=clock))
            compose(self, log)

    App().run()
    return log


@pytest.mark.parametrize("workers", [0, 2, 3, 5])
def test_a_sequence_and_a_fork_and_join(workers: int) -> None:
    def compose(app: Any, log: list[Any]) -> None:
        first, left, right, last = (
            Simple(app, log, name=name) for name in ("first", "left", "right", "last")
        )
        assert app.start_op().name == "<|start|>"
        app.add_flow(app.start_op(), first)
        for side in (left, right):
            app.add_flow(first, side)
            app.add_flow(side, last)

    log = run(compose, workers)
    assert (log[0], sorted(log[1:3]), log[3:]) == ("first", ["left", "right"], ["last"])


def test_messages_are_routed_by_turns_and_an_alarm_runs_beside() -> None:
    def compose(app: Any, log: list[Any]) -> None:
        tx = Tx(app, log, conditions.CountCondition(app, 2), name="tx")
        left, right, alarm = (
            Rx(app, log, name="left"),
            Rx(app, log, name="right"),
            Simple(app, log, name="alarm"),
        )
        app.add_flow(tx, left, {("output", "input")})
        app.add_flow(tx, alarm)
        app.add_flow(tx, right, {("output", "input")})

        def choose(op: Any) -> None:
            op.add_dynamic_flow("output", left if op.value % 2 else right, "input")
            op.add_dynamic_flow(core.Operator.OUTPUT_EXEC_PORT_NAME, alarm)

        app.set_dynamic_flows(tx, choose)

    log = run(compose)
    assert sorted(map(str, log)) == sorted(map(str, ["alarm", "alarm", ("left", 1), ("right", 2)]))


def test_a_stream_triggers_itself_until_it_is_told_nothing() -> None:
    def compose(app: Any, log: list[Any]) -> None:
        tx, rx = Tx(app, log, name="tx"), Rx(app, log, name="rx")
        app.add_flow(app.start_op(), tx)
        app.add_flow(tx, tx)
        app.add_flow(tx, rx, {("output", "input")})

        def choose(op: Any) -> None:
            if op.value <= 5:
                op.add_dynamic_flow("output", rx)
                op.add_dynamic_flow(op.OUTPUT_EXEC_PORT_NAME, op)

        app.set_dynamic_flows(tx, choose)

    assert run(compose) == [("rx", value) for value in range(1, 6)]


def test_flows_are_found_and_those_that_were_not_declared_can_be_chosen() -> None:
    found: list[Any] = []

    def compose(app: Any, log: list[Any]) -> None:
        tx = Tx(app, log, conditions.CountCondition(app, 4), name="tx")
        near, far = Rx(app, log, name="near"), Rx(app, log, name="far")
        app.add_flow(tx, near)
        app.add_flow(Tx(app, log, conditions.CountCondition(app, 0), name="none"), far)

        def choose(op: Any) -> None:
            flow = op.find_flow_info(lambda flow: flow.next_operator.name == "near")
            found.append((flow.curr_operator.name, flow.output_port_name, flow.input_port_name))
            assert op.find_flow_info(lambda flow: False) is None
            assert len(op.find_all_flow_info(lambda flow: True)) == len(op.next_flows) == 1
            if op.value % 2:
                op.add_dynamic_flow("output", far, "input")
            else:
                op.add_dynamic_flow([flow])

        app.set_dynamic_flows(tx, choose)

    assert run(compose) == [("far", 1), ("near", 2), ("far", 3), ("near", 4)]
    assert found[0] == ("tx", "output", "input")


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("by_track", [False, True])
def test_a_message_that_is_read_again_has_a_path_of_its_own(is_behind: bool, by_track: bool) -> None:
    class App(core.Application):
        def compose(self) -> None:
            self.scheduler(schedulers.GreedyScheduler(self, clock=resources.ManualClock(self)))
            log: list[Any] = []
            fast, slow = (conditions.PeriodicCondition(self, period) for period in (10_000_000, 20_000_000))
            tx = Tx(self, log, slow, conditions.CountCondition(self, 5), name="tx")
            reader = (Pass if is_behind else Rx)(
                self, log, fast, conditions.CountCondition(self, 10), name="reader"
            )
            self.add_flow(tx, reader, ASYNC)
            if is_behind:
                self.add_flow(reader, Rx(self, log, name="rx"))

    app = App()
    options = {"num_start_messages_to_skip": 0, "num_last_messages_to_discard": 0}
    with app.track(**options) if by_track else core.Tracker(app, **options) as tracker:
        app.run()
    end = "reader,rx" if is_behind else "reader"
    counts = {
        path: tracker.get_metric(path, core.DataFlowMetric.NUM_DST_MESSAGES)
        for path in tracker.get_path_strings()
    }
    assert counts == {f"tx,{end}": 5, f"tx_old,{end}": 5}


def test_a_portless_operator_before_data_is_refused() -> None:
    def compose(app: Any, log: list[Any]) -> None:
        app.add_flow(Simple(app, log, name="portless"), Rx(app, log, name="rx"))

    with pytest.raises(RuntimeError, match="has no output"):
        run(compose)


def test_a_connector_sets_the_room_and_the_policy_of_a_queue() -> None:
    spec = core.OperatorSpec()
    port = spec.input("in").connector(core.IOSpec.ConnectorType.DOUBLE_BUFFER, capacity=3, policy=1)
    assert (port.connector_type, port.queue_size, port.capacity) == (
        core.IOSpec.ConnectorType.DOUBLE_BUFFER,
        1,
        3,
    )
    assert port.queue_policy is core.IOSpec.QueuePolicy.REJECT
    assert port.condition(core.ConditionType.NONE) is port
    assert int(core.IOSpec.ANY_SIZE) == -1
    assert [int(policy) for policy in list(core.IOSpec.QueuePolicy)[:3]] == [0, 1, 2]
    with pytest.raises(NotHereError, match="use self.export_topic and self.import_topic in compose"):
        spec.output("out").topic("frames")
    queue = spec.input("other").connector(core.IOSpec.ConnectorType.UCX, port=7).connector()
    assert (type(queue).__name__, queue.args[0].name, int(queue.args[0])) == ("UcxReceiver", "port", 7)
    with pytest.raises(ValueError, match="takes no capacity"):
        spec.input("third").connector(ASYNC, capacity=2)
