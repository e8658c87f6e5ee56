"""Programs with a mistake in them: which are refused, when and how, and which run."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, IOSpec, Operator, OperatorSpec


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


def a_misspelled_port_that_nobody_catches():
    def compose(app):
        tx, rx = TxOp(app, CountCondition(app, 1), name="tx"), RxOp(app, name="rx")
        app.add_flow(tx, rx, {("outt", "in")})

    _run(compose)


def an_ambiguous_flow():
    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), TwoOp(app, name="two"))

    _run(compose)


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
