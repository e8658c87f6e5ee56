"""Programs about what operators, resources and applications are given and called."""

from holoscan.conditions import CountCondition
from holoscan.core import (
    Application,
    ComponentSpec,
    ConditionType,
    Operator,
    OperatorSpec,
    Resource,
)
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import (
    SchedulingPolicy,
    UnboundedAllocator,
)


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


def a_string_as_a_positional_argument():
    _run_one(lambda app: GainOp(app, "text", CountCondition(app, 1), name="op"))


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
