"""Programs of sources and sinks: the first ones that everybody writes."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec
from holoscan.resources import ThreadPool
from holoscan.schedulers import EventBasedScheduler, MultiThreadScheduler


class CountTxOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        self.count += 1
        op_output.emit(self.count, "out")


class ScaleOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")
        spec.param("factor", 2)

    def compute(self, op_input, op_output, context):
        value = op_input.receive("in")
        print(f"{self.name}: {value} * {self.factor}")
        op_output.emit(value * self.factor, "out")


class PrintOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print(f"{self.name} got {op_input.receive('in')}")


def ping_thread_pool():
    class PingApp(Application):
        def compose(self):
            tx = CountTxOp(self, CountCondition(self, 4), name="tx")
            rx = PrintOp(self, name="rx")
            self.add_flow(tx, rx)
            pool = self.make_thread_pool("pool1", 1)
            pool.add(tx, True)
            pool.add(rx, pin_operator=True)
            print(isinstance(pool, ThreadPool), pool.name, [op.name for op in pool.operators])

    app = PingApp()
    app.scheduler(EventBasedScheduler(app, worker_thread_number=2, stop_on_deadlock=True, name="ebs"))
    app.run()


def ping_thread_pools_from_a_list():
    class PingApp(Application):
        def compose(self):
            tx = CountTxOp(self, CountCondition(self, 4), name="tx")
            mx = ScaleOp(self, name="mx")
            rx = PrintOp(self, name="rx")
            self.add_flow(tx, mx)
            self.add_flow(mx, rx)
            pool = self.make_thread_pool("pool1", 2)
            pool.add([tx, mx], True)
            print(len(pool.operators))

    app = PingApp()
    app.scheduler(MultiThreadScheduler(app, worker_thread_number=2, name="multithread"))
    app.run()
