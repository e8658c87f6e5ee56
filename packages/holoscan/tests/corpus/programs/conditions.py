"""Programs about when an operator runs."""

import threading

from holoscan.conditions import (
    AsynchronousCondition,
    AsynchronousEventState,
    BooleanCondition,
    CountCondition,
    MessageAvailableCondition,
    PeriodicCondition,
    PeriodicConditionPolicy,
)
from holoscan.core import (
    Application,
    ComponentSpec,
    Condition,
    ConditionType,
    ExecutionContext,
    InputContext,
    IOSpec,
    Operator,
    OperatorSpec,
    OutputContext,
    SchedulingStatusType,
)
from holoscan.operators import PingRxOp, PingTxOp
from holoscan.resources import ManualClock, OrConditionCombiner
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


def a_boolean_condition_stops_a_source():
    class StoppingOp(TxOp):
        def compute(self, op_input, op_output, context):
            super().compute(op_input, op_output, context)
            if self.count == 3:
                self.conditions["is_alive"].disable_tick()
                print(self.conditions["is_alive"].check_tick_enabled())

    def compose(app):
        alive = BooleanCondition(app, name="is_alive", enable_tick=True)
        app.add_flow(StoppingOp(app, alive, name="tx"), RxOp(app, name="rx"))

    _run(compose)


def a_boolean_condition_of_another_operator():
    class ControlledOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in")

        def __init__(self, *args, switch=None, **kwargs):
            self.switch = switch
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            value = op_input.receive("in")
            print(value)
            if value == 4:
                self.switch.disable_tick()

    def compose(app):
        switch = BooleanCondition(app, name="enable")
        tx = TxOp(app, switch, name="tx")
        app.add_flow(tx, ControlledOp(app, switch=switch, name="rx"))

    _run(compose)


def a_count_condition_counts_down():
    class CountdownOp(TxOp):
        def compute(self, op_input, op_output, context):
            print(self.conditions["left"].count)
            super().compute(op_input, op_output, context)

    def compose(app):
        app.add_flow(
            CountdownOp(app, CountCondition(app, count=3, name="left"), name="tx"), RxOp(app, name="rx")
        )

    _run(compose)


def a_sink_with_a_count_ends_the_run():
    def compose(app):
        app.add_flow(TxOp(app, name="tx"), RxOp(app, CountCondition(app, 3), name="rx"))

    _run(compose)


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


def a_period_by_its_forms():
    import datetime

    def compose(app):
        for period in ("20ms", "50Hz", 20_000_000, 0.02, datetime.timedelta(milliseconds=20)):
            try:
                condition = PeriodicCondition(app, period)
                print(type(period).__name__, condition.recess_period_ns())
            except (RuntimeError, TypeError) as error:
                print(type(period).__name__, type(error).__name__)

    _run(compose)


def a_native_condition():
    class EveryOp(Condition):
        def __init__(self, fragment, *args, period=0, **kwargs):
            self.period = period
            self.next_time = -1
            self.current_state = SchedulingStatusType.READY
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: ComponentSpec):
            print("condition setup")

        def initialize(self):
            print("condition initialize")

        def update_state(self, timestamp):
            pass

        def check(self, timestamp):
            if timestamp >= self.next_time:
                return SchedulingStatusType.READY, timestamp
            return SchedulingStatusType.WAIT_TIME, self.next_time

        def on_execute(self, timestamp):
            self.next_time = timestamp + self.period

    class StampOp(Operator):
        def compute(self, op_input, op_output, context):
            print(_milliseconds(self))

    def compose(app):
        every = EveryOp(app, period=30_000_000, name="every")
        app.add_operator(StampOp(app, CountCondition(app, 4), every, name="stamp"))

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


def a_native_condition_is_evaluated_by_the_scheduler():
    def compose(app):
        tx = TxOp(app, CountCondition(app, 3), name="tx")
        available = _Available(app, name="native", receiver_name="in", talk=True)
        app.add_flow(tx, RxOp(app, available, name="rx"))

    _run(compose)


