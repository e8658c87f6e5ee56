"""Programs that pass arrays, and notes about them."""

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, MetadataPolicy, Operator, OperatorSpec, Tensor
from holoscan.gxf import Entity
from holoscan.operators import PingTensorRxOp, PingTensorTxOp

import holoscan as hs


class ArrayOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def message(self, context):
        return {"a": np.arange(6, dtype=np.float32).reshape(2, 3) + self.count}

    def compute(self, op_input, op_output, context):
        self.count += 1
        op_output.emit(self.message(context), "out")


class ShowOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        for name in sorted(message):
            array = np.asarray(message[name])
            print(
                repr(name),
                hasattr(message[name], "__dlpack__"),
                array.dtype.name,
                array.shape,
                array.ravel().tolist(),
            )


def _run(compose):
    class App(Application):
        pass

    App.compose = compose
    App().run()


def tensors_by_name():
    class TensorOp(ArrayOp):
        def message(self, context):
            return {"t": hs.as_tensor(np.full((2, 2), self.count, np.int16))}

    def compose(app):
        app.add_flow(TensorOp(app, CountCondition(app, 2), name="tx"), ShowOp(app, name="rx"))

    _run(compose)


def an_entity_without_a_name():
    class EntityOp(ArrayOp):
        def message(self, context):
            entity = Entity(context)
            entity.add(hs.as_tensor(np.arange(4, dtype=np.uint8)))
            return entity

    class GetOp(ShowOp):
        def compute(self, op_input, op_output, context):
            message = op_input.receive("in")
            tensor = message.get("")
            print(tensor is not None, np.asarray(tensor).tolist())

    def compose(app):
        app.add_flow(EntityOp(app, CountCondition(app, 1), name="tx"), GetOp(app, name="rx"))

    _run(compose)


def other_ways_to_a_tensor():
    array = np.arange(4)
    for make in (Tensor.as_tensor, Tensor.from_dlpack, hs.as_tensor):
        tensor = make(array)
        print(isinstance(tensor, Tensor), np.asarray(tensor).tolist())
    array[0] = 9
    print(np.asarray(tensor).tolist())
    try:
        hs.as_tensor([1, 2])
    except RuntimeError:
        print("RuntimeError")


def a_tensor_ping_with_its_receiver():
    def compose(app):
        tx = PingTensorTxOp(app, CountCondition(app, 3), name="tx", rows=2, storage_type="system")
        app.add_flow(tx, PingTensorRxOp(app, name="rx"))

    _run(compose)
    print("ended")


def notes_of_two_inputs_with_one_key():
    class NoteOp(ArrayOp):
        def compute(self, op_input, op_output, context):
            self.metadata["source"] = self.name
            op_output.emit(self.name, "out")

    class JoinOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in1")
            spec.input("in2")

        def compute(self, op_input, op_output, context):
            op_input.receive("in1")
            op_input.receive("in2")
            print(self.metadata["source"])

    def make(policy):
        def compose(app):
            rx = JoinOp(app, name="rx")
            if policy is not None:
                rx.metadata_policy = policy
            for n in (1, 2):
                app.add_flow(NoteOp(app, CountCondition(app, 1), name=f"tx{n}"), rx, {("out", f"in{n}")})

        return compose

    for policy in (MetadataPolicy.UPDATE, MetadataPolicy.REJECT, MetadataPolicy.RAISE):
        try:
            _run(make(policy))
        except RuntimeError:
            print("RuntimeError", policy.name)
