"""Programs of sources and sinks: the first ones that everybody writes."""

import argparse
import sys

from holoscan.conditions import CountCondition, PeriodicCondition
from holoscan.core import Application, Fragment, IOSpec, Operator, OperatorSpec, Tracker
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import ManualClock, RealtimeClock, ThreadPool
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler


class ValueData:
    def __init__(self, value):
        self.data = value

    def __repr__(self):
        return f"ValueData({self.data})"


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


def hello_world():
    class HelloOp(Operator):
        def compute(self, op_input, op_output, context):
            print("")
            print("Hello, world")

    class HelloApp(Application):
        def compose(self):
            self.add_operator(HelloOp(self, CountCondition(self, 1), name="hello"))

    app = HelloApp()
    app.run()


def ping_simple():
    class PingApp(Application):
        def compose(self):
            tx = PingTxOp(self, CountCondition(self, 10), name="tx")
            rx = PingRxOp(self, name="rx")
            self.add_flow(tx, rx)

    app = PingApp()
    app.run()


def ping_custom_operator():
    class PingMxOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")
            spec.param("multiplier", 2)

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            print(f"Middle message value: {value}")
            op_output.emit(value * self.multiplier, "out")

    class PingApp(Application):
        def compose(self):
            tx = PingTxOp(self, CountCondition(self, 5), name="tx")
            mx = PingMxOp(self, name="mx", multiplier=3)
            rx = PingRxOp(self, name="rx")
            self.add_flow(tx, mx)
            self.add_flow(mx, rx)

    PingApp().run()


