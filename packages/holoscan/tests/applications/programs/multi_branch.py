"""One source, two branches of different lengths, and one receiver for both; results of every branch in order."""

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.resources import CudaStreamPool


class ImageTxOp(Operator):
    def __init__(self, *args, **kwargs):
        self.index = 0
        super().__init__(*args, **kwargs)

    def setup(self, spec):
        spec.output("image")

    def compute(self, op_input, op_output, context):
        self.index += 1
        op_output.emit({"image": np.full((2, 2), self.index, np.int64)}, "image")


class AddOp(Operator):
    def __init__(self, fragment, *args, amount=1, **kwargs):
        self.amount = amount
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        image = np.asarray(op_input.receive("in")["image"])
        op_output.emit({self.name: image + self.amount}, "out")


class RenameOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("name_of_output", "image")

    def compute(self, op_input, op_output, context):
        (tensor,) = op_input.receive("in").values()
        op_output.emit({self.name_of_output: tensor}, "out")


class CollectOp(Operator):
    def setup(self, spec):
        spec.param("receivers", kind="receivers")

    def compute(self, op_input, op_output, context):
        found = {}
        for message in op_input.receive("receivers"):
            found.update({name: int(np.asarray(tensor).sum()) for name, tensor in message.items()})
        print(dict(sorted(found.items())))


class BranchApp(Application):
    def compose(self):
        pool = CudaStreamPool(self, 0, 0, 0, 1, 5, name="pool")
        source = ImageTxOp(self, CountCondition(self, count=3), name="source")
        left = AddOp(self, pool, amount=10, name="left")
        right = AddOp(self, amount=100, name="right")
        longer = RenameOp(self, name="longer", name_of_output="renamed")
        collect = CollectOp(self, name="collect")
        self.add_flow(source, left)
        self.add_flow(source, right, {("image", "in")})
        self.add_flow(right, longer)
        self.add_flow(left, collect, {("out", "receivers")})
        self.add_flow(longer, collect, {("", "receivers")})
        self.add_flow(source, collect, {("", "receivers")})


def main():
    app = BranchApp()
    app.run()


if __name__ == "__main__":
    main()
