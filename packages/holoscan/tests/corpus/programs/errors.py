"""Programs with a mistake in them: which are refused, when and how, and which run."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, IOSpec, Operator, OperatorSpec
from holoscan.operators import PingRxOp, PingTxOp


class TxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit(1, "out")


class RxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print(self.name, op_input.receive("in"))


class TwoOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in1")
        spec.input("in2")

    def compute(self, op_input, op_output, context):
        print(op_input.receive("in1"), op_input.receive("in2"))


def _run(compose):
    class App(Application):
        pass

    App.compose = compose
    App().run()
    print("ended")


def a_misspelled_port_in_a_flow():
    def compose(app):
        tx, rx = TxOp(app, CountCondition(app, 1), name="tx"), RxOp(app, name="rx")
        for pair in (("output", "in"), ("out", "input")):
            try:
                app.add_flow(tx, rx, {pair})
            except RuntimeError:
                print("RuntimeError", pair)

    try:
        _run(compose)
    except RuntimeError:
        print("refused")


def a_misspelled_port_that_nobody_catches():
    def compose(app):
        tx, rx = TxOp(app, CountCondition(app, 1), name="tx"), RxOp(app, name="rx")
        app.add_flow(tx, rx, {("outt", "in")})

    _run(compose)


def two_operators_of_one_name():
    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 1), name="same"), RxOp(app, name="same"))

    _run(compose)


def a_flow_added_twice():
    def compose(app):
        tx, rx = TxOp(app, CountCondition(app, 2), name="tx"), RxOp(app, name="rx")
        app.add_flow(tx, rx)
        app.add_flow(tx, rx)

    _run(compose)


def an_operator_that_is_never_connected():
    def compose(app):
        RxOp(app, name="unused")
        TxOp(app, name="also unused")
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), RxOp(app, name="rx"))

    _run(compose)


def an_operator_added_twice():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 2), name="tx")
        app.add_operator(tx)
        app.add_operator(tx)
        app.add_flow(tx, PingRxOp(app, name="rx"))

    _run(compose)


def an_unconnected_input():
    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), TwoOp(app, name="two"), {("out", "in1")})
        app.add_flow(TxOp(app, CountCondition(app, 2), name="other"), RxOp(app, name="rx"))

    _run(compose)


def an_unconnected_output():
    def compose(app):
        app.add_operator(TxOp(app, CountCondition(app, 2), name="tx"))
        app.add_flow(TxOp(app, CountCondition(app, 1), name="other"), RxOp(app, name="rx"))

    _run(compose)


def an_ambiguous_flow():
    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), TwoOp(app, name="two"))

    _run(compose)


def an_unknown_port_in_receive():
    class WrongOp(RxOp):
        def compute(self, op_input, op_output, context):
            print(op_input.receive("wrong"), op_input.receive("in"))

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), WrongOp(app, name="rx"))

    _run(compose)


def an_unknown_port_in_emit():
    class WrongOp(TxOp):
        def compute(self, op_input, op_output, context):
            op_output.emit(5, "wrong")
            op_output.emit(6, "out")

    def compose(app):
        app.add_flow(WrongOp(app, CountCondition(app, 2), name="tx"), RxOp(app, name="rx"))

    _run(compose)


def an_application_without_operators():
    class EmptyApp(Application):
        def compose(self):
            print("compose")

    print(EmptyApp().run())


def an_application_by_itself():
    print(Application().run())


def a_queue_of_no_length():
    class ShortOp(RxOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in", size=IOSpec.IOSize(-7))

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 1), name="tx"), ShortOp(app, name="rx"))

    _run(compose)


def two_ports_of_one_name():
    class TwiceOp(RxOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.input("in")

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), TwiceOp(app, name="rx"))

    _run(compose)


def a_fragment_that_is_none():
    try:
        TxOp(None, name="tx")
    except Exception as error:
        print(type(error).__name__)


def an_operator_of_two_fragments():
    app = Application()
    try:
        TxOp(app, app, name="tx")
    except Exception as error:
        print(type(error).__name__)


def an_operator_without_a_fragment():
    try:
        TxOp(name="tx")
    except Exception as error:
        print(type(error).__name__)


def a_base_that_is_not_called():
    class ForgetfulOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            self.value = 1

        def compute(self, op_input, op_output, context):
            pass

    def compose(app):
        app.add_operator(ForgetfulOp(app, CountCondition(app, 1), name="op"))

    try:
        _run(compose)
    except Exception as error:
        print(type(error).__name__)


def a_flow_of_an_operator_to_itself():
    class SelfOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(op_input.receive("in"), "out")

    def compose(app):
        op = SelfOp(app, name="op")
        app.add_flow(op, op)

    _run(compose)


def one_input_from_two_outputs():
    def compose(app):
        rx = RxOp(app, name="rx")
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx1"), rx)
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx2"), rx)

    _run(compose)
