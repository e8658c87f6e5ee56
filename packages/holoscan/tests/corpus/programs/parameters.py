"""Programs about what operators, resources and applications are given and called."""

from holoscan.conditions import CountCondition
from holoscan.core import (
    Application,
    ComponentSpec,
    ConditionType,
    Operator,
    OperatorSpec,
    ParameterFlag,
    Resource,
)
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import (
    BlockMemoryPool,
    CudaStreamPool,
    ManualClock,
    MemoryStorageType,
    RealtimeClock,
    SchedulingPolicy,
    UnboundedAllocator,
)
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler, MultiThreadScheduler


class GainOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.param("gain", 1.0)

    def compute(self, op_input, op_output, context):
        print(self.name, self.gain)


def _app(compose=lambda app: None):
    class App(Application):
        pass

    App.compose = compose
    return App()


def _run_one(make):
    _app(lambda app: app.add_operator(make(app))).run()


def an_attribute_set_before_the_base_is_kept():
    class EarlyOp(Operator):
        def __init__(self, fragment, *args, gain=5.0, **kwargs):
            self.gain = gain
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: OperatorSpec):
            spec.param("gain", 1.0)

        def compute(self, op_input, op_output, context):
            print(self.gain)

    _run_one(lambda app: EarlyOp(app, CountCondition(app, 1), name="op"))
    _run_one(lambda app: EarlyOp(app, CountCondition(app, 1), gain=7.0, name="op"))


def an_attribute_set_after_the_base():
    class LateOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            super().__init__(fragment, *args, **kwargs)
            self.gain = 6.0

        def setup(self, spec: OperatorSpec):
            spec.param("gain", 1.0)

        def compute(self, op_input, op_output, context):
            print(self.gain)

    _run_one(lambda app: LateOp(app, CountCondition(app, 1), name="op"))
    _run_one(lambda app: LateOp(app, CountCondition(app, 1), gain=7.5, name="op"))


def an_argument_that_setup_does_not_declare():
    def make(app):
        return GainOp(app, CountCondition(app, 1), name="op", surplus=3, more=[1], text="x", pi=3.14)

    class LookOp(GainOp):
        def compute(self, op_input, op_output, context):
            print(self.gain, hasattr(self, "surplus"))

    _run_one(make)
    _run_one(lambda app: LookOp(app, CountCondition(app, 1), name="look", surplus=3))


def a_string_as_a_positional_argument():
    _run_one(lambda app: GainOp(app, "text", CountCondition(app, 1), name="op"))


def a_parameter_of_another_type():
    for value in ("high", 3, [1, 2], True):
        _run_one(lambda app, value=value: GainOp(app, CountCondition(app, 1), gain=value, name="op"))


def an_argument_that_is_none():
    try:
        _run_one(lambda app: GainOp(app, CountCondition(app, 1), gain=None, name="op"))
    except RuntimeError:
        print("RuntimeError")


def an_argument_that_is_any_object():
    class Thing:
        def __repr__(self):
            return "thing"

    try:
        _run_one(lambda app: GainOp(app, CountCondition(app, 1), gain=Thing(), name="op"))
    except RuntimeError:
        print("RuntimeError")


def a_whole_number_as_a_float():
    _run_one(lambda app: GainOp(app, CountCondition(app, 1), gain=4.0, name="op"))


def a_required_parameter_without_a_value():
    class RequiredOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.param("needed")
            spec.param("optional", flag=ParameterFlag.OPTIONAL)

        def compute(self, op_input, op_output, context):
            print(self.needed, self.optional)

    _run_one(lambda app: RequiredOp(app, CountCondition(app, 1), name="op"))
    _run_one(lambda app: RequiredOp(app, CountCondition(app, 1), needed=2, name="op"))


def parameters_before_and_after_initialize():
    class WhenOp(GainOp):
        def __init__(self, fragment, *args, **kwargs):
            super().__init__(fragment, *args, **kwargs)
            print("init", hasattr(self, "gain"))

        def initialize(self):
            print("before", hasattr(self, "gain"))
            super().initialize()
            print("after", self.gain)

    _run_one(lambda app: WhenOp(app, CountCondition(app, 1), gain=4.5, name="op"))


def a_parameter_changed_in_compute():
    class ChangeOp(GainOp):
        def compute(self, op_input, op_output, context):
            print(self.gain)
            self.gain *= 2

    _run_one(lambda app: ChangeOp(app, CountCondition(app, 3), gain=1.5, name="op"))


