"""Programs that share services between operators, and that keep poses."""

import math

import numpy as np
from holoscan.conditions import CountCondition
from holoscan.core import (
    Application,
    DefaultFragmentService,
    Fragment,
    FragmentService,
    Operator,
    OperatorSpec,
    Resource,
)
from holoscan.pose_tree import SO3, Pose3, PoseTreeManager


class CounterService(DefaultFragmentService):
    def __init__(self, value):
        super().__init__()
        self.value = value


class TableResource(Resource):
    def __init__(self, fragment, *args, value=0, **kwargs):
        self.value = value
        super().__init__(fragment, *args, **kwargs)


class SelfService(Resource, FragmentService):
    def __init__(self, fragment, *args, value=0, **kwargs):
        self.value = value
        Resource.__init__(self, fragment, *args, **kwargs)
        FragmentService.__init__(self)

    def resource(self, new_resource=None):
        return self


def _run(compose):
    class App(Application):
        pass

    App.compose = compose
    app = App()
    app.run()
    return app


def _once(app, body):
    class OnceOp(Operator):
        def compute(self, op_input, op_output, context):
            body(self)

    app.add_operator(OnceOp(app, CountCondition(app, 1), name="once"))


def a_resource_as_a_service():
    def compose(app):
        app.register_service(TableResource(app, name="table", value=20))

        def body(op):
            print(op.service(TableResource, "table").value)
            print(op.service(DefaultFragmentService, "table").resource.value)
            print(op.service(TableResource, "chair"))

        _once(app, body)

    _run(compose)


def a_resource_that_is_a_service_itself():
    def compose(app):
        app.register_service(SelfService(app, name="own", value=40))
        _once(app, lambda op: print(op.service(SelfService, "own").value))

    _run(compose)


def a_service_around_a_resource():
    def compose(app):
        table = TableResource(app, name="table", value=5)
        app.register_service(DefaultFragmentService(table))
        _once(app, lambda op: print(op.service(TableResource, "table") is table))

    _run(compose)


def poses_of_a_robot():
    class MoveOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            super().__init__(fragment, *args, **kwargs)
            self.now = 0.0

        def initialize(self):
            super().initialize()
            self.tree = self.service(PoseTreeManager, "poses").tree
            for frame in ("world", "base", "hand"):
                self.tree.create_frame(frame)
            self.tree.create_edges("world", "base")
            self.tree.create_edges("base", "hand")

        def compute(self, op_input, op_output, context):
            self.now += 1.0
            turn = SO3.from_axis_angle(np.array([0.0, 0.0, 1.0]), math.pi / 2)
            self.tree.set("world", "base", self.now, Pose3(turn, np.array([self.now, 0.0, 0.0])))
            lift = SO3.from_axis_angle(np.array([1.0, 0.0, 0.0]), 0.0)
            self.tree.set("base", "hand", self.now, Pose3(lift, np.array([0.0, 2.0, 0.0])))

    class LookOp(Operator):
        def __init__(self, fragment, *args, **kwargs):
            super().__init__(fragment, *args, **kwargs)
            self.now = 0.0

        def compute(self, op_input, op_output, context):
            self.now += 1.0
            tree = self.service(PoseTreeManager, "poses").tree
            for pair in (("world", "base"), ("base", "hand"), ("world", "hand"), ("hand", "world")):
                pose = tree.get(*pair, self.now)
                print(*pair, (np.round(np.asarray(pose.translation), 6) + 0.0).tolist())
            if self.now > 1:
                between = tree.get("world", "base", self.now - 0.5)
                print("between", (np.round(between.translation, 6) + 0.0).tolist())

    def compose(app):
        app.register_service(PoseTreeManager(app, name="poses", number_frames=64))
        app.add_flow(MoveOp(app, CountCondition(app, 3), name="move"), LookOp(app, name="look"))

    _run(compose)


def rotations_and_poses():
    quarter = SO3.from_axis_angle(np.array([0.0, 0.0, 1.0]), math.pi / 2)
    pose = Pose3(quarter, np.array([1.0, 2.0, 3.0]))

    def shown(values):
        return (np.round(np.asarray(values, dtype=float), 6) + 0.0).tolist()

    print(shown(quarter.matrix()), shown(quarter.quaternion))
    print(shown(quarter.inverse().matrix()), shown(SO3.identity().matrix()))
    print(shown(pose.inverse().translation), shown(pose.rotation.matrix()))
    print(shown(Pose3.identity().translation), shown(Pose3.identity().rotation.matrix()))
    print(round(quarter.angle(), 6), shown(quarter.axis()), shown(quarter.euler_angles_rpy()))
    print(shown(Pose3.from_translation(np.array([1.0, 0.0, 0.0])).translation))


def questions_about_frames():
    def compose(app):
        manager = PoseTreeManager(app, name="poses")
        app.register_service(manager)

        def body(op):
            tree = op.service(PoseTreeManager, "poses").tree
            a, b = tree.create_frame("a"), tree.create_frame("b")
            tree.create_edges("a", "b")
            print(type(a).__name__, a == b, tree.get_frame_name(a), tree.find_frame("b") == b)
            for ask in (
                lambda: tree.get("a", "missing", 1.0),
                lambda: tree.get("a", "b", 1.0),
                lambda: tree.create_frame("a"),
                lambda: tree.find_frame("missing"),
            ):
                try:
                    print(ask())
                except Exception as error:
                    print(isinstance(error, RuntimeError))

        _once(app, body)

    _run(compose)


class AskingOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.output("out") if self.name == "first" else spec.input("in")

    def initialize(self):
        super().initialize()
        found = [self.service(CounterService, each) for each in ("", "late", "own")]
        print(self.name, [each and each.value for each in found])

    def compute(self, op_input, op_output, context):
        if self.name == "first":
            op_output.emit(1, "out")
        else:
            print("received", op_input.receive("in"))


class LoudResource(Resource):
    def initialize(self):
        print("initialized", self.name)


class FirstPart(Fragment):
    def compose(self):
        self.register_service(CounterService(3), "own")
        self.register_service(CounterService(4))
        self.register_service(LoudResource(self, name="loud"))
        self.add_operator(AskingOp(self, CountCondition(self, 1), name="first"))


class SecondPart(Fragment):
    def compose(self):
        self.add_operator(AskingOp(self, CountCondition(self, 1), name="second"))


def services_of_an_application_of_fragments():
    def compose(app):
        app.register_service(CounterService(1))
        first, second = FirstPart(app, name="part1"), SecondPart(app, name="part2")
        app.register_service(CounterService(2), "late")
        app.add_flow(first, second, {("first", "second")})

    _run(compose)
