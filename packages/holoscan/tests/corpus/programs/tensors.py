"""Programs that pass arrays, and notes about them."""

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import Application, MetadataDictionary, MetadataPolicy, Operator, OperatorSpec, Tensor
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


def arrays_by_name():
    class TwoOp(ArrayOp):
        def message(self, context):
            return {"x": np.array([self.count]), "y": np.ones((1, 2), np.uint8)}

    def compose(app):
        app.add_flow(TwoOp(app, CountCondition(app, 2), name="tx"), ShowOp(app, name="rx"))

    _run(compose)


def an_array_by_itself():
    class OneOp(ArrayOp):
        def message(self, context):
            return np.arange(3) * self.count

    class TakeOp(ShowOp):
        def compute(self, op_input, op_output, context):
            message = op_input.receive("in")
            print(type(message).__name__, np.asarray(message).tolist())

    def compose(app):
        app.add_flow(OneOp(app, CountCondition(app, 2), name="tx"), TakeOp(app, name="rx"))

    _run(compose)


def tensors_by_name():
    class TensorOp(ArrayOp):
        def message(self, context):
            return {"t": hs.as_tensor(np.full((2, 2), self.count, np.int16))}

    def compose(app):
        app.add_flow(TensorOp(app, CountCondition(app, 2), name="tx"), ShowOp(app, name="rx"))

    _run(compose)


def a_tensor_by_itself():
    class TensorOp(ArrayOp):
        def message(self, context):
            return hs.as_tensor(np.arange(4, dtype=np.float64))

    class TakeOp(ShowOp):
        def compute(self, op_input, op_output, context):
            message = op_input.receive("in")
            print(isinstance(message, Tensor), np.asarray(message).tolist())

    def compose(app):
        app.add_flow(TensorOp(app, CountCondition(app, 1), name="tx"), TakeOp(app, name="rx"))

    _run(compose)


def an_entity_is_made_and_read():
    class EntityOp(ArrayOp):
        def message(self, context):
            entity = Entity(context)
            entity.add(hs.as_tensor(np.arange(3, dtype=np.uint8) + self.count), "frame")
            entity.add(hs.as_tensor(np.ones((1, 2), np.float32)), "mask")
            print(entity.get("frame").shape, entity.get("missing"))
            return entity

    class GetOp(ShowOp):
        def compute(self, op_input, op_output, context):
            message = op_input.receive("in")
            print(
                np.asarray(message.get("frame")).tolist(), np.asarray(message["mask"]).shape, sorted(message)
            )

    def compose(app):
        app.add_flow(EntityOp(app, CountCondition(app, 2), name="tx"), GetOp(app, name="rx"))

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


def an_entity_that_is_passed_on():
    class EntityOp(ArrayOp):
        def message(self, context):
            entity = Entity(context)
            entity.add(hs.as_tensor(np.arange(2) + self.count), "n")
            return entity

    class MiddleOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            message = op_input.receive("in")
            result = Entity(context)
            result.add(hs.as_tensor(np.asarray(message.get("n")) * 10), "n")
            op_output.emit(result, "out")

    def compose(app):
        tx, mx = EntityOp(app, CountCondition(app, 2), name="tx"), MiddleOp(app, name="mx")
        app.add_flow(tx, mx)
        app.add_flow(mx, ShowOp(app, name="rx"))

    _run(compose)


def facts_of_a_tensor():
    tensor = hs.as_tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    print(isinstance(tensor, Tensor), list(tensor.shape), list(tensor.strides), tensor.ndim, tensor.size)
    print(tensor.nbytes, tensor.itemsize, tensor.is_contiguous())
    print(type(tensor.dtype).__name__, tensor.dtype.bits, tensor.dtype.lanes)
    print(tensor.device.device_id, tensor.__dlpack_device__())
    print(np.asarray(tensor).dtype.name, np.from_dlpack(tensor).sum())


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


def interoperability_of_two_operators():
    class ScaleOp(Operator):
        def __init__(self, fragment, *args, factor=0.5, **kwargs):
            self.factor = factor
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.input("in_tensor")
            spec.output("out_tensor")

        def compute(self, op_input, op_output, context):
            message = op_input.receive("in_tensor")
            print(f"message received (count: {len(message)})")
            out = {}
            for key, value in message.items():
                array = np.asarray(value)
                out[key] = array * self.factor
            op_output.emit(out, "out_tensor")

    def compose(app):
        tx, mx = ArrayOp(app, CountCondition(app, 2), name="tx"), ScaleOp(app, factor=2.0, name="mx")
        app.add_flow(tx, mx)
        app.add_flow(mx, ShowOp(app, name="rx"))

    _run(compose)


def notes_that_travel_with_a_message():
    class NoteOp(ArrayOp):
        def compute(self, op_input, op_output, context):
            self.count += 1
            self.metadata["count"] = self.count
            self.metadata.set("label", f"frame {self.count}")
            op_output.emit(self.count, "out")

    class MiddleOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            self.metadata["middle"] = True
            if value == 2:
                self.metadata.pop("label")
            op_output.emit(value, "out")

    class EndOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            op_input.receive("in")
            print(sorted(self.metadata.items()), self.metadata.get("label", "none"), self.is_metadata_enabled)

    def compose(app):
        tx, mx = NoteOp(app, CountCondition(app, 3), name="tx"), MiddleOp(app, name="mx")
        app.add_flow(tx, mx)
        app.add_flow(mx, EndOp(app, name="rx"))

    _run(compose)


def notes_that_are_switched_off():
    class NoteOp(ArrayOp):
        def compute(self, op_input, op_output, context):
            self.metadata["count"] = 1
            op_output.emit(1, "out")

    class EndOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            op_input.receive("in")
            print(self.is_metadata_enabled, len(self.metadata))

    class App(Application):
        def compose(self):
            self.add_flow(NoteOp(self, CountCondition(self, 1), name="tx"), EndOp(self, name="rx"))

    app = App()
    app.is_metadata_enabled = False
    app.run()


def a_dictionary_of_notes():
    notes, other = MetadataDictionary(), MetadataDictionary()
    notes["a"] = 1
    notes.set("b", [1, 2])
    other["c"] = "text"
    print(notes.size(), sorted(notes.keys()), notes.has_key("a"), notes.get("z", 5), len(notes))
    notes.swap(other)
    print(sorted(notes.keys()), sorted(other.keys()))
    other.merge(notes)
    print(sorted(other.keys()), other.pop("a"), other.erase("b"), sorted(other.keys()))
    print({name: type(value).__name__ for name, value in other.items()}, sorted(other.type_dict()))
    other.clear()
    print(other.size(), MetadataPolicy.RAISE.name)
    try:
        other["missing"]
    except KeyError:
        print("KeyError")


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


def the_time_of_acquisition():
    class StampOp(ArrayOp):
        def compute(self, op_input, op_output, context):
            op_output.emit(1, "out", acq_timestamp=123)

    class MiddleOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            print(op_input.get_acquisition_timestamp("in"))
            op_output.emit(value, "out")

    class EndOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            op_input.receive("in")
            print(op_input.get_acquisition_timestamp("in"))

    def compose(app):
        tx, mx = StampOp(app, CountCondition(app, 1), name="tx"), MiddleOp(app, name="mx")
        app.add_flow(tx, mx)
        app.add_flow(mx, EndOp(app, name="rx"))

    _run(compose)
