"""Programs that look at a run from inside it, and stop it."""

from holoscan.conditions import CountCondition
from holoscan.core import Application, Operator, OperatorSpec, OperatorStatus
from holoscan.resources import ManualClock, RealtimeClock
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
        print(f"{self.name} {op_input.receive('in')}")


def _run(compose, scheduler=None):
    class App(Application):
        pass

    App.compose = compose
    app = App()
    if scheduler:
        app.scheduler(scheduler(app))
    app.run()
    return app


def statuses_of_operators():
    class MonitorOp(RxOp):
        def compute(self, op_input, op_output, context):
            op_input.receive("in")
            print(
                context.get_operator_status().name,
                context.get_operator_status("rx") == OperatorStatus.TICKING,
            )
            print(context.get_operator_status("tx").name, int(OperatorStatus.IDLE.value))
            try:
                context.get_operator_status("nobody")
            except RuntimeError:
                print("RuntimeError")

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 2), name="tx"), MonitorOp(app, name="rx"))

    _run(compose)


def one_operator_of_an_application_is_stopped():
    class StopOp(RxOp):
        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            print(value)
            if value == 2:
                self.fragment.stop_execution("tx")

    def compose(app):
        app.add_flow(TxOp(app, name="tx"), StopOp(app, name="rx"))

    _run(compose)


def the_clock_before_and_during_a_run():
    class ClockOp(Operator):
        def compute(self, op_input, op_output, context):
            clock = self.fragment.scheduler().clock
            print(type(clock.time()).__name__, type(clock.timestamp()).__name__)
            print(clock.cast_to(RealtimeClock) is not None)
            try:
                clock.cast_to(ManualClock)
            except RuntimeError:
                print("RuntimeError")

    def compose(app):
        app.add_operator(ClockOp(app, CountCondition(app, 1), name="clock"))

    def scheduler(app):
        made = GreedyScheduler(app)
        print(made.clock, made.name)
        return made

    _run(compose, scheduler)


def an_exception_of_a_run_in_the_background():
    class FailOp(TxOp):
        def compute(self, op_input, op_output, context):
            raise ZeroDivisionError("on purpose")

    class App(Application):
        def compose(self):
            self.add_flow(FailOp(self, CountCondition(self, 5), name="tx"), RxOp(self, name="rx"))

    future = App().run_async()
    try:
        future.result()
    except ZeroDivisionError:
        print("caught")
