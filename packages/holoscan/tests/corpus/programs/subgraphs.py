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


class GatherSubgraph(Subgraph):
    def compose(self):
        rx = GatherOp(self, name="gather")
        self.add_operator(rx)
        self.add_input_interface_port("data_in", rx, "receivers")


def _app(compose):
    class App(Application):
        pass

    App.compose = compose
    return App()


def subgraphs_into_one_receiver():
    def compose(app):
        tx1, tx2 = TxSubgraph(app, "tx1"), TxSubgraph(app, "tx2")
        plain = PingTxOp(app, CountCondition(app, count=3), name="plain")
        rx = GatherSubgraph(app, "rx")
        app.add_flow(tx1, rx, {("data_out", "data_in")})
        app.add_flow(plain, rx, {("out", "data_in")})
        app.add_flow(tx2, rx, {("data_out", "data_in")})

    _app(compose).run()


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


def a_subgraph_in_a_subgraph():
    class OuterSubgraph(Subgraph):
        def compose(self):
            inner = TxSubgraph(self, "x")
            forward = ForwardOp(self, name="m")
            self.add_flow(inner, forward, {("data_out", "in")})
            self.add_output_interface_port("result", forward, "out")

    def compose(app):
        outer = OuterSubgraph(app, "big")
        app.add_flow(outer, GatherOp(app, name="end"), {("result", "receivers")})

    app = _app(compose)
    app.run()
    print(sorted(op.name for op in app.graph.get_nodes()))


def an_unknown_interface_port():
    def compose(app):
        one, two = TxSubgraph(app, "one"), RxSubgraph(app, "two")
        try:
            app.add_flow(one, two, {("wrong", "data_in")})
        except RuntimeError:
            print("RuntimeError")

    _app(compose).run()


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


def a_subgraph_with_settings():
    class Scaled(Subgraph):
        def __init__(self, fragment, name, factor):
            self.factor = factor
            super().__init__(fragment, name)

        def compose(self):
            factor = self.factor

            class ScaleOp(ForwardOp):
                def compute(self, op_input, op_output, context):
                    op_output.emit(op_input.receive("in") * factor, "out")

            scale = ScaleOp(self, name="scale")
            self.add_operator(scale)
            self.add_input_interface_port("in", scale)
            self.add_output_interface_port("out", scale)

    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 2), name="tx")
        rx = GatherOp(app, name="rx")
        for factor in (2, 5):
            scaled = Scaled(app, f"by{factor}", factor)
            app.add_flow(tx, scaled, {("out", "in")})
            app.add_flow(scaled, rx, {("out", "receivers")})

    _app(compose).run()


def questions_about_a_graph():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 1), name="tx")
        mx, rx = ForwardOp(app, name="mx"), PingRxOp(app, name="rx")
        app.add_flow(tx, mx)
        app.add_flow(mx, rx)

    app = _app(compose)
    app.compose_graph()
    graph = app.graph
    nodes = {node.name: node for node in graph.get_nodes()}
    print(sorted(nodes))
    print([node.name for node in graph.get_root_nodes()])
    print([node.name for node in graph.get_next_nodes(nodes["tx"])])
    print([node.name for node in graph.get_previous_nodes(nodes["rx"])])
    print(graph.is_root(nodes["tx"]), graph.is_leaf(nodes["tx"]), graph.is_leaf(nodes["rx"]))
    print({out: sorted(ins) for out, ins in graph.get_port_map(nodes["tx"], nodes["mx"]).items()})


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


def three_fragments_in_one_process():
    class Source(Fragment):
        def compose(self):
            self.add_operator(PingTxOp(self, CountCondition(self, 3), name="tx"))

    class Middle(Fragment):
        def compose(self):
            self.add_operator(ForwardOp(self, name="mx"))

    class Sink(Fragment):
        def __init__(self, app, name):
            super().__init__(app, name)

        def compose(self):
            self.add_operator(PingRxOp(self, name="rx"))

    def compose(app):
        source, middle, sink = Source(app, "source"), Middle(app, name="middle"), Sink(app, "sink")
        print(source.name, middle.name, sink.name, source.application is app)
        app.add_flow(source, middle, {("tx.out", "mx.in")})
        app.add_flow(middle, sink, {("mx", "rx")})

    app = _app(compose)
    app.run()
    print(sorted(fragment.name for fragment in app.fragment_graph.get_nodes()))


def a_fragment_with_its_own_flows():
    class Whole(Fragment):
        def compose(self):
            self.add_flow(PingTxOp(self, CountCondition(self, 2), name="tx"), PingRxOp(self, name="rx"))

    def compose(app):
        app.add_fragment(Whole(app, name="whole"))

    _app(compose).run()


def ways_to_make_a_fragment():
    app = _app(lambda app: None)
    for fragment in (Fragment(app), Fragment(app, "one"), Fragment(app, name="two"), Fragment()):
        print(repr(fragment.name), fragment.application is app)


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


def graphs_by_their_types():
    from holoscan.flow_graphs import FragmentFlowGraph, OperatorFlowGraph

    def compose(app):
        app.add_flow(PingTxOp(app, CountCondition(app, 1), name="tx"), PingRxOp(app, name="rx"))

    app = _app(compose)
    app.compose_graph()
    print(isinstance(app.graph, OperatorFlowGraph), isinstance(app.fragment_graph, FragmentFlowGraph))


def connections_of_all_ports():
    def compose(app):
        tx, mx = PingTxOp(app, CountCondition(app, 1), name="tx"), ForwardOp(app, name="mx")
        app.add_flow(tx, mx)
        app.add_flow(mx, PingRxOp(app, name="rx"))

    app = _app(compose)
    app.compose_graph()
    for table in app.graph.get_port_connectivity_maps():
        print(sorted((port, sorted(others)) for port, others in table.items()))
