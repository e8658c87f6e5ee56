"""Programs that look at a run from inside it, and stop it."""

import threading

from holoscan.conditions import AsynchronousEventState, CountCondition, PeriodicCondition
from holoscan.core import Application, Operator, OperatorSpec, OperatorStatus
from holoscan.resources import ManualClock, RealtimeClock
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler


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


def a_monitor_that_ends_itself():
    class MonitorOp(Operator):
        def __init__(self, fragment, *args, watched=(), **kwargs):
            self.watched = watched
            self.idle = 0
            super().__init__(fragment, *args, **kwargs)

        def compute(self, op_input, op_output, context):
            states = [context.get_operator_status(name) for name in self.watched]
            self.idle = self.idle + 1 if all(state == OperatorStatus.IDLE for state in states) else 0
            if self.idle >= 3:
                print("all have completed")
                self.stop_execution()

        def stop(self):
            print("monitor stopped")

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 5), name="source"), RxOp(app, name="sink"))
        watched = ["source", "sink"]
        app.add_operator(MonitorOp(app, PeriodicCondition(app, 5_000_000), watched=watched, name="monitor"))

    _run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=2))


def operators_that_find_each_other():
    class FindOp(RxOp):
        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            other = context.find_operator("tx")
            print(value, other.name, other.count, context.find_operator("nobody"))
            print(context.find_operator() is self)
            if value == 3:
                other.stop_execution()

    def compose(app):
        app.add_flow(TxOp(app, name="tx"), FindOp(app, name="rx"))

    _run(compose)


def the_execution_context_of_an_operator():
    class ContextOp(Operator):
        def initialize(self):
            super().initialize()
            print("initialize", self.execution_context is not None)

        def start(self):
            print("start", self.execution_context is not None)

        def compute(self, op_input, op_output, context):
            print("compute", self.execution_context is context, context.is_gpu_available in (True, False))

    def compose(app):
        op = ContextOp(app, CountCondition(app, 1), name="op")
        app.add_operator(op)

    _run(compose)


def an_operator_stops_itself():
    class StoppingOp(TxOp):
        def compute(self, op_input, op_output, context):
            super().compute(op_input, op_output, context)
            if self.count == 3:
                self.stop_execution()

        def stop(self):
            print("stop tx")

    class EndOp(RxOp):
        def stop(self):
            print("stop rx")

    def compose(app):
        app.add_flow(StoppingOp(app, name="tx"), EndOp(app, name="rx"))

    _run(compose)


def the_application_is_stopped():
    class StopOp(RxOp):
        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            print(value)
            if value == 3:
                self.fragment.stop_execution()

    def compose(app):
        app.add_flow(TxOp(app, name="tx"), StopOp(app, name="rx"))

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


def the_asynchronous_condition_of_every_operator():
    class AsyncOp(TxOp):
        def start(self):
            print("start", self.async_condition.event_state.name)

        def compute(self, op_input, op_output, context):
            super().compute(op_input, op_output, context)
            condition = self.async_condition
            if self.count == 3:
                condition.event_state = AsynchronousEventState.EVENT_NEVER
                return
            condition.event_state = AsynchronousEventState.EVENT_WAITING

            def wake():
                condition.event_state = AsynchronousEventState.EVENT_DONE

            self.thread = threading.Thread(target=wake)
            self.thread.start()

        def stop(self):
            self.thread.join()

    def compose(app):
        tx = AsyncOp(app, name="tx")
        print(tx.async_condition is None)
        app.add_flow(tx, RxOp(app, name="rx"))

    _run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=2))


def a_controller_releases_another_operator():
    class SlowOp(Operator):
        def __init__(self, *args, **kwargs):
            self.turns = 0
            super().__init__(*args, **kwargs)

        def start(self):
            self.async_condition.event_state = AsynchronousEventState.EVENT_WAITING

        def compute(self, op_input, op_output, context):
            self.turns += 1
            print("slow", self.turns)
            if self.turns == 2:
                self.stop_execution()
            else:
                self.async_condition.event_state = AsynchronousEventState.EVENT_WAITING

    class ControllerOp(Operator):
        def __init__(self, *args, target=None, **kwargs):
            self.target = target
            self.released = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            if self.target.turns < self.released:
                return
            if self.released == 2:
                self.stop_execution()
                return
            print("release")
            self.released += 1
            self.target.async_condition.event_state = AsynchronousEventState.EVENT_DONE

    def compose(app):
        slow = SlowOp(app, name="slow")
        app.add_operator(slow)
        app.add_operator(ControllerOp(app, PeriodicCondition(app, 5_000_000), target=slow, name="controller"))

    _run(compose, lambda app: EventBasedScheduler(app, worker_thread_number=1, stop_on_deadlock_timeout=100))


def the_order_of_stop_in_a_chain():
    class StopOp(Operator):
        def stop(self):
            print("stop", self.name)

        def start(self):
            print("start", self.name)

    class FirstOp(StopOp):
        def setup(self, spec: OperatorSpec):
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(1, "out")

    class MiddleOp(StopOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in")
            spec.output("out")

        def compute(self, op_input, op_output, context):
            op_output.emit(op_input.receive("in"), "out")

    class LastOp(StopOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def compute(self, op_input, op_output, context):
            op_input.receive("in")

    def compose(app):
        a, b = FirstOp(app, CountCondition(app, 2), name="a"), MiddleOp(app, name="b")
        d = LastOp(app, name="d")
        app.add_flow(a, b)
        app.add_flow(b, d)

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


def an_exception_in_compute():
    class FailOp(RxOp):
        def compute(self, op_input, op_output, context):
            if op_input.receive("in") == 2:
                raise ZeroDivisionError("on purpose")

        def stop(self):
            print("stop")

    def compose(app):
        app.add_flow(TxOp(app, CountCondition(app, 5), name="tx"), FailOp(app, name="rx"))

    try:
        _run(compose)
    except ZeroDivisionError as error:
        print("caught", error)


def an_exception_in_start():
    class FailOp(TxOp):
        def start(self):
            raise KeyError("on purpose")

    def compose(app):
        app.add_flow(FailOp(app, CountCondition(app, 5), name="tx"), RxOp(app, name="rx"))

    _run(compose)


def an_exception_in_compose():
    def compose(app):
        raise ValueError("no video data")

    _run(compose)


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


def an_exit_in_compute():
    import sys

    class ExitOp(TxOp):
        def compute(self, op_input, op_output, context):
            sys.exit(3)

    def compose(app):
        app.add_flow(ExitOp(app, CountCondition(app, 5), name="tx"), RxOp(app, name="rx"))

    _run(compose)
