"""The snippets of the page on CUDA stream handling, each in an operator around it."""

import cupy as cp
from holoscan.conditions import CountCondition, CudaStreamCondition
from holoscan.core import Application, IOSpec, Operator, OperatorSpec
from holoscan.operators import HolovizOp
from holoscan.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool


class SourceOp(Operator):
    """ "ExecutionContext: additional stream handling methods": allocate_cuda_stream and set_cuda_stream."""

    def __init__(self, fragment, *args, **kwargs):
        self.number = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        my_stream_ptr = context.allocate_cuda_stream("my_stream")
        assert my_stream_ptr == context.allocate_cuda_stream("my_stream")
        # some custom code using the CUDA stream here
        with cp.cuda.ExternalStream(my_stream_ptr):
            image = cp.full((8, 8), self.number, dtype=cp.float32)
        self.number += 1
        # emit the allocated stream on the "out" port
        op_output.set_cuda_stream(my_stream_ptr, "out")
        op_output.emit({"image": image}, "out")


class SimpleOp(Operator):
    """ "Simplified CUDA streams handling via receive_cuda_stream"."""

    def setup(self, spec: OperatorSpec):
        spec.input("receiver")
        spec.output("tensor")

    def compute(self, op_input, op_output, context):
        # Process input message
        in_message = op_input.receive("receiver")
        if in_message is None:
            raise RuntimeError("No message available")

        # Get the CUDA stream from the input message if present, otherwise generate one.
        # This stream will also be transmitted on the "tensor" output port.
        cuda_stream_ptr = op_input.receive_cuda_stream("receiver", allocate=True, sync_to_default=False)

        with cp.cuda.ExternalStream(cuda_stream_ptr):
            result = cp.asarray(in_message["image"]) + 1
        op_output.emit({"image": result}, "tensor")


class WithoutPoolOp(Operator):
    """ "Using receive_cuda_stream without a stream pool available": it has a stream all the same."""

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        (incoming,) = op_input.receive_cuda_streams("in")
        stream = op_input.receive_cuda_stream("in", allocate=False)
        assert incoming
        assert stream
        with cp.cuda.ExternalStream(stream):
            result = 2 * cp.asarray(message["image"])
        op_output.emit({"image": result}, "out")


class ManualOp(Operator):
    """ "InputContext: additional stream handling methods": receive_cuda_streams and synchronize_streams."""

    def setup(self, spec: OperatorSpec):
        spec.input("receivers", size=IOSpec.ANY_SIZE)
        spec.output("out")

    def compute(self, op_input, op_output, context):
        tensors = op_input.receive("receivers")
        if tensors is None:
            raise RuntimeError("No message available on 'receivers' input")

        cuda_stream_ptrs = op_input.receive_cuda_streams("receivers")

        assert len(cuda_stream_ptrs) == len(tensors) == 2
        target = context.allocate_cuda_stream("target")
        context.synchronize_streams(cuda_stream_ptrs, target)
        assert context.device_from_stream(target) == 0
        with cp.cuda.ExternalStream(target):
            total = cp.asarray(tensors[0]["image"]) + cp.asarray(tensors[1]["image"])
        op_output.set_cuda_stream(target, "out")
        op_output.emit({"image": total}, "out")


class MyOperator(Operator):
    """ "Using CudaStreamCondition to require stream work to complete before an operator executes"."""

    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("label", "")

    def compute(self, op_input, op_output, context):
        message = op_input.receive("in")
        image = cp.asnumpy(cp.asarray(message["image"]))
        print(f"{self.label} {image.min():g} {image.max():g}")
        op_output.emit({"image": cp.asarray(image)}, "out")


class StreamsApp(Application):
    def compose(self):
        # Create a stream pool with a 5 streams capacity (5 operators could share the same pool)
        cuda_stream_pool = CudaStreamPool(
            self,
            name="stream_pool",
            dev_id=0,
            stream_flags=0,
            stream_priority=0,
            reserved_size=1,
            max_size=5,
        )
        source = SourceOp(self, cuda_stream_pool, CountCondition(self, 5), name="source")

        partitions = [8, 8]
        cuda_green_context_pool = CudaGreenContextPool(
            self,
            dev_id=0,
            flags=0,
            num_partitions=2,
            sms_per_partition=partitions,
            name="cuda_green_context_pool",
        )
        cuda_green_context = CudaGreenContext(
            self,
            cuda_green_context_pool=cuda_green_context_pool,
            index=1,
            name="cuda_green_context",
        )
        stream_pool = CudaStreamPool(
            self,
            name="green_stream_pool",
            dev_id=0,
            stream_flags=0,
            stream_priority=0,
            reserved_size=1,
            max_size=5,
            cuda_green_context=cuda_green_context,
        )
        simple = SimpleOp(self, stream_pool, name="simple")
        without_pool = WithoutPoolOp(self, name="without_pool")

        # Alternatively, the argument can be added via `add_arg` after operator construction
        manual = ManualOp(self, name="manual")
        manual.add_arg(cuda_stream_pool)

        # assuming the Operator has a port named "in", we can create the condition
        stream_cond = CudaStreamCondition(self, receiver="in", name="stream_sync")
        my_kwargs = {"label": "sum"}

        # the condition is then passed as a positional argument to an Operator's constructor
        my_op = MyOperator(
            self,
            stream_cond,
            **my_kwargs,
            name="my_op",
        )
        visualizer = HolovizOp(
            self,
            name="holoviz",
            cuda_stream_pool=CudaStreamPool(self, 0, 0, 0, 1, 5),
            width=8,
            height=8,
            headless=True,
            tensors=[{"name": "image", "type": "color", "image_format": "r32_sfloat"}],
        )
        self.add_flow(source, simple, {("out", "receiver")})
        self.add_flow(source, without_pool, {("out", "in")})
        self.add_flow(simple, manual, {("tensor", "receivers")})
        self.add_flow(without_pool, manual, {("out", "receivers")})
        self.add_flow(manual, my_op)
        self.add_flow(my_op, visualizer, {("out", "receivers")})


if __name__ == "__main__":
    StreamsApp().run()
