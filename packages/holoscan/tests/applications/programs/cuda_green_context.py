"""The second program of the green-context example: an operator whose stream is ordered after two sources."""

from argparse import ArgumentParser

import cupy as cp
from holoscan.conditions import CountCondition, CudaStreamCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import PingTensorRxOp
from holoscan.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from holoscan.schedulers import EventBasedScheduler


class CuPySourceOp(Operator):
    """Computes a tensor on a stream that it allocates itself."""

    def __init__(self, fragment, *args, width=64, height=48, use_default_stream=False, **kwargs):
        self.width = width
        self.height = height
        self.use_default_stream = use_default_stream
        # Need to call the base class constructor last
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def make(self):
        tensor = cp.linspace(0, 10, self.height * self.width, dtype=cp.float32)
        return cp.exp(tensor.reshape((self.height, self.width)))

    def compute(self, op_input, op_output, context):
        if self.use_default_stream:
            cp_tensor = self.make()
        else:
            stream = context.allocate_cuda_stream("my_stream")
            with cp.cuda.ExternalStream(stream):
                cp_tensor = self.make()
            op_output.set_cuda_stream(stream, "out")
        op_output.emit(cp_tensor, "out")


class CuPyProcessOp(Operator):
    """Multiplies what two sources sent, and adds it up."""

    def __init__(self, fragment, *args, use_default_stream=False, **kwargs):
        self.use_default_stream = use_default_stream
        self.streams = set()
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("in1")
        spec.input("in2")
        spec.output("out")

    def stop(self):
        print(f"{len(self.streams)} stream")

    def compute(self, op_input, op_output, context):
        tensor1 = op_input.receive("in1")
        tensor2 = op_input.receive("in2")
        if self.use_default_stream:
            partial_sum = (cp.asarray(tensor1) * cp.asarray(tensor2)).sum(axis=-1)
        else:
            # The internal stream, which comes after the streams of both inputs.
            stream = op_input.receive_cuda_stream("in1")
            stream2 = op_input.receive_cuda_stream("in2")
            assert stream2 == stream
            self.streams.add(stream)
            with cp.cuda.ExternalStream(stream):
                in1, in2 = cp.asarray(tensor1), cp.asarray(tensor2)
                partial_sum = (in1 * in2).sum(axis=-1)
        op_output.emit(partial_sum, "out", emitter_name="holoscan::Tensor")


class CheckOp(Operator):
    """Compares the sums with NumPy's."""

    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        received = op_input.receive("in")
        stream = op_input.receive_cuda_stream("in")
        with cp.cuda.ExternalStream(stream):
            sums = cp.asarray(received)
            expected = cp.exp(cp.linspace(0, 10, 48 * 64, dtype=cp.float32).reshape((48, 64)))
            right = cp.allclose(sums, (expected * expected).sum(axis=-1), rtol=1e-4)
        print(f"right: {bool(right)}")


class CuPyExampleApp(Application):
    def __init__(self, *args, count=10, use_default_stream=False, use_green_context=False, **kwargs):
        self.count = count
        self.use_default_stream = use_default_stream
        self.use_green_context = use_green_context
        super().__init__(*args, **kwargs)

    def compose(self):
        cuda_green_context = None
        if self.use_green_context:
            partitions = [8, 8]
            cuda_green_context_pool = CudaGreenContextPool(
                self,
                dev_id=0,
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
        streams, conditions = [], []
        if not self.use_default_stream:
            stream_pool = CudaStreamPool(
                self,
                name="stream_pool",
                dev_id=0,
                stream_flags=0,
                stream_priority=0,
                reserved_size=1,
                max_size=5,
                cuda_green_context=cuda_green_context,
            )
            streams = [stream_pool]
            conditions = [CudaStreamCondition(self, receiver="in", name="stream_sync")]
        source1, source2 = (
            CuPySourceOp(
                self,
                *streams,
                CountCondition(self, self.count, name=f"{name}_count"),
                use_default_stream=self.use_default_stream,
                name=name,
            )
            for name in ("source1", "source2")
        )
        proc_op = CuPyProcessOp(
            self, *streams, use_default_stream=self.use_default_stream, name="combine_and_sum"
        )
        rx = PingTensorRxOp(self, *conditions, *streams, name="rx")
        check = CheckOp(self, *streams, name="check")
        self.add_flow(source1, proc_op, {("out", "in1")})
        self.add_flow(source2, proc_op, {("out", "in2")})
        self.add_flow(proc_op, rx)
        self.add_flow(proc_op, check)


def main():
    parser = ArgumentParser(description="Operator stream handling example")
    parser.add_argument(
        "-d", "--default_stream", action="store_true", help="use the default stream everywhere"
    )
    parser.add_argument("-g", "--green_context", action="store_true", help="use a green context")
    parser.add_argument("-c", "--count", type=int, default=10, help="the number of messages to transmit")
    args = parser.parse_args()
    if args.count < 1:
        raise ValueError("count must be a positive integer")
    app = CuPyExampleApp(
        count=args.count, use_default_stream=args.default_stream, use_green_context=args.green_context
    )
    app.scheduler(EventBasedScheduler(app, worker_thread_number=3, name="event-based-scheduler"))
    app.run()


if __name__ == "__main__":
    main()
