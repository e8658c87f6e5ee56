"""Programs that say what runs next: execution ports, the start operator, dynamic flows."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, ConditionType, IOSpec, Operator, OperatorSpec
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.schedulers import EventBasedScheduler


class SimpleOp(Operator):
    def compute(self, op_input, op_output, context):
        print(f"I am here - {self.name}")


class LabelOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def __init__(self, *args, **kwargs):
        self.value = 0
        super().__init__(*args, **kwargs)

    def compute(self, op_input, op_output, context):
        self.value += 1
        print(f"{self.name} - Sending value {self.value}")
        op_output.emit(self.value, "out")


class TakeOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print(f"{self.name} - Received value {op_input.receive('in')}")


def _run(compose, *, workers=0):
    class App(Application):
        pass

    App.compose = compose
    app = App()
    if workers:
        app.scheduler(EventBasedScheduler(app, worker_thread_number=workers, stop_on_deadlock=True))
    app.run()


def sequential():
    def compose(app):
        node1 = SimpleOp(app, CountCondition(app, 2), name="node1")
        node2 = SimpleOp(app, name="node2")
        node3 = SimpleOp(app, name="node3")
        app.add_flow(node1, node2)
        app.add_flow(node2, node3)

    _run(compose)


def sequential_from_the_start_operator():
    def compose(app):
        start = app.start_op()
        node1 = SimpleOp(app, name="node1")
        node2 = SimpleOp(app, name="node2")
        print(start.name)
        app.add_flow(app.start_op(), node1)
        app.add_flow(node1, node2)

    _run(compose)


def fork_and_join():
    def compose(app):
        node1 = SimpleOp(app, name="node1")
        branches = [SimpleOp(app, name=f"node{n}") for n in range(2, 6)]
        last = SimpleOp(app, name="node6")
        app.add_flow(app.start_op(), node1)
        for branch in branches:
            app.add_flow(node1, branch)
            app.add_flow(branch, last)

    _run(compose, workers=3)


def a_join_of_two_sources_ends_with_the_shorter():
    def compose(app):
        two = SimpleOp(app, CountCondition(app, 2), name="two")
        three = SimpleOp(app, CountCondition(app, 3), name="three")
        join = SimpleOp(app, name="join")
        app.add_flow(two, join)
        app.add_flow(three, join)

    _run(compose)


def execution_ports_beside_data_ports():
    def compose(app):
        tx = LabelOp(app, CountCondition(app, 3), name="tx")
        rx = TakeOp(app, name="rx")
        after = SimpleOp(app, name="after")
        app.add_flow(tx, rx)
        app.add_flow(rx, after)
        print(Operator.INPUT_EXEC_PORT_NAME, Operator.OUTPUT_EXEC_PORT_NAME)

    _run(compose)


def an_execution_flow_into_a_data_input_is_refused():
    def compose(app):
        try:
            app.add_flow(SimpleOp(app, CountCondition(app, 1), name="a"), TakeOp(app, name="b"))
        except RuntimeError:
            print("RuntimeError")

    _run(compose)


def naming_execution_ports_that_are_not_there_is_refused():
    def compose(app):
        a, b = SimpleOp(app, CountCondition(app, 2), name="a"), SimpleOp(app, name="b")
        try:
            app.add_flow(a, b, {("__output_exec__", "__input_exec__")})
        except RuntimeError:
            print("RuntimeError")

    _run(compose)


def conditional():
    class CountOp(SimpleOp):
        def __init__(self, *args, **kwargs):
            self.value = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            self.value += 1
            super().compute(op_input, op_output, context)

    def compose(app):
        node1 = CountOp(app, CountCondition(app, 4), name="node1")
        even, odd = SimpleOp(app, name="even"), SimpleOp(app, name="odd")
        app.add_flow(node1, even)
        app.add_flow(node1, odd)
        app.set_dynamic_flows(node1, lambda op: op.add_dynamic_flow(odd if op.value % 2 else even))

    _run(compose)


def conditional_routing():
    class RouteOp(Operator):
        def __init__(self, *args, **kwargs):
            self.value = 0
            super().__init__(*args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.output("out1")
            spec.output("out2")

        def compute(self, op_input, op_output, context):
            self.value += 1
            op_output.emit(self.value, "out1")
            op_output.emit(-self.value, "out2")

    def compose(app):
        tx = RouteOp(app, CountCondition(app, 4), name="tx")
        rx1, rx2 = TakeOp(app, name="rx1"), TakeOp(app, name="rx2")
        app.add_flow(tx, rx1, {("out1", "in")})
        app.add_flow(tx, rx2, {("out2", "in")})

        def route(op):
            if op.value % 2:
                op.add_dynamic_flow("out1", rx1, "in")
            else:
                op.add_dynamic_flow("out2", rx2)

        app.set_dynamic_flows(tx, route)

    _run(compose)


def a_loop():
    class BodyOp(SimpleOp):
        def __init__(self, *args, **kwargs):
            self.index = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            print(f"{self.name} - index {self.index}")
            self.index += 1

    def compose(app):
        node1 = SimpleOp(app, name="node1")
        node2 = BodyOp(app, name="node2")
        node3, node4 = SimpleOp(app, name="node3"), SimpleOp(app, name="node4")
        app.add_flow(app.start_op(), node1)
        app.add_flow(node1, node2)
        app.add_flow(node2, node3)
        app.add_flow(node3, node2)
        app.add_flow(node2, node4)
        app.set_dynamic_flows(node2, lambda op: op.add_dynamic_flow(node3 if op.index < 3 else node4))

    _run(compose)


def streaming():
    class GenOp(LabelOp):
        pass

    def compose(app):
        gen = GenOp(app, name="gen")
        rx = TakeOp(app, name="rx")
        app.add_flow(app.start_op(), gen)
        app.add_flow(gen, gen)
        app.add_flow(gen, rx, {("out", "in")})

        def again(op):
            op.add_dynamic_flow("out", rx)
            if op.value < 4:
                op.add_dynamic_flow(Operator.OUTPUT_EXEC_PORT_NAME, op)

        app.set_dynamic_flows(gen, again)

    _run(compose)


def a_monitor_of_a_stream():
    class DetectOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            self.metadata.set("value", value)
            self.metadata.set("is_detected", value % 2 == 1)

    class ReportOp(Operator):
        def compute(self, op_input, op_output, context):
            print(f"report {self.metadata.get('value', -1)} {self.metadata.get('is_detected', False)}")

    def compose(app):
        gen = LabelOp(app, CountCondition(app, 5), name="gen")
        detect, report = DetectOp(app, name="detect"), ReportOp(app, name="report")
        app.add_flow(gen, detect)
        app.add_flow(detect, report)

        def after(op):
            if op.metadata.get("is_detected", False):
                op.add_dynamic_flow(report)

        app.set_dynamic_flows(detect, after)

    _run(compose)


def a_throttle_drops_what_comes_too_fast():
    class ThrottleOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out", policy=IOSpec.QueuePolicy.POP).condition(ConditionType.NONE)

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            if value is not None:
                op_output.emit(value, "out")

    def compose(app):
        gen = LabelOp(app, CountCondition(app, 3), name="gen")
        throttle, rx = ThrottleOp(app, name="throttle"), TakeOp(app, name="rx")
        rx.queue_policy("in", IOSpec.IOType.INPUT, IOSpec.QueuePolicy.POP)
        app.add_flow(gen, throttle)
        app.add_flow(throttle, rx)

    _run(compose)


def several_dynamic_flows_for_one_compute():
    def compose(app):
        tx = SimpleOp(app, CountCondition(app, 2), name="tx")
        a, b, c = (SimpleOp(app, name=name) for name in "abc")
        for one in (a, b, c):
            app.add_flow(tx, one)

        def after(op):
            op.add_dynamic_flow(a)
            op.add_dynamic_flow(c)

        app.set_dynamic_flows(tx, after)

    _run(compose)


def no_dynamic_flow_at_all_ends_the_run():
    def compose(app):
        tx = SimpleOp(app, CountCondition(app, 2), name="tx")
        app.add_flow(tx, SimpleOp(app, name="rx"))
        app.set_dynamic_flows(tx, lambda op: None)

    _run(compose)


def dynamic_flows_by_their_description():
    class TwoOp(LabelOp):
        def setup(self, spec: OperatorSpec):
            spec.output("out")
            spec.output("spare")

    def compose(app):
        tx = TwoOp(app, CountCondition(app, 3), name="tx")
        rx, other = TakeOp(app, name="rx"), TakeOp(app, name="other")
        app.add_flow(tx, rx, {("out", "in")})
        app.add_flow(tx, other, {("spare", "in")})

        def after(op):
            if op.value == 1:
                for flow in op.next_flows:
                    print(
                        flow.curr_operator.name,
                        flow.output_port_name,
                        flow.next_operator.name,
                        flow.input_port_name,
                    )
                print(op.find_flow_info(lambda flow: flow.next_operator.name == "nobody"))
                print(len(op.find_all_flow_info(lambda flow: flow.input_port_name == "in")))
            op.add_dynamic_flow(op.find_flow_info(lambda flow: flow.next_operator.name == "rx"))

        app.set_dynamic_flows(tx, after)

    _run(compose)


def a_list_of_dynamic_flows():
    def compose(app):
        tx = LabelOp(app, CountCondition(app, 3), name="tx")
        a, b = TakeOp(app, name="a"), TakeOp(app, name="b")
        app.add_flow(tx, a)
        app.add_flow(tx, b)
        app.set_dynamic_flows(tx, lambda op: op.add_dynamic_flow(op.next_flows))

    _run(compose)


def a_dynamic_flow_that_was_not_declared():
    def compose(app):
        tx = SimpleOp(app, CountCondition(app, 2), name="tx")
        declared, extra = SimpleOp(app, name="declared"), SimpleOp(app, name="extra")
        app.add_flow(tx, declared)
        app.add_flow(SimpleOp(app, CountCondition(app, 1), name="before"), extra)
        app.set_dynamic_flows(tx, lambda op: op.add_dynamic_flow(extra))

    _run(compose)


def mixed_flows():
    class MiddleOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(op_input.receive("in") * 10, "out")

    def compose(app):
        tx = LabelOp(app, CountCondition(app, 3), name="tx")
        middle, rx = MiddleOp(app, name="middle"), TakeOp(app, name="rx")
        start, end = SimpleOp(app, CountCondition(app, 1), name="start"), SimpleOp(app, name="end")
        app.add_flow(tx, middle)
        app.add_flow(middle, rx, {("out", "in")})
        app.add_flow(start, end)

    _run(compose)


def the_start_operator_before_a_source_with_a_count():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 3), name="tx")
        app.add_flow(app.start_op(), tx)
        app.add_flow(tx, PingRxOp(app, name="rx"))

    _run(compose)


def state_based_monitoring():
    class StateOp(SimpleOp):
        states = ("idle", "busy", "busy", "failed")

        def __init__(self, *args, **kwargs):
            self.turn = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            self.state = self.states[self.turn]
            self.turn += 1

    def compose(app):
        monitor = StateOp(app, name="monitor")
        handlers = {name: SimpleOp(app, name=name) for name in ("idle", "busy", "failed")}
        app.add_flow(app.start_op(), monitor)
        for handler in handlers.values():
            app.add_flow(monitor, handler)
            if handler.name != "failed":
                app.add_flow(handler, monitor)
        app.set_dynamic_flows(monitor, lambda op: op.add_dynamic_flow(handlers[op.state]))
        for name in ("idle", "busy"):
            app.set_dynamic_flows(handlers[name], lambda op: op.add_dynamic_flow(monitor))

    _run(compose)
