"""Tensors between operators that use NumPy, CuPy and PyTorch; several in one message; metadata beside them."""

from argparse import ArgumentParser

import cupy as cp
import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import PingTensorRxOp, PingTensorTxOp
from holoscan.resources import UnboundedAllocator

import holoscan as hs


class NumpyTxOp(Operator):
    def __init__(self, fragment, *args, shape=(3, 4), **kwargs):
        self.shape = shape
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        self.count += 1
        data = np.full(self.shape, self.count, np.float32)
        self.metadata["count"] = self.count
        op_output.emit({"image": data, "labels": np.arange(3, dtype=np.int32)}, "out")


class CupyOp(Operator):
    """Doubles every tensor of the map."""

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        out = {name: 2 * cp.asarray(tensor) for name, tensor in message.items()}
        op_output.emit(out, "out")


class AddOneOp(Operator):
    """Adds one, with PyTorch or NumPy."""

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("library", "numpy")

    def compute(self, op_input, op_output, context):
        tensor = op_input.receive("in")["image"]
        if self.library == "torch":
            import torch

            result = torch.from_dlpack(tensor) + 1
        else:
            result = cp.asnumpy(cp.asarray(tensor)) + 1
        op_output.emit(hs.as_tensor(result), "out")


class RxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        tensor = op_input.receive("in")
        if isinstance(tensor, dict):
            tensor = tensor[""]
        values = cp.asnumpy(cp.asarray(tensor))
        print(values.shape, values.dtype, float(values.min()), float(values.max()), self.metadata["count"])


class InteropApp(Application):
    def __init__(self, *args, library="numpy", **kwargs):
        self.library = library
        super().__init__(*args, **kwargs)

    def compose(self):
        self.enable_metadata(True)
        tx = NumpyTxOp(self, CountCondition(self, 3), name="tx")
        middle, rx = CupyOp(self, name="cupy"), RxOp(self, name="rx")
        add_one = AddOneOp(self, name="add_one", library=self.library)
        self.add_flow(tx, middle)
        self.add_flow(middle, add_one)
        self.add_flow(add_one, rx)
        native_tx = PingTensorTxOp(
            self,
            CountCondition(self, 2),
            allocator=UnboundedAllocator(self, name="allocator"),
            storage_type="host",
            rows=4,
            columns=5,
            dtype="float32",
            tensor_name="raw",
            name="native_tx",
        )
        self.add_flow(native_tx, PingTensorRxOp(self, name="native_rx"))


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--library", choices=["numpy", "torch"], default="numpy")
    InteropApp(library=parser.parse_args().library).run()
