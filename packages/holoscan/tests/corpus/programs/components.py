"""Programs that look at components: what they list, how they are described, and what they refuse."""

from holoscan.conditions import (
    AsynchronousCondition,
    BooleanCondition,
    CountCondition,
    CudaBufferAvailableCondition,
    CudaEventCondition,
    DownstreamMessageAffordableCondition,
    MemoryAvailableCondition,
    MessageAvailableCondition,
    PeriodicCondition,
    PublisherAvailableCondition,
    SubscriberAvailableCondition,
)
from holoscan.core import (
    Application,
    ArgContainerType,
    ArgElementType,
    ArgList,
    ArgType,
    Component,
    ConditionType,
    Fragment,
    IOSpec,
    NetworkContext,
    Operator,
    Resource,
    Scheduler,
    Subgraph,
    arg_to_py_object,
    py_object_to_arg,
)
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import (
    Allocator,
    AsyncBufferReceiver,
    CudaStreamPool,
    DoubleBufferReceiver,
    ManualClock,
    OrConditionCombiner,
    SchedulingPolicy,
    StdEntitySerializer,
    ThreadPool,
    UcxReceiver,
    UcxSerializationBuffer,
    UcxTransmitter,
    UnboundedAllocator,
)
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler


class TickOp(Operator):
    def compute(self, op_input, op_output, context):
        print(self.name, isinstance(self.async_condition, AsynchronousCondition))


def _refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return "accepted"


def _set(target, name):
    return _refused(setattr, target, name, 5)


def arguments_of_conditions():
    app = Application()
    for condition in (
        BooleanCondition(app),
        AsynchronousCondition(app),
        CountCondition(app, 7),
        DownstreamMessageAffordableCondition(app, 2, "out"),
        MessageAvailableCondition(app, 1, 4, "in"),
        MemoryAvailableCondition(app, UnboundedAllocator(app), min_bytes=3),
        PeriodicCondition(app, 100),
        CudaEventCondition(app, "event"),
        CudaBufferAvailableCondition(app),
        PublisherAvailableCondition(app, 2),
        SubscriberAvailableCondition(app, 2),
    ):
        print([arg.name for arg in condition.args], getattr(condition, "gxf_typename", "native"))


def descriptions_of_components():
    app = Application()
    for component in (
        BooleanCondition(app),
        CountCondition(app, 7, "seven"),
        DownstreamMessageAffordableCondition(app, 2, "out"),
        DoubleBufferReceiver(app, 3),
        UcxTransmitter(app),
        StdEntitySerializer(app),
        ManualClock(app, 5),
        OrConditionCombiner(app, [CountCondition(app)]),
    ):
        print(component.description.partition("spec:")[0])


def an_operator_describes_its_parts():
    app = Application()
    pool = UnboundedAllocator(app, name="pool")
    tx = PingTxOp(app, CountCondition(app, 3), pool, name="tx")
    lines = tx.description.splitlines()
    print([line for line in lines if line.startswith(("    name:", "        value", "    gxf_typename"))])


def queues_behind_connectors():
    class QueuesOp(Operator):
        def setup(self, spec):
            plain = spec.input("plain")
            long = spec.input("long").connector(IOSpec.ConnectorType.DOUBLE_BUFFER, capacity=2, policy=1)
            spec.output("out").connector(IOSpec.ConnectorType.DOUBLE_BUFFER)
            spec.input("far").connector(IOSpec.ConnectorType.UCX, port=7)
            print(plain.connector(), type(long.connector()).__name__, [a.name for a in long.connector().args])
            print([type(port.connector()).__name__ for port in (spec.outputs["out"], spec.inputs["far"])])

    QueuesOp(Application(), name="op")


def conditions_of_ports():
    class PortsOp(Operator):
        def setup(self, spec):
            spec.input("free").condition(ConditionType.NONE)
            spec.input("two").condition(ConditionType.MESSAGE_AVAILABLE, min_size=2)
            spec.input("other")
            ports = ["two", "other"]
            spec.multi_port_condition(
                ConditionType.MULTI_MESSAGE_AVAILABLE, port_names=ports, sampling_mode="SumOfAll", min_sum=3
            )
            print(
                spec.inputs["free"].conditions == [(ConditionType.NONE, None)],
                spec.inputs["other"].conditions,
            )
            kind, condition = spec.inputs["two"].conditions[0]
            print(kind.name, type(condition).__name__, [(arg.name, int(arg)) for arg in condition.args])
            (info,) = spec.multi_port_conditions()
            print(info.kind.name, info.port_names, sorted(arg.name for arg in info.args.args))

    PortsOp(Application(), name="op")


