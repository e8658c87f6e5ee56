"""Programs that say what runs next: execution ports, the start operator, dynamic flows."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, ConditionType, IOSpec, Operator, OperatorSpec
from holoscan.schedulers import EventBasedScheduler


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