def names_of_operators_that_were_given_none():
    def compose(app):
        tx, rx = PingTxOp(app, CountCondition(app, 1)), PingRxOp(app)
        first, second = GainOp(app, CountCondition(app, 1)), GainOp(app, CountCondition(app, 1))
        app.add_flow(tx, rx)
        app.add_operator(first)
        app.add_operator(second)

    app = _app(compose)
    app.run()
    print(sorted(node.name for node in app.graph.get_nodes()))


def names_of_applications_and_schedulers():
    class NamedApp(Application):
        name = "from the class"
        description = "what it does"
        version = "1.2"

        def compose(self):
            pass

    plain, named = _app(), NamedApp()
    print(repr(plain.name), repr(named.name), named.description, named.version)
    plain.name = "set later"
    print(plain.name)
    for scheduler in (GreedyScheduler(plain), MultiThreadScheduler(plain), EventBasedScheduler(plain)):
        print(scheduler.name)


def names_of_resources_by_position():
    def compose(app):
        pools = (
            UnboundedAllocator(app, "unbounded"),
            UnboundedAllocator(app),
            BlockMemoryPool(app, MemoryStorageType.HOST, 64, 2, 0, "blocks"),
            BlockMemoryPool(app, storage_type=MemoryStorageType.DEVICE, block_size=64, num_blocks=2),
            CudaStreamPool(app, 0, 0, 0, 1, 5, None, "range", "streams"),
            CudaStreamPool(app, name="cuda_stream", dev_id=0, reserved_size=1, max_size=5),
        )
        for pool in pools:
            print(type(pool).__name__, pool.name)

    _app(compose).run()


def a_resource_by_its_keyword():
    class PoolOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.param("allocator")

        def compute(self, op_input, op_output, context):
            names = [name for name in self.resources if not name.endswith("_stream_pool")]
            print(names, self.resource("pool") is not None, self.resource("allocator") is not None)

    def make(app):
        return PoolOp(app, CountCondition(app, 1), allocator=UnboundedAllocator(app, name="pool"), name="op")

    _run_one(make)


class _Message(Resource):
    def __init__(self, fragment, *args, text="test", **kwargs):
        self.text = text
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: ComponentSpec):
        print("resource setup")


def a_native_resource():
    class UseOp(Operator):
        def __init__(self, *args, expected="test", **kwargs):
            self.expected = expected
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            found = self.resource("message")
            print(isinstance(found, _Message), found.text == self.expected, self.resource("nothing"))
            print(isinstance(self.resources, dict), "message" in self.resources)

    def make(app):
        message = _Message(app, text="hello", name="message")
        return UseOp(app, CountCondition(app, 1), message, expected="hello", name="op")

    _run_one(make)


def parameters_of_a_native_resource():
    class ParameterResource(Resource):
        def setup(self, spec: ComponentSpec):
            spec.param("value", 3)
            spec.param("label", "none")

    class UseOp(Operator):
        def compute(self, op_input, op_output, context):
            print(self.resource("res").value, self.resource("res").label)

    def make(app):
        res = ParameterResource(app, name="res", label="given")
        return UseOp(app, CountCondition(app, 1), res, name="op")

    _run_one(make)


def facts_of_an_operator():
    class FactsOp(GainOp):
        def setup(self, spec: OperatorSpec):
            super().setup(spec)
            spec.input("in")
            spec.output("out")

    def compose(app):
        op = FactsOp(app, CountCondition(app, 1, name="once"), gain=2.5, name="facts")
        print(op.name, op.fragment is app, type(op.id).__name__, op.operator_type.name)
        print(sorted(op.spec.inputs), sorted(op.spec.outputs))
        print(type(op.description).__name__, type(op.spec.description).__name__)
        print([arg.name for arg in op.args])
        op.name = "renamed"
        print(op.name)

    _app(compose).run()


def an_operator_without_compute():
    class EmptyOp(Operator):
        pass

    class MarkedOp(Operator):
        def start(self):
            print("start")

        def stop(self):
            print("stop")

    _run_one(lambda app: EmptyOp(app, CountCondition(app, 2), name="empty"))
    _run_one(lambda app: MarkedOp(app, CountCondition(app, 2), name="marked"))


def compute_with_more_arguments():
    class DefaultsOp(Operator):
        def compute(self, op_input, op_output, context, extra=5):
            print(extra)

    _run_one(lambda app: DefaultsOp(app, CountCondition(app, 1), name="op"))


