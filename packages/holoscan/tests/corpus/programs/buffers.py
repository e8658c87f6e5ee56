"""Programs about queues and what lies between two operators."""

from holoscan.conditions import CountCondition, PeriodicCondition
from holoscan.core import Application, ConditionType, IOSpec, Operator, OperatorSpec
from holoscan.resources import ManualClock
from holoscan.schedulers import GreedyScheduler


class TxOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input, op_output, context):
        self.count += 1
        op_output.emit(self.count, "out")


class RxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input, op_output, context):
        print(op_input.receive("in"))


def _run(compose, *, manual=False):
    class App(Application):
        pass

    App.compose = compose
    app = App()
    if manual:
        app.scheduler(GreedyScheduler(app, clock=ManualClock(app)))
    app.run()


def _rates(writer, reader, writes, reads, connect):
    def compose(app):
        tx = TxOp(app, CountCondition(app, writes), PeriodicCondition(app, writer * 1_000_000), name="tx")
        rx = RxOp(app, CountCondition(app, reads), PeriodicCondition(app, reader * 1_000_000), name="rx")
        connect(app, tx, rx)

    _run(compose, manual=True)


def a_fast_reader_of_an_asynchronous_buffer():
    def connect(app, tx, rx):
        app.add_flow(tx, rx, IOSpec.ConnectorType.ASYNC_BUFFER)

    _rates(100, 50, 4, 10, connect)


def a_slow_reader_of_an_asynchronous_buffer():
    def connect(app, tx, rx):
        app.add_flow(tx, rx, {("out", "in")}, IOSpec.ConnectorType.ASYNC_BUFFER)

    _rates(20, 100, 20, 5, connect)


def connectors_with_a_capacity():
    class LongOp(Operator):
        def setup(self, spec: OperatorSpec):
            port = spec.input("in").connector(IOSpec.ConnectorType.DOUBLE_BUFFER, capacity=4, policy=0)
            port.condition(ConditionType.MESSAGE_AVAILABLE, min_size=3)
            print(port.connector_type, port.name)

        def compute(self, op_input, op_output, context):
            print(op_input.receive("in"), self.receiver("in").capacity)

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 6), name="tx"), LongOp(app, name="rx"))

    _run(compose)


def _dropping(policy):
    class FreeOp(TxOp):
        def setup(self, spec: OperatorSpec):
            spec.output("out").condition(ConditionType.NONE)

    class QueueOp(RxOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in", policy=policy)

    def compose(app):
        tx = FreeOp(app, CountCondition(app, 6), PeriodicCondition(app, 10_000_000), name="tx")
        app.add_flow(tx, QueueOp(app, PeriodicCondition(app, 35_000_000), name="rx"))

    _run(compose, manual=True)


def the_oldest_is_dropped():
    _dropping(IOSpec.QueuePolicy.POP)


def the_newest_is_dropped():
    _dropping(IOSpec.QueuePolicy.REJECT)


def queue_policies_of_an_operator():
    def compose(app):
        tx, rx = TxOp(app, CountCondition(app, 3), name="tx"), RxOp(app, name="rx")
        tx.queue_policy("out", IOSpec.IOType.OUTPUT, IOSpec.QueuePolicy.POP)
        rx.queue_policy("in", port_type=IOSpec.IOType.INPUT, policy=IOSpec.QueuePolicy.REJECT)
        try:
            rx.queue_policy("none", IOSpec.IOType.INPUT, IOSpec.QueuePolicy.POP)
        except RuntimeError:
            print("RuntimeError")
        app.add_flow(tx, rx)

    _run(compose)


def any_size_without_a_condition_waits():
    class GatherOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("receivers", size=IOSpec.ANY_SIZE).condition(ConditionType.NONE)

        def compute(self, op_input, op_output, context):
            print(op_input.receive("receivers"))

    def compose(app):
        rx = GatherOp(app, name="rx")
        for n in (2, 3):
            app.add_flow(TxOp(app, CountCondition(app, n), name=f"tx{n}"), rx, {("out", "receivers")})

    _run(compose)


def facts_of_ports():
    class FactsOp(Operator):
        def setup(self, spec: OperatorSpec):
            port = spec.input("in", size=IOSpec.ANY_SIZE)
            print(port.name, port.io_type.name, int(IOSpec.ANY_SIZE), int(IOSpec.SIZE_ONE))
            print(int(IOSpec.PRECEDING_COUNT), IOSpec.IOSize(3).size, port.queue_size)
            out = spec.output("out", policy=IOSpec.QueuePolicy.POP)
            print(out.name, out.io_type.name, out.queue_policy, out.connector_type.name)
            print(sorted(spec.inputs), sorted(spec.outputs))

        def compute(self, op_input, op_output, context):
            op_output.emit(len(op_input.receive("in")), "out")

    def compose(app):
        op = FactsOp(app, name="facts")
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), op, {("out", "in")})
        app.add_flow(op, RxOp(app, name="rx"))

    _run(compose)


def receivers_and_transmitters():
    class LookOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in", size=3).condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            spec.output("out")

        def compute(self, op_input, op_output, context):
            receiver = self.receiver("in")
            print(receiver.size, receiver.back_size, receiver.capacity, self.receiver("none"))
            print(op_input.receive("in"), receiver.size)
            print(self.transmitter("out").capacity, self.transmitter("none"))
            op_output.emit(1, "out")

    def compose(app):
        look = LookOp(app, name="look")
        print(look.receiver("in"), look.transmitter("out"))
        app.add_flow(TxOp(app, CountCondition(app, 4), name="tx"), look)
        app.add_flow(look, RxOp(app, name="rx"))

    _run(compose)


def a_full_queue_is_a_fault():
    try:
        _dropping(IOSpec.QueuePolicy.FAULT)
    except RuntimeError:
        print("RuntimeError")
