"""Status, holds, ports, graphs, subgraphs, fragments and clocks answer as the SDK's do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headrace_holoscan import flow_graphs, graphs, lenience, schedulers
from headrace_holoscan.conditions import AsynchronousEventState, CountCondition
from headrace_holoscan.core import (
    Application,
    FlowGraph,
    Fragment,
    InterfacePortMapping,
    InterfacePortType,
    Operator,
    OperatorFlowGraph,
    OperatorStatus,
    Subgraph,
    Tracker,
)
from tests.harness import PATIENCE

WAIT, DONE = AsynchronousEventState.WAIT, AsynchronousEventState.EVENT_DONE
WAITING, NEVER = AsynchronousEventState.EVENT_WAITING, AsynchronousEventState.EVENT_NEVER


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lenience.forget()
    yield
    lenience.forget()


class Tx(Operator):
    """Sends 1, 2, ..."""

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        self.sent = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.sent += 1
        op_output.emit(self.sent, "out")


class Forward(Operator):
    """Passes on what it receives."""

    def setup(self, spec: Any) -> None:
        spec.input("in")
        spec.output("out")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        op_output.emit(op_input.receive("in"), "out")


class Rx(Operator):
    """Keeps what it receives."""

    def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
        self.taken: list[Any] = []
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: Any) -> None:
        spec.input("in")

    def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
        self.taken.append(op_input.receive("in"))


class App(Application):
    """An application whose compose is a function."""

    def __init__(self, make: Any) -> None:
        super().__init__([])
        self.make = make

    def compose(self) -> None:
        self.make(self)


def run(make: Any) -> Any:
    app = App(make)
    app.run()
    return app


# Status.


def test_what_a_context_answers() -> None:
    seen: list[Any] = []

    class Asks(Tx):
        def start(self) -> None:
            seen.append(self.execution_context.get_operator_status())

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            seen.append((context.find_operator("nobody"), context.find_operator("rx").name))
            seen.append(context.get_operator_status("rx"))
            seen.append(str(context.get_operator_status()))
            with pytest.raises(RuntimeError):
                context.get_operator_status("nobody")
            super().compute(op_input, op_output, context)

    def make(app: Any) -> None:
        app.asks = Asks(app, CountCondition(app, 1), name="asks")
        seen.append((app.asks.execution_context, app.asks.receiver("out"), app.asks.transmitter("out")))
        app.add_flow(app.asks, Rx(app, name="rx"))

    app = run(make)
    assert seen == [
        (None, None, None),
        OperatorStatus.START_PENDING,
        (None, "rx"),
        OperatorStatus.STARTED,
        "OperatorStatus.TICKING",
    ]
    assert app.asks.execution_context is None


def test_a_message_is_in_the_transmitter_until_its_compute_ends() -> None:
    seen: list[Any] = []

    class Looks(Tx):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            transmitter = self.transmitter("out")
            before = transmitter.size, transmitter.back_size
            op_output.emit(1, "out")
            seen.append((before, (transmitter.size, transmitter.back_size), self.transmitter("nope")))

    def make(app: Any) -> None:
        sender = Looks(app, CountCondition(app, 2), name="tx")
        for name in ("one", "two"):
            app.add_flow(sender, Rx(app, name=name))

    run(make)
    assert seen == [((0, 0), (0, 1), None)] * 2


@pytest.mark.parametrize("workers", [1, 3])
def test_a_program_decides_in_which_order_operators_run(workers: int) -> None:
    ran: list[str] = []
    executed = threading.Semaphore(0)
    ready = threading.Event()

    class Simple(Operator):
        def initialize(self) -> None:
            self.async_condition.event_state = WAIT

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            ran.append(self.name)
            self.async_condition.event_state = WAIT
            executed.release()

    class Controller(Operator):
        def start(self) -> None:
            self.others = [op for op in self.fragment.graph.get_nodes() if op is not self]
            self.async_condition.event_state = WAITING
            ready.set()

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            ran.append(self.name)
            self.stop_execution()

    def make(app: Any) -> None:
        app.controller = Controller(app, name="controller")
        for operator in (app.controller, *(Simple(app, name=f"op{number}") for number in (1, 2, 3))):
            app.add_operator(operator)

    app = App(make)
    app.scheduler(schedulers.EventBasedScheduler(app, worker_thread_number=workers))
    future = app.run_async()
    assert ready.wait(PATIENCE)
    assert app.wait_until_started(PATIENCE)
    operators = {operator.name: operator for operator in app.controller.others}
    for name in ("op3", "op1", "op2"):
        operators[name].async_condition.event_state = DONE
        assert executed.acquire(timeout=PATIENCE)
    for operator in operators.values():
        operator.async_condition.event_state = NEVER
    app.controller.async_condition.event_state = DONE
    assert future.result(PATIENCE) is None
    assert ran == ["op3", "op1", "op2", "controller"]


def test_one_operator_is_stopped_by_name(caplog: pytest.LogCaptureFixture) -> None:
    class Stops(Rx):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            super().compute(op_input, op_output, context)
            self.fragment.stop_execution("nobody")
            if len(self.taken) == 2:
                self.fragment.stop_execution("tx")

    def make(app: Any) -> None:
        app.rx = Stops(app, name="rx")
        app.add_flow(Tx(app, name="tx"), app.rx)

    assert run(make).rx.taken[:2] == [1, 2]
    assert "stop_execution('nobody') stops nothing; headrace would have said" in caplog.text


# Graphs.


def test_a_graph_is_composed_and_asked_without_a_run() -> None:
    fragment = Fragment()
    tx, rx, forward = Tx(fragment, name="tx"), Rx(fragment, name="rx"), Forward(fragment, name="mx")
    fragment.add_flow(tx, forward)
    fragment.add_flow(forward, rx)
    graph = fragment.graph
    assert isinstance(graph, (OperatorFlowGraph, FlowGraph))
    assert graph.get_root_nodes() == [tx]
    graph.remove_node(forward)
    assert graph.is_root(rx)
    fragment.add_flow(tx, rx)
    assert graph.get_next_nodes(tx) == [rx]
    other = Tx(fragment, name="other")
    graph.add_node(other)
    assert graph.get_nodes() == [tx, rx, other]


def test_both_generations_of_names_mean_the_same_graphs() -> None:
    assert graphs.OperatorFlowGraph is flow_graphs.FlowGraphImpl is flow_graphs.OperatorFlowGraphImpl
    assert issubclass(graphs.FragmentFlowGraph, flow_graphs.FragmentFlowGraph)
    assert issubclass(flow_graphs.OperatorFlowGraphImpl, graphs.OperatorGraph)
    assert flow_graphs.OperatorFlowGraphImpl().context is None


# Subgraphs.


class TxGroup(Subgraph):
    """A source and what passes it on."""

    def compose(self) -> None:
        tx = Tx(self, CountCondition(self, 2), name="tx")
        forward = Forward(self, name="forward")
        self.add_operator(tx)
        self.add_flow(tx, forward, {("out", "in")})
        self.add_interface_port("data_out", forward, "out")


class RxGroup(Subgraph):
    """Two sinks behind one port."""

    def compose(self) -> None:
        self.sinks = [Rx(self, name="first"), Rx(self, name="second")]
        for each in self.sinks:
            self.add_input_interface_port("in", each)


class Outer(Subgraph):
    """A subgraph around another one."""

    def compose(self) -> None:
        self.inner = RxGroup(self, "inner")
        self.add_subgraph(self.inner)
        self.add_input_interface_port("data_in", self.inner, "in")


def test_subgraphs_are_connected_through_their_interface_ports() -> None:
    def make(app: Any) -> None:
        app.tx, app.outer = TxGroup(app, "tx"), Outer(app, name="outer")
        app.add_subgraph(app.tx)
        app.add_flow(app.tx, app.outer, {("data_out", "data_in")})

    app = run(make)
    assert [sink.taken for sink in app.outer.inner.sinks] == [[1, 2], [1, 2]]
    names = ["tx_tx", "tx_forward", "outer_inner_first", "outer_inner_second"]
    assert [operator.name for operator in app.graph.get_nodes()] == names
    assert [operator.name for operator in app.outer.operators()] == names[2:]
    assert [each.name for each in app.subgraphs] == ["tx", "outer"]
    assert [each.name for each in app.outer.nested_subgraphs] == ["outer_inner"]
    port = app.outer.interface_ports()["data_in"]
    assert port.is_input
    assert port.port_type is InterfacePortType.DATA
    assert len(port) == 2
    assert port.mappings[0] == InterfacePortMapping(app.outer.inner.sinks[0], "in")
    assert app.tx.get_interface_operator_port("data_out") == (app.graph.find("tx_forward"), "out")


def test_a_subgraph_reads_a_file_of_its_own_or_that_of_the_fragment(tmp_path: Any) -> None:
    own, whole = tmp_path / "own.yaml", tmp_path / "whole.yaml"
    own.write_text("tx:\n  count: 1\n")
    whole.write_text("tx:\n  count: 3\n")

    class Counted(Subgraph):
        def compose(self) -> None:
            self.rx = Rx(self, name="rx")
            self.add_flow(Tx(self, CountCondition(self, **self.kwargs("tx")), name="tx"), self.rx)

    def make(app: Any) -> None:
        app.config(str(whole))
        app.subgraph_list = [Counted(app, "own", config=str(own)), Counted(app, "whole")]

    assert [each.rx.taken for each in run(make).subgraph_list] == [[1], [1, 2, 3]]


@pytest.mark.parametrize(
    "compose",
    [
        lambda self, tx: self.add_input_interface_port("x", tx, "out"),
        lambda self, tx: self.add_interface_port("x", tx),
        lambda self, tx: self.add_interface_port("x", tx, "out", True),
        lambda self, tx: [self.add_output_interface_port("x", tx, "out") for _ in range(2)],
        lambda self, tx: [self.add_input_exec_interface_port("x", tx) for _ in range(2)],
        lambda self, tx: (
            self.add_output_interface_port("x", tx, "out"),
            self.add_input_exec_interface_port("x", tx),
        ),
        lambda self, tx: self.add_input_exec_interface_port("x", TxGroup(self, "inner"), "data_out"),
    ],
)
def test_a_wrong_interface_port_is_a_runtime_error(compose: Any) -> None:
    class Wrong(Subgraph):
        def compose(self) -> None:
            compose(self, Tx(self, name="tx"))

    with pytest.raises(RuntimeError):
        run(lambda app: Wrong(app, "wrong"))


def test_wrong_uses_of_subgraphs_are_runtime_errors() -> None:
    with pytest.raises(RuntimeError, match="two subgraphs are named 'tx'"):
        run(lambda app: [TxGroup(app, "tx") for _ in range(2)])
    with pytest.raises(RuntimeError, match="'nope'"):
        run(lambda app: app.add_flow(TxGroup(app, "tx"), RxGroup(app, "rx"), {("nope", "in")}))
    with pytest.raises(ValueError, match="must be provided"):
        run(lambda app: TxGroup(app))


# Fragments.


class Source(Fragment):
    """Sends."""

    def compose(self) -> None:
        self.add_operator(Tx(self, CountCondition(self, 3), name="op"))


class Sink(Fragment):
    """Receives."""

    def compose(self) -> None:
        self.rx = Rx(self, name="op")
        forward = Forward(self, name="forward")
        self.add_flow(forward, self.rx, {("out", "in")})


def parts(app: Any) -> None:
    app.parts = Source(app, name="source"), Sink(app, name="sink")
    app.add_flow(*app.parts, {("op", "forward.in")})


def test_an_application_of_fragments_runs() -> None:
    app = run(parts)
    source, sink = app.parts
    assert sink.rx.taken == [1, 2, 3]
    assert sink.application is app
    assert [node.name for node in source.graph.get_nodes()] == ["op"]
    assert yaml.safe_load(sink.graph.port_map_description())["input_to_output"] == {
        "sink.op.in": ["sink.forward.out"]
    }
    assert app.fragment_graph.get_nodes() == [source, sink]
    assert app.fragment_graph.get_port_map(source, sink) == {"op": {"forward.in"}}


def test_a_tracker_of_fragments_is_a_dict_of_trackers(capfd: Any) -> None:
    app = App(parts)
    with Tracker(app, num_start_messages_to_skip=0, num_last_messages_to_discard=0) as trackers:
        assert set(trackers) == {"source", "sink"}
        app.run()
        assert trackers["sink"].get_path_strings() == ["source.op,sink.forward,sink.op"]
    assert trackers["source"].get_path_strings() == ["source.op"]  # it leaves the fragment there


def test_messages_carry_no_label() -> None:
    class Asking(Rx):
        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.get_data_flow_tracking_label("in")

    def make(app: Any) -> None:
        app.add_flow(Tx(app, CountCondition(app, 1), name="tx"), Asking(app, name="rx"))

    with pytest.raises(
        NotImplementedError, match="operator 'rx' is not here: .* read the paths .* from the tracker"
    ):
        run(make)


def test_wrong_fragments() -> None:
    with pytest.raises(RuntimeError, match="fragment 'a': another fragment has this name"):
        run(lambda app: [app.add_fragment(Source(app, name="a")) for _ in range(2)])

    def wrong(app: Any) -> None:
        source, app.sink = Source(app, name="source"), Sink(app, name="sink")
        app.add_flow(source, app.sink, {("nobody.out", "forward.in")})

    assert run(wrong).sink.rx.taken == []  # the SDK logs it and runs nothing


# The clock of a run.
