"""Programs of subgraphs and fragments, and what can be asked of a graph."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, Fragment, IOSpec, Operator, OperatorSpec, Subgraph
from holoscan.operators import PingRxOp, PingTxOp


class ForwardOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        if message is not None:
            op_output.emit(message, "out")


class GatherOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 1
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("receivers", size=IOSpec.ANY_SIZE)

    def compute(self, op_input, op_output, context):
        print(self.count, self.name, op_input.receive("receivers"))
        self.count += 1


class StepOp(Operator):
    def compute(self, op_input, op_output, context):
        print(self.name)


class TxSubgraph(Subgraph):
    def __init__(self, fragment, name):
        super().__init__(fragment, name)

    def compose(self):
        tx = PingTxOp(self, CountCondition(self, count=3), name="transmitter")
        forward = ForwardOp(self, name="forwarding")
        self.add_flow(tx, forward, {("out", "in")})
        self.add_output_interface_port("data_out", forward, "out")


class RxSubgraph(Subgraph):
    def compose(self):
        rx = PingRxOp(self, name="receiver")
        self.add_operator(rx)
        self.add_input_interface_port("data_in", rx, "in")


def _app(compose):
    class App(Application):
        pass

    App.compose = compose
    return App()


def a_subgraph_without_a_port_map():
    def compose(app):
        app.add_flow(TxSubgraph(app, "one"), RxSubgraph(app, "two"))

    _app(compose).run()


def names_and_ports_of_a_subgraph():
    def compose(app):
        one, two = TxSubgraph(app, "one"), RxSubgraph(app, "two")
        app.add_flow(one, two)
        print(one.name, sorted(op.name for op in one.operators()))
        print(sorted(one.interface_ports()), sorted(two.interface_ports()))

    app = _app(compose)
    app.compose_graph()
    print(sorted(op.name for op in app.graph.get_nodes()))
    app.run()


def two_subgraphs_of_one_name():
    def compose(app):
        app.add_flow(TxSubgraph(app, "one"), RxSubgraph(app, "two"))
        try:
            app.add_flow(TxSubgraph(app, "three"), RxSubgraph(app, "two"))
        except RuntimeError:
            print("RuntimeError")

    _app(compose).run()


def steps_in_a_subgraph():
    class Steps(Subgraph):
        def compose(self):
            first, second = StepOp(self, name="first"), StepOp(self, name="second")
            self.add_flow(first, second)
            self.add_input_exec_interface_port("begin", first)
            self.add_output_exec_interface_port("end", second)

    def compose(app):
        a, b = Steps(app, "a"), Steps(app, "b")
        app.add_flow(app.start_op(), a, {("__output_exec__", "begin")})
        app.add_flow(a, b, {("end", "begin")})

    try:
        _app(compose).run()
    except RuntimeError:
        print("RuntimeError")


def steps_of_a_subgraph_without_a_map():
    class Steps(Subgraph):
        def compose(self):
            first, second = StepOp(self, name="first"), StepOp(self, name="second")
            self.add_flow(first, second)
            self.add_input_exec_interface_port("begin", first)
            self.add_output_exec_interface_port("end", second)

    def compose(app):
        start = StepOp(app, CountCondition(app, 2), name="start")
        one = Steps(app, "one")
        app.add_flow(start, one)
        app.add_flow(one, StepOp(app, name="last"))

    _app(compose).run()


def the_port_map_as_text():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 1), name="tx")
        gather = GatherOp(app, name="rx")
        app.add_flow(tx, gather, {("out", "receivers")})
        app.add_flow(PingTxOp(app, CountCondition(app, 1), name="tx2"), gather, {("out", "receivers")})

    app = _app(compose)
    app.run()
    print(app.graph.port_map_description())


def a_graph_made_by_hand():
    def compose(app):
        app.add_operator(PingTxOp(app, CountCondition(app, 1), name="tx"))

    app = _app(compose)
    app.compose_graph()
    extra = ForwardOp(app, name="extra")
    app.graph.add_node(extra)
    print(sorted(node.name for node in app.graph.get_nodes()))
    app.graph.remove_node(extra)
    print(sorted(node.name for node in app.graph.get_nodes()))


def a_fragment_with_its_own_flows():
    class Whole(Fragment):
        def compose(self):
            self.add_flow(PingTxOp(self, CountCondition(self, 2), name="tx"), PingRxOp(self, name="rx"))

    def compose(app):
        app.add_fragment(Whole(app, name="whole"))

    _app(compose).run()


def a_subgraph_that_is_added():
    def compose(app):
        one, two = TxSubgraph(app, "one"), RxSubgraph(app, "two")
        app.add_subgraph(one)
        app.add_subgraph(two)
        app.add_flow(one, two, {("data_out", "data_in")})

    try:
        _app(compose).run()
    except (RuntimeError, TypeError) as error:
        print(type(error).__name__)