def sizes_of_memory_pools():
    class UsingOp(Operator):
        def compute(self, op_input, op_output, context):
            pool = self.resource("pool")
            print(pool.block_size, pool.is_available(64), pool.is_available(200))

    def make(app):
        pool = BlockMemoryPool(
            app, storage_type=MemoryStorageType.SYSTEM, block_size=64, num_blocks=2, name="pool"
        )
        return UsingOp(app, CountCondition(app, 1), pool, name="op")

    _run_one(make)
    print(
        [kind.name for kind in (MemoryStorageType.HOST, MemoryStorageType.DEVICE, MemoryStorageType.SYSTEM)]
    )


def texts_of_components():
    def compose(app):
        op = GainOp(app, CountCondition(app, 3, name="three"), gain=2.5, name="op")
        for component in (op, CountCondition(app, 3, name="three"), UnboundedAllocator(app, name="pool")):
            lines = repr(component).splitlines()
            print([line for line in lines if line.startswith(("name:", "fragment:", "  count", "id:"))])

    _app(compose).run()


def facts_of_a_resource():
    class FactsResource(Resource):
        def setup(self, spec: ComponentSpec):
            spec.param("value", 3)
            print(isinstance(spec, ComponentSpec), type(spec.description).__name__)

    def compose(app):
        resource = FactsResource(app, name="facts", value=5)
        print(resource.name, resource.fragment is app, resource.id, [arg.name for arg in resource.args])
        print(
            resource.resource_type.name,
            isinstance(resource.spec, ComponentSpec),
            type(resource.description).__name__,
        )

    _app(compose).run()


def names_of_clocks_and_thread_pools_by_position():
    def compose(app):
        for clock in (RealtimeClock(app, 0.0, 1.0, False, "real"), ManualClock(app, 0, "manual")):
            print(clock.name)
        pool = app.make_thread_pool("workers", 2)
        print(pool.name, pool.operators)

    _app(compose).run()


def real_time_threads():
    def compose(app):
        tx, rx = PingTxOp(app, CountCondition(app, 2), name="tx"), PingRxOp(app, name="rx")
        app.add_flow(tx, rx)
        pool = app.make_thread_pool("pool", 1)
        pool.add_realtime(tx, SchedulingPolicy.SCHED_RR, pin_operator=True, pin_cores=[0], sched_priority=1)
        print([policy.name for policy in (SchedulingPolicy.SCHED_FIFO, SchedulingPolicy.SCHED_DEADLINE)])
        print([op.name for op in pool.operators])

    _app(compose).compose_graph()


def specifications_of_ports():
    class SpecOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("a", size=2).condition(ConditionType.NONE)
            spec.input("b").condition(ConditionType.MESSAGE_AVAILABLE, min_size=1)
            spec.multi_port_condition(
                kind=ConditionType.MULTI_MESSAGE_AVAILABLE,
                port_names=["a", "b"],
                sampling_mode="SumOfAll",
                min_sum=2,
            )
            print(
                len(spec.multi_port_conditions()), spec.inputs["a"].name, spec.inputs["b"].connector_type.name
            )

    def compose(app):
        SpecOp(app, name="op")

    _app(compose).run()


def every_name_of_a_star_import():
    names = {}
    for module in (
        "core",
        "conditions",
        "resources",
        "schedulers",
        "data_loggers",
        "logger",
        "gxf",
        "pose_tree",
    ):
        exec(f"from holoscan.{module} import *", names)
    wanted = """Application Operator Fragment Subgraph IOSpec Tensor Tracker Arg ArgList ComponentSpec ConditionType
    CountCondition PeriodicCondition AsynchronousCondition UnboundedAllocator BlockMemoryPool CudaStreamPool
    GreedyScheduler EventBasedScheduler MultiThreadScheduler BasicConsoleLogger LogLevel set_log_level Entity
    PoseTreeManager MetadataDictionary DataFlowMetric OperatorStatus SchedulingStatusType FlowInfo CLIOptions
    ThreadPool RealtimeClock ManualClock RMMAllocator MemoryStorageType AsynchronousEventState Resource Condition
    ExecutionContext InputContext OutputContext DLDeviceType MetadataPolicy ParameterFlag"""
    print([name for name in wanted.split() if name not in names])


def modules_of_the_package():
    import importlib

    import holoscan

    for module in (
        "conditions",
        "core",
        "data_loggers",
        "executors",
        "gxf",
        "logger",
        "operators",
        "resources",
    ):
        print(module, getattr(holoscan, module) is importlib.import_module(f"holoscan.{module}"))
    print(holoscan.__version__.split(".")[0])