def bases_made_by_themselves():
    for base in (Component(), Scheduler(name="s"), NetworkContext(name="n")):
        print(base.name, base.id, base.fragment, len(base.args))
    app = Application()
    print(Resource(app).resource_type.name, _set(Resource(app), "fragment"), _set(app, "options"))
    print([_set(app, name) for name in ("name", "description", "version")], _set(ArgList(), "more"))
    print(_set(app.executor, "more"), _refused(Fragment, Fragment()))


def kinds_of_arguments():
    app = Application()
    for value in (True, 5, 2.5, "a", [1, 2], [[1], [2]], CountCondition(app), [UnboundedAllocator(app)] * 2):
        arg = py_object_to_arg(value, "x")
        print(arg.arg_type, arg.arg_type.container_type == ArgContainerType.NATIVE)
    for value in ([], [[]], [[[1]]], [1, 2.0], [1, "a"], 1j, {"a": 1}, None):
        print(_refused(py_object_to_arg, value))
    print(arg_to_py_object(py_object_to_arg(number + 1 for number in range(3))))
    print(ArgType(ArgElementType.FLOAT64, ArgContainerType.ARRAY))


def values_of_a_scheduler_before_the_run():
    class App(Application):
        def compose(self):
            self.add_operator(PingTxOp(self, CountCondition(self, 1), name="tx"))

    names = ("stop_on_deadlock", "stop_on_deadlock_timeout", "worker_thread_number", "max_duration_ms")
    for kind in (GreedyScheduler, MultiThreadScheduler, EventBasedScheduler):
        app = App()
        scheduler = kind(app)
        print([_refused(getattr, scheduler, name) for name in names], scheduler.max_duration_ms)
        app.scheduler(scheduler)
        app.run()
        print(scheduler.stop_on_deadlock, scheduler.stop_on_deadlock_timeout)


def an_operator_in_a_thread_pool_twice():
    app = Application()
    tx, rx = PingTxOp(app, name="tx"), PingRxOp(app, name="rx")
    pool = ThreadPool(app, 2, name="pool")
    pool.add(tx, pin_operator=True)
    pool.add(tx, pin_operator=True, pin_cores=[0])
    times = {"sched_runtime": 1_000_000, "sched_deadline": 10_000_000, "sched_period": 10_000_000}
    pool.add_realtime(rx, SchedulingPolicy.SCHED_DEADLINE, pin_cores=[0], **times)
    print(sorted(op.name for op in pool.operators), app.make_thread_pool("empty", 0).name)


def mistakes_in_flows_and_names():
    app = Application()
    tx, rx = PingTxOp(app, name="tx"), PingRxOp(app, name="rx")
    print(_refused(app.add_flow, tx, rx, [("out", "in")]), _refused(app.add_flow, tx, rx, {("no", "in")}))
    app.add_operator(tx)
    print(_refused(app.add_operator, PingRxOp(app, name="tx")))
    one, two = Fragment(app, "one"), Fragment(app, "two")
    print(_refused(app.add_flow, one, two, {}), _refused(app.add_flow, one, two, set()))
    app.add_fragment(one)
    print(_refused(app.add_fragment, Fragment(app, "one")))
    print(_refused(MemoryAvailableCondition, app, UnboundedAllocator(app)))


def operators_given_to_a_subgraph():
    app = Application()
    group = Subgraph(app, "group")
    tx, rx = PingTxOp(app, name="tx"), PingRxOp(app, name="rx")
    group.add_flow(tx, rx, {("out", "in")})
    print(sorted(node.name for node in app.graph.get_nodes()))
    print(app.graph.port_map_description())
    print(_refused(Subgraph, app), _refused(Subgraph, None, "x"))
    print(_refused(Subgraph, app, name="a", instance_name="b"))


def a_pool_of_streams_is_an_allocator():
    app = Application()
    buffer = UcxSerializationBuffer(app, UnboundedAllocator(app))
    print(isinstance(CudaStreamPool(app), Allocator), isinstance(buffer, Allocator))
    print(
        [arg.name for arg in UcxReceiver(app, buffer).args], [a.name for a in AsyncBufferReceiver(app).args]
    )


def fragments_of_two_options():
    app = Application(["python", "app.py", "--fragments=a", "--driver", "--fragments", "b,c"])
    print(app.options.worker_targets, app.options.run_driver, app.argv)


def a_driver_without_fragments():
    class App(Application):
        def compose(self):
            self.add_operator(TickOp(self, CountCondition(self, 2), name="tick"))

    App(["python", "app.py", "--driver"]).run()


def the_type_of_an_asynchronous_condition():
    class App(Application):
        def compose(self):
            self.add_operator(TickOp(self, CountCondition(self, 1), name="tick"))

    App().run()