def a_native_condition_that_ends_an_operator():
    class FewTimes(Condition):
        def __init__(self, fragment, *args, times=1, **kwargs):
            self.left = times
            super().__init__(fragment, *args, **kwargs)

        def update_state(self, timestamp):
            pass

        def check(self, timestamp):
            state = SchedulingStatusType.READY if self.left else SchedulingStatusType.NEVER
            return state, timestamp

        def on_execute(self, timestamp):
            self.left -= 1

    def compose(app):
        app.add_flow(TxOp(app, FewTimes(app, times=3, name="few"), name="tx"), RxOp(app, name="rx"))

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


def an_or_of_two_counts_ends_with_the_first():
    class CountingOp(Operator):
        def __init__(self, *args, **kwargs):
            self.turns = 0
            super().__init__(*args, **kwargs)

        def compute(self, op_input, op_output, context):
            self.turns += 1

        def stop(self):
            print(self.turns)

    def compose(app):
        three, six = CountCondition(app, 3, name="three"), CountCondition(app, 6, name="six")
        either = OrConditionCombiner(app, name="either", terms=[three, six])
        app.add_operator(CountingOp(app, either, name="counting"))

    _run(compose)


def an_or_of_two_ports():
    class EitherOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in1")
            spec.input("in2")
            spec.or_combine_port_conditions(("in1", "in2"))

        def compute(self, op_input, op_output, context):
            print(op_input.receive("in1"), op_input.receive("in2"))

    def compose(app):
        tx1 = TxOp(app, CountCondition(app, 2), name="tx1")
        tx2 = TxOp(app, CountCondition(app, 3), PeriodicCondition(app, recess_period=10_000_000), name="tx2")
        rx = EitherOp(app, name="rx")
        app.add_flow(tx1, rx, {("out", "in1")})
        app.add_flow(tx2, rx, {("out", "in2")})

    _run(compose, manual=True)


def a_batch_by_the_sum_over_ports():
    class BatchOp(Operator):
        def setup(self, spec: OperatorSpec):
            for port in ("in1", "in2"):
                spec.input(port, size=5, policy=IOSpec.QueuePolicy.REJECT).condition(ConditionType.NONE)
            spec.multi_port_condition(
                kind=ConditionType.MULTI_MESSAGE_AVAILABLE,
                port_names=["in1", "in2"],
                sampling_mode="PerReceiver",
                min_sizes=[2, 1],
            )

        def compute(self, op_input, op_output, context):
            print(op_input.receive("in1"), op_input.receive("in2"))

    def compose(app):
        tx1, tx2 = (TxOp(app, CountCondition(app, n), name=f"tx{n}") for n in (4, 2))
        rx = BatchOp(app, name="rx")
        app.add_flow(tx1, rx, {("out", "in1")})
        app.add_flow(tx2, rx, {("out", "in2")})

    _run(compose)


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


def a_batch_that_expires():
    class ExpiringOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in", size=5).condition(
                ConditionType.EXPIRING_MESSAGE_AVAILABLE, max_batch_size=3, max_delay_ns=50_000_000
            )

        def compute(self, op_input, op_output, context):
            batch = []
            while (value := op_input.receive("in")) is not None:
                batch.extend(value if isinstance(value, tuple) else [value])
            print(batch)

    class StampingOp(TxOp):
        def compute(self, op_input, op_output, context):
            self.count += 1
            op_output.emit(self.count, "out", acq_timestamp=self.fragment.scheduler().clock.timestamp())

    def compose(app):
        tx = StampingOp(app, CountCondition(app, 7), PeriodicCondition(app, 20_000_000), name="tx")
        app.add_flow(tx, ExpiringOp(app, name="rx"))

    _run(compose, manual=True)


def a_message_condition_by_its_class():
    class QueueOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in", size=3).condition(ConditionType.NONE)

        def compute(self, op_input, op_output, context):
            print(op_input.receive("in"))

    def compose(app):
        available = MessageAvailableCondition(app, receiver="in", min_size=2, name="available")
        app.add_flow(TxOp(app, CountCondition(app, 4), name="tx"), QueueOp(app, available, name="rx"))

    _run(compose)


def an_input_without_a_condition_polls():
    class PollingOp(Operator):
        def setup(self, spec: OperatorSpec):
            spec.input("in").condition(ConditionType.NONE)

        def compute(self, op_input, op_output, context):
            print(op_input.receive("in"))

    def compose(app):
        tx = TxOp(app, CountCondition(app, 2), PeriodicCondition(app, 20_000_000), name="tx")
        rx = PollingOp(app, CountCondition(app, 5), PeriodicCondition(app, 10_000_000), name="rx")
        app.add_flow(tx, rx)

    _run(compose, manual=True)


