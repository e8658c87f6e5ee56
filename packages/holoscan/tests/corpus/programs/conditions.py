"""Programs about when an operator runs."""

import threading

from holoscan.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    CountCondition,
    PeriodicCondition,
    PeriodicConditionPolicy,
)
from holoscan.core import (
    Application,
    Condition,
    ConditionType,
    ExecutionContext,
    InputContext,
    Operator,
    OperatorSpec,
    OutputContext,
    SchedulingStatusType,
)
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import ManualClock
from holoscan.schedulers import EventBasedScheduler, GreedyScheduler


class TxOp(Operator):
    def __init__(self, fragment, *args, **kwargs):
        self.count = 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.output("out")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext):
        self.count += 1
        op_output.emit(self.count, "out")


class RxOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")

    def compute(self, op_input: InputContext, op_output: OutputContext, context: ExecutionContext):
        print(f"{self.name} received {op_input.receive('in')}")


def _milliseconds(operator):
    return operator.fragment.scheduler().clock.timestamp() // 1_000_000


def _run(compose, *, manual=False):
    class App(Application):
        pass

    App.compose = compose
    app = App()
    if manual:
        app.scheduler(GreedyScheduler(app, clock=ManualClock(app)))
    app.run()


def periods_of_three_policies():
    class StampOp(Operator):
        def __init__(self, *args, **kwargs):
            self.turn = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            print(self.name, _milliseconds(self))
            self.turn += 1
            if self.turn == 2:
                self.fragment.scheduler().clock.sleep_for(250_000_000)

    policies = PeriodicConditionPolicy
    for policy in (
        policies.CATCH_UP_MISSED_TICKS,
        policies.MIN_TIME_BETWEEN_TICKS,
        policies.NO_CATCH_UP_MISSED_TICKS,
    ):

        def compose(app, policy=policy):
            period = PeriodicCondition(app, recess_period=100_000_000, policy=policy, name="period")
            app.add_operator(StampOp(app, CountCondition(app, 6), period, name=policy.name))

        _run(compose, manual=True)


class _Available(Condition):
    """Waits for messages at a port; has no state before the first of them."""

    def __init__(self, fragment, receiver_name, *args, min_size=1, talk=False, **kwargs):
        self.receiver_name = receiver_name
        self.min_size = min_size
        self.talk = talk
        self.current_state = SchedulingStatusType.WAIT
        super().__init__(fragment, *args, receiver_name=receiver_name, **kwargs)

    def initialize(self):
        self.receiver_obj = self.receiver(self.receiver_name)
        if self.receiver_obj is None:
            raise RuntimeError("no receiver")

    def update_state(self, timestamp):
        if self.talk:
            print("update_state")
        waiting = self.receiver_obj.back_size + self.receiver_obj.size
        ready = waiting >= self.min_size
        if ready and self.current_state != SchedulingStatusType.READY:
            self.current_state = SchedulingStatusType.READY
            self.last_state_change = timestamp
        if not ready and self.current_state != SchedulingStatusType.WAIT:
            self.current_state = SchedulingStatusType.WAIT
            self.last_state_change = timestamp

    def check(self, timestamp):
        if self.talk:
            print("check")
        return self.current_state, self.last_state_change

    def on_execute(self, timestamp):
        if self.talk:
            print("on_execute")
        self.update_state(timestamp)


def a_native_condition_in_place_of_the_default_one():
    def compose(app):
        tx = PingTxOp(app, CountCondition(app, 4), name="tx")
        app.add_flow(tx, PingRxOp(app, _Available(app, name="native", receiver_name="in"), name="rx"))

    _run(compose)


def an_asynchronous_condition_from_a_thread():
    class AsyncOp(TxOp):
        def start(self):
            self.event = self.conditions["async"]
            self.event.event_state = AsynchronousEventState.EVENT_DONE

        def compute(self, op_input, op_output, context):
            super().compute(op_input, op_output, context)
            if self.count == 3:
                self.event.event_state = AsynchronousEventState.EVENT_NEVER
                return
            self.event.event_state = AsynchronousEventState.EVENT_WAITING
            self.thread = threading.Thread(target=self.wake)
            self.thread.start()

        def wake(self):
            self.event.event_state = AsynchronousEventState.EVENT_DONE

        def stop(self):
            self.thread.join()

    def compose(app):
        app.add_flow(AsyncOp(app, AsynchronousCondition(app, name="async"), name="tx"), RxOp(app, name="rx"))

    class App(Application):
        pass

    App.compose = compose
    app = App()
    app.scheduler(EventBasedScheduler(app, worker_thread_number=1, stop_on_deadlock=True))
    app.run()


def a_timeout_lets_the_run_end():
    class TimeoutOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in", size=4).condition(ConditionType.NONE)
            spec.multi_port_condition(
                kind=ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT,
                port_names=["in"],
                execution_frequency="30ms",
                sampling_mode="SumOfAll",
                min_sum=3,
            )

        def compute(self, op_input, op_output, context):
            print(_milliseconds(self), op_input.receive("in"))

    def compose(app):
        tx = TxOp(app, CountCondition(app, 5), PeriodicCondition(app, 20_000_000), name="tx")
        app.add_flow(tx, TimeoutOp(app, name="rx"))

    _run(compose, manual=True)
    print("ended")


def surplus_keywords_of_a_port_condition():
    class SurplusOp(TxOp):
        def setup(self, spec: OperatorSpec):
            spec.output("out").condition(
                ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1, front_stage_max_size=1
            )

    def compose(app):
        app.add_flow(SurplusOp(app, CountCondition(app, 3), name="tx"), RxOp(app, name="rx"))

    _run(compose)
