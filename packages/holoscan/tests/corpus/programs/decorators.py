"""Programs whose operators are functions."""

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, ConditionType, IOSpec, Operator, OperatorSpec
from holoscan.decorator import Input, Output, create_op


class PrintOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        if hasattr(message, "items"):
            message = {name: np.asarray(tensor).tolist() for name, tensor in message.items()}
        print(self.name, message)


def _run(compose):
    class App(Application):
        pass

    App.compose = compose
    App().run()


def functions_as_operators():
    @create_op(outputs="out")
    def source():
        return 4

    @create_op(inputs="value", outputs="out")
    def double(value):
        return value * 2

    @create_op(inputs="value")
    def sink(value):
        print("sink", value)

    def compose(app):
        tx = source(app, CountCondition(app, 2), name="source")
        mx, rx = double(app, name="double"), sink(app, name="sink")
        app.add_flow(tx, mx, {("out", "value")})
        app.add_flow(mx, rx, {("out", "value")})

    _run(compose)


def a_bare_decorator():
    @create_op
    def source():
        return "text"

    @create_op
    def join(first, second):
        print(first, second)

    def compose(app):
        one = source(app, CountCondition(app, 2), name="one")
        two = source(app, CountCondition(app, 2), name="two")
        rx = join(app, name="join")
        app.add_flow(one, rx, {("", "first")})
        app.add_flow(two, rx, {("", "second")})

    _run(compose)


def keywords_fill_arguments():
    @create_op(inputs="value", outputs="out")
    def scale(value, factor, offset=1):
        return value * factor + offset

    @create_op(outputs="out")
    def source():
        return 5

    def compose(app):
        tx = source(app, CountCondition(app, 1), name="tx")
        mx = scale(app, factor=3, name="mx")
        app.add_flow(tx, mx, {("out", "value")})
        app.add_flow(mx, PrintOp(app, name="rx"), {("out", "in")})
        try:
            scale(app, name="incomplete")
        except ValueError:
            print("ValueError: factor is missing")
        scale(app, factor=1, surplus=2, name="surplus")
        try:
            scale(factor=1)
        except Exception as error:
            print(type(error).__name__, "no fragment")

    _run(compose)


def a_class_as_an_operator():
    @create_op(inputs="value", outputs="out")
    class Adder:
        def __init__(self, k=1):
            self.k = k
            self.calls = 0

        def __call__(self, value):
            self.calls += 1
            return value + self.k + self.calls

    @create_op(outputs="out")
    def numbers():
        yield from (1, 2, 3)

    def compose(app):
        adder = Adder(k=10)(app, name="adder")
        app.add_flow(numbers(app, name="numbers"), adder, {("out", "value")})
        app.add_flow(adder, PrintOp(app, name="sink"), {("out", "in")})

    _run(compose)


class _TensorsOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit({"image": np.arange(4, dtype=np.uint8), "mask": np.ones(2, np.float32)}, "out")


def a_tensor_map_is_split():
    @create_op(
        inputs=Input("in", arg_map={"image": "picture", "mask": "weight"}),
        outputs=(Output("one", tensor_names=("inverted",)), Output("two", tensor_names=("sum",))),
    )
    def split(picture, weight):
        print(type(picture).__name__, picture.tolist(), weight.tolist())
        return {"inverted": 255 - picture, "sum": np.array([weight.sum()])}

    def compose(app):
        tx = _TensorsOp(app, CountCondition(app, 1), name="tx")
        mx = split(app, name="split")
        app.add_flow(tx, mx)
        app.add_flow(mx, PrintOp(app, name="rx1"), {("one", "in")})
        app.add_flow(mx, PrintOp(app, name="rx2"), {("two", "in")})

    _run(compose)


def one_tensor_in_one_tensor_out():
    @create_op(inputs="tensor", outputs="out_tensor")
    def invert(tensor):
        return 255 - tensor

    @create_op(inputs=Input("in", arg_map="tensor"), outputs=Output("out", tensor_names=("frame",)))
    def info(tensor):
        print(f"shape = {tensor.shape}, dtype = {tensor.dtype.name}")
        return tensor

    class ImageOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.output("output")

        def compute(self, op_input, op_output, context):
            op_output.emit({"": np.zeros((2, 3), np.uint8)}, "output")

    def compose(app):
        tx = ImageOp(app, CountCondition(app, 2), name="replayer")
        invert_op, info_op = invert(app, name="invert"), info(app, name="info")
        app.add_flow(tx, invert_op, {("output", "tensor")})
        app.add_flow(invert_op, info_op, {("out_tensor", "in")})
        app.add_flow(info_op, PrintOp(app, name="holoviz"), {("out", "in")})

    _run(compose)


def the_operator_as_an_argument():
    @create_op(op_param="self", outputs="output")
    def counter(self):
        if not hasattr(self, "value"):
            self.value = 0
        self.value += 1
        print(f"{self.name} - Sending value {self.value}")
        return self.value

    @create_op(
        op_param="self",
        inputs=Input("input", arg_map="value", policy=IOSpec.QueuePolicy.POP),
        outputs=Output("output", condition_type=ConditionType.NONE),
    )
    def throttle(self, value):
        if value is not None:
            return value

    def compose(app):
        tx, mx = counter(app, CountCondition(app, 3), name="counter"), throttle(app, name="throttle")
        app.add_flow(tx, mx)
        app.add_flow(mx, PrintOp(app, name="rx"))

    _run(compose)


def several_results():
    @create_op(outputs=("first", "second"))
    def pair():
        return 1, "two"

    def compose(app):
        tx = pair(app, CountCondition(app, 2), name="pair")
        app.add_flow(tx, PrintOp(app, name="a"), {("first", "in")})
        app.add_flow(tx, PrintOp(app, name="b"), {("second", "in")})

    _run(compose)


def a_tuple_of_another_length_than_the_outputs():
    @create_op(outputs=("first", "second"))
    def three():
        return 1, 2, 3

    def compose(app):
        tx = three(app, CountCondition(app, 2), name="three")
        app.add_flow(tx, PrintOp(app, name="a"), {("first", "in")})
        app.add_flow(tx, PrintOp(app, name="b"), {("second", "in")})

    try:
        _run(compose)
    except ValueError as error:
        print(*str(error).splitlines()[:3], sep="\n")