def surplus_keywords_of_a_port_condition():
    class SurplusOp(TxOp):
        def setup(self, spec: OperatorSpec):
            spec.output("out").condition(
                ConditionType.DOWNSTREAM_MESSAGE_AFFORDABLE, min_size=1, front_stage_max_size=1
            )

    def compose(app):
        app.add_flow(SurplusOp(app, CountCondition(app, 3), name="tx"), RxOp(app, name="rx"))

    _run(compose)


def names_of_conditions_by_position():
    def compose(app):
        for condition in (
            CountCondition(app, 3, "three"),
            BooleanCondition(app, True, "flag"),
            PeriodicCondition(app, 1000, PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS, "period"),
            AsynchronousCondition(app, "event"),
            CountCondition(app),
        ):
            print(type(condition).__name__, condition.name)

    _run(compose)


def conditions_of_an_operator():
    class ListOp(Operator):
        def compute(self, op_input, op_output, context):
            print(sorted(self.conditions))

    def compose(app):
        op = ListOp(app, CountCondition(app, 1, name="once"), BooleanCondition(app, name="flag"), name="list")
        app.add_operator(op)

    _run(compose)


def a_native_condition_at_an_output():
    class AlwaysCondition(Condition):
        def __init__(self, fragment, transmitter_name, *args, **kwargs):
            self.transmitter_name = transmitter_name
            super().__init__(fragment, *args, transmitter_name=transmitter_name, **kwargs)

        def initialize(self):
            print(self.transmitter(self.transmitter_name) is not None)

        def update_state(self, timestamp):
            pass

        def check(self, timestamp):
            return SchedulingStatusType.READY, timestamp

        def on_execute(self, timestamp):
            pass

    class SlowOp(RxOp):
        def setup(self, spec: OperatorSpec):
            spec.input("in", policy=IOSpec.QueuePolicy.POP)

    def compose(app):
        always = AlwaysCondition(app, name="always", transmitter_name="out")
        tx = TxOp(app, CountCondition(app, 4), PeriodicCondition(app, 10_000_000), always, name="tx")
        app.add_flow(tx, SlowOp(app, PeriodicCondition(app, 25_000_000), name="rx"))

    _run(compose, manual=True)


class _SpreadOp(Operator):
    """Sends its messages to its outputs in turn."""

    def __init__(self, fragment, *args, branches=3, **kwargs):
        self.branches, self.turn = branches, 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        spec.input("input")
        for number in range(self.branches):
            spec.output(f"output{number}")

    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("input"), f"output{self.turn}")
        self.turn = (self.turn + 1) % self.branches


class _GatherOp(Operator):
    """Takes the messages of its inputs in turn; it runs when any input has one."""

    def __init__(self, fragment, *args, branches=3, **kwargs):
        self.branches, self.turn = branches, 0
        super().__init__(fragment, *args, **kwargs)

    def setup(self, spec: OperatorSpec):
        names = [f"input{number}" for number in range(self.branches)]
        for name in names:
            spec.input(name)
        spec.multi_port_condition(
            kind=ConditionType.MULTI_MESSAGE_AVAILABLE, port_names=names, sampling_mode="SumOfAll", min_sum=1
        )
        spec.output("output")

    def compute(self, op_input, op_output, context):
        message = op_input.receive(f"input{self.turn}")
        if message:
            self.turn = (self.turn + 1) % self.branches
            op_output.emit(message, "output")


class _PassOp(Operator):
    def setup(self, spec: OperatorSpec):
        spec.input("in")
        spec.output("out")

    def compute(self, op_input, op_output, context):
        op_output.emit(op_input.receive("in"), "out")


def branches_in_turn():
    class RoundRobin(Application):
        def compose(self):
            spread, gather = _SpreadOp(self, name="spread"), _GatherOp(self, name="gather")
            self.add_flow(PingTxOp(self, CountCondition(self, 10), name="tx"), spread)
            for number in range(3):
                branch = _PassOp(self, name=f"branch{number}")
                self.add_flow(spread, branch, {(f"output{number}", "in")})
                self.add_flow(branch, gather, {("out", f"input{number}")})
            self.add_flow(gather, PingRxOp(self, name="rx"))

    RoundRobin().run()