def ping_multi_port():
    class TxOp(Operator):
        def __init__(self, *args, **kwargs):
            self.index = 1
            super().__init__(*args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.output("out1")
            spec.output("out2")

        def compute(self, op_input, op_output, context):
            op_output.emit(ValueData(self.index), "out1")
            op_output.emit(ValueData(self.index + 1), "out2")
            self.index += 2

    class MxOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            self.count = 1
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.input("in1")
            spec.input("in2")
            spec.output("out1")
            spec.output("out2")
            spec.param("multiplier", 2)

        def compute(self, op_input, op_output, context):
            first = op_input.receive("in1")
            second = op_input.receive("in2")
            print(f"Middle message received (count: {self.count}): {first.data} {second.data}")
            self.count += 1
            op_output.emit(ValueData(first.data * self.multiplier), "out1")
            op_output.emit(ValueData(second.data * self.multiplier), "out2")

    class RxOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            self.count = 1
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.param("receivers", kind="receivers")

        def compute(self, op_input, op_output, context):
            values = op_input.receive("receivers")
            print(f"Rx message received (count: {self.count}, size: {len(values)})", values)
            self.count += 1

    class PingApp(Application):
        def compose(self):
            tx = TxOp(self, CountCondition(self, 4), name="tx")
            mx = MxOp(self, name="mx", multiplier=3)
            rx = RxOp(self, name="rx")
            self.add_flow(tx, mx, {("out1", "in1"), ("out2", "in2")})
            self.add_flow(mx, rx, {("out1", "receivers"), ("out2", "receivers")})

    PingApp().run()


def ping_vector():
    class VectorTxOp(Operator):
        def __init__(self, *args, **kwargs):
            self.index = 1
            super().__init__(*args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.output("out1")

        def compute(self, op_input, op_output, context):
            op_output.emit([self.index + i for i in range(5)], "out1")
            self.index += 1

    class VectorMxOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out1")
            spec.output("out2")
            spec.param("multiplier", 2)

        def compute(self, op_input, op_output, context):
            values = op_input.receive("in")
            op_output.emit([value * self.multiplier for value in values], "out1")
            op_output.emit(values, "out2")

    class VectorRxOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("receivers", size=IOSpec.ANY_SIZE)

        def compute(self, op_input, op_output, context):
            print(op_input.receive("receivers"))

    class PingApp(Application):
        def compose(self):
            tx = VectorTxOp(self, CountCondition(self, 3), name="tx")
            mx = VectorMxOp(self, name="mx")
            rx = VectorRxOp(self, name="rx")
            self.add_flow(tx, mx, {("out1", "in")})
            self.add_flow(mx, rx, {("out1", "receivers")})
            self.add_flow(mx, rx, {("out2", "receivers")})

    PingApp().run()


def ping_run_async():
    class PingApp(Application):
        def compose(self):
            self.add_flow(CountTxOp(self, CountCondition(self, 5), name="tx"), PrintOp(self, name="rx"))

    app = PingApp()
    future = app.run_async()
    print("result:", future.result())
    print("done:", future.done())


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


def ping_with_three_schedulers():
    class PingApp(Application):
        def compose(self):
            tx = CountTxOp(self, CountCondition(self, 3), name="tx")
            self.add_flow(tx, PrintOp(self, name="rx"))

    for make in (
        lambda app: GreedyScheduler(app, name="greedy"),
        lambda app: MultiThreadScheduler(app, worker_thread_number=1, stop_on_deadlock=True, name="multi"),
        lambda app: EventBasedScheduler(app, worker_thread_number=1, stop_on_deadlock=True, name="event"),
    ):
        app = PingApp()
        scheduler = make(app)
        app.scheduler(scheduler)
        print(scheduler.name, app.scheduler().name)
        app.run()


def ping_parallel_branches():
    class BranchOp(Operator):
        def __init__(self, fragment, *args, increment=1, **kwargs):
            self.increment = increment
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out_name")
            spec.output("out_val")

        def compute(self, op_input, op_output, context):
            op_output.emit(self.name, "out_name")
            op_output.emit(op_input.receive("in") + self.increment, "out_val")

    class SumOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("names", size=IOSpec.ANY_SIZE)
            spec.input("values", size=IOSpec.ANY_SIZE)

        def compute(self, op_input, op_output, context):
            names = op_input.receive("names")
            values = op_input.receive("values")
            print(f"number of received names: {len(names)} {names}")
            print(f"sum of received values: {sum(values)}")

    class ParallelApp(Application):
        def __init__(self, *args, branches=8, count=1, **kwargs):
            self.branches = branches
            self.count = count
            super().__init__(*args, **kwargs)

        def compose(self):
            tx = CountTxOp(self, CountCondition(self, self.count), name="tx")
            rx = SumOp(self, name="rx")
            for n in range(self.branches):
                branch = BranchOp(self, increment=n, name=f"branch{n:02d}")
                self.add_flow(tx, branch)
                self.add_flow(branch, rx, {("out_val", "values"), ("out_name", "names")})

    app = ParallelApp(branches=6, count=3)
    app.scheduler(EventBasedScheduler(app, worker_thread_number=3, stop_on_deadlock=True))
    app.run()


def ping_tracked():
    class PingApp(Application):
        def compose(self):
            tx = CountTxOp(self, CountCondition(self, 8), name="tx")
            mx = ScaleOp(self, name="mx")
            rx = PrintOp(self, name="rx")
            self.add_flow(tx, mx)
            self.add_flow(mx, rx)

    app = PingApp()
    with Tracker(
        app, filename="logger.log", num_start_messages_to_skip=2, num_last_messages_to_discard=3
    ) as tracker:
        app.run()
        print(tracker.get_num_paths(), tracker.get_path_strings(), tracker.get_metric())
    with open("logger.log") as log:
        lines = log.read().splitlines()
    print([line for line in lines if line.endswith(":")])


def ping_with_the_clock():
    class ClockOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            clock = self.fragment.scheduler().clock
            print(type(clock.time()).__name__)
            begun = clock.timestamp()
            clock.sleep_for(2_000_000)
            clock.sleep_until(begun + 4_000_000)
            print(clock.timestamp() - begun >= 4_000_000, type(begun).__name__)
            op_output.emit(1, "out")

    class PingApp(Application):
        def compose(self):
            tx = ClockOp(self, CountCondition(self, 2), name="tx")
            self.add_flow(tx, PrintOp(self, name="rx"))

    app = PingApp()
    app.scheduler(GreedyScheduler(app, clock=RealtimeClock(app, name="clock"), name="greedy"))
    app.run()


def ping_at_a_period_on_a_manual_clock():
    class StampOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(self.fragment.scheduler().clock.timestamp() // 1_000_000, "out")

    class PingApp(Application):
        def compose(self):
            tx = StampOp(
                self, CountCondition(self, 4), PeriodicCondition(self, recess_period=200_000_000), name="tx"
            )
            self.add_flow(tx, PrintOp(self, name="rx"))

    app = PingApp()
    app.scheduler(GreedyScheduler(app, clock=ManualClock(app, name="clock")))
    app.run()


def ping_with_arguments_of_its_own():
    class PingApp(Application):
        def __init__(self, count):
            super().__init__()
            self.name = "Ping"
            self.count = count

        def compose(self):
            tx = CountTxOp(self, CountCondition(self, self.count), name="tx")
            self.add_flow(tx, PrintOp(self, name="rx"))

    sys.argv = ["ping.py", "--count", "2"]
    parser = argparse.ArgumentParser(description="Ping")
    parser.add_argument("-c", "--count", type=int, default=5)
    args = parser.parse_args()
    app = PingApp(args.count)
    app.run()
    print(app.name, app.argv)


def ping_over_two_fragments():
    class Sender(Fragment):
        def compose(self):
            self.add_operator(CountTxOp(self, CountCondition(self, 5), name="tx"))

    class Taker(Fragment):
        def compose(self):
            self.add_operator(PrintOp(self, name="rx"))

    class DistributedApp(Application):
        def compose(self):
            fragment1 = Sender(self, name="fragment1")
            fragment2 = Taker(self, name="fragment2")
            self.add_flow(fragment1, fragment2, {("tx.out", "rx.in")})

    DistributedApp().run()


def ping_with_the_life_of_an_operator():
    class LifeOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            print("init")
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            print("setup")
            spec.param("gain", 3)

        def initialize(self):
            print("initialize")
            super().initialize()
            print("gain", self.gain)

        def start(self):
            print("start")

        def compute(self, op_input, op_output, context):
            print("compute")

        def stop(self):
            print("stop")

    class LifeApp(Application):
        def compose(self):
            print("compose")
            self.add_operator(LifeOp(self, CountCondition(self, 2), name="life", gain=4))

    app = LifeApp()
    print("made")
    app.run()


def ping_twice_with_one_application():
    class PingApp(Application):
        def compose(self):
            print("compose")
            self.add_flow(CountTxOp(self, CountCondition(self, 2), name="tx"), PrintOp(self, name="rx"))

    app = PingApp()
    app.run()
    app.run()


def ping_of_every_plain_type():
    values = [1, 2.5, "text", None, True, (1, 2), [3, 4], {"a": 1}, b"bytes", {1, 2}]

    class ManyTxOp(Operator):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.values = iter(values)

        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(next(self.values), "out")

    class PingApp(Application):
        def compose(self):
            tx = ManyTxOp(self, CountCondition(self, len(values)), name="tx")
            self.add_flow(tx, PrintOp(self, name="rx"))

    PingApp().run()
