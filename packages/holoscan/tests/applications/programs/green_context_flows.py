"""The first program of the green-context example, in Python: two flows, each on its own part of the GPU."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.operators import PingRxOp
from holoscan.resources import CudaGreenContext, CudaGreenContextPool, CudaStreamPool
from holoscan.schedulers import EventBasedScheduler


class PingTxOp(Operator):
    """Counts, and reserves a stream of its pool for the work that a real operator would have."""

    def __init__(self, fragment, *args, **kwargs):
        self.index = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        stream = context.allocate_cuda_stream("tx_stream")
        assert context.device_from_stream(stream) == 0
        op_output.set_cuda_stream(stream, "out")
        self.index += 1
        op_output.emit(self.index, "out")


class GreenContextApp(Application):
    def compose(self):
        partitions = [8, 8]
        cuda_green_context_pool = CudaGreenContextPool(
            self,
            dev_id=0,
            flags=0,
            num_partitions=2,
            sms_per_partition=partitions,
            name="cuda_green_context_pool",
        )
        for index in range(len(partitions)):
            cuda_green_context = CudaGreenContext(
                self,
                cuda_green_context_pool=cuda_green_context_pool,
                index=index,
                name=f"cuda_green_context_{index}",
            )
            stream_pool = CudaStreamPool(
                self,
                name=f"stream_pool_{index}",
                dev_id=0,
                stream_flags=0,
                stream_priority=0,
                reserved_size=1,
                max_size=5,
                cuda_green_context=cuda_green_context,
            )
            tx = PingTxOp(self, CountCondition(self, 10), stream_pool, name=f"tx{index}")
            rx = PingRxOp(self, name=f"rx{index}")
            self.add_flow(tx, rx)


def main():
    app = GreenContextApp()
    app.scheduler(EventBasedScheduler(app, worker_thread_number=2, name="event-based"))
    app.run()


if __name__ == "__main__":
    main()
