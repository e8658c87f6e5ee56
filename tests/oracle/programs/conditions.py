"""Conditions: counts, switches, periods, events, several inputs, and those of a program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


@program
def a_sink_with_a_count_stops_the_run(sdk: SimpleNamespace, log: list) -> None:
    sent: list = []
    source = operator(
        sdk, [], ["out"], lambda self, i, o, c: (sent.append(self.ticks), o.emit(self.ticks, "out"))
    )

    def compose(app: Any) -> None:
        a = source(app, name="a")
        b = logger(sdk, log)(app, sdk.CountCondition(app, 3), name="b")
        app.add_flow(a, b)

    application(sdk, compose).run()
    log.append(("sent", len(sent)))


@program
def a_count_of_zero_never_runs(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 0), name="a")
        app.add_flow(a, logger(sdk, log)(app, name="b"))

    application(sdk, compose).run()


@program
def the_count_property_counts_down(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        count = sdk.CountCondition(app, 3)
        source = operator(sdk, [], [], lambda self, i, o, c: log.append(count.count))
        app.add_operator(source(app, count, name="a"))

    application(sdk, compose).run()


@program
def a_boolean_condition_ends_an_operator(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        enabled = sdk.BooleanCondition(app, True, name="enabled")

        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append([self.ticks, enabled.check_tick_enabled()])
            if self.ticks == 3:
                enabled.disable_tick()

        app.add_operator(operator(sdk, [], [], body)(app, enabled, name="a"))

    application(sdk, compose).run()


@program
def a_disabled_operator_is_not_enabled_again(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        enabled = sdk.BooleanCondition(app, True, name="enabled")

        def first(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append(f"a{self.ticks}")
            if self.ticks == 2:
                enabled.disable_tick()

        def second(self: Any, i: Any, o: Any, c: Any) -> None:
            if self.ticks == 10:
                enabled.enable_tick()

        app.add_operator(operator(sdk, [], [], first)(app, enabled, sdk.CountCondition(app, 5), name="a"))
        app.add_operator(operator(sdk, [], [], second)(app, sdk.CountCondition(app, 20), name="b"))

    application(sdk, compose).run()


def _periodic(sdk: SimpleNamespace, log: list, policy: Any, spend: dict[int, int]) -> None:
    """Log the time of each tick of a 100 ns period, some ticks taking so long in the clock's time."""

    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, name="greedy"))

        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append(clock.timestamp())
            if self.ticks in spend:
                clock.sleep_for(spend[self.ticks])

        app.add_operator(
            operator(sdk, [], [], body)(
                app, sdk.PeriodicCondition(app, 100, policy=policy), sdk.CountCondition(app, 6), name="a"
            )
        )

    application(sdk, compose).run()


@program
def a_period_catches_up(sdk: SimpleNamespace, log: list) -> None:
    _periodic(sdk, log, sdk.PeriodicConditionPolicy.CATCH_UP_MISSED_TICKS, {2: 250})


@program
def a_period_between_ticks(sdk: SimpleNamespace, log: list) -> None:
    _periodic(sdk, log, sdk.PeriodicConditionPolicy.MIN_TIME_BETWEEN_TICKS, {2: 250, 4: 30})


@program
def a_period_without_catching_up(sdk: SimpleNamespace, log: list) -> None:
    _periodic(sdk, log, sdk.PeriodicConditionPolicy.NO_CATCH_UP_MISSED_TICKS, {2: 250, 4: 30})


@program
def or_combined_ports(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(
            sdk, ["left", "right"], [],
            lambda self, i, o, c: log.append([i.receive("left"), i.receive("right")]),
            setup=lambda self, spec: spec.or_combine_port_conditions(["left", "right"]),
        )(app, name="sink")  # fmt: skip
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink, {("out", "left")})
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 0), name="b"), sink, {("out", "right")})

    application(sdk, compose).run()


@program
def the_sum_of_messages_over_ports(sdk: SimpleNamespace, log: list) -> None:
    def setup(self: Any, spec: Any) -> None:
        none = (sdk.ConditionType.NONE, {})
        spec.input("left", size=4).condition(none[0])
        spec.input("right", size=4).condition(none[0])
        spec.multi_port_condition(
            kind=sdk.ConditionType.MULTI_MESSAGE_AVAILABLE,
            port_names=["left", "right"],
            sampling_mode="SumOfAll",
            min_sum=4,
        )

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = []
        for port in ("left", "right"):
            while (message := i.receive(port)) is not None:
                taken.append(message)
        log.append(len(taken))

    def compose(app: Any) -> None:
        sink = operator(sdk, [], [], take, setup=setup)(app, name="sink")
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 3), name="a"), sink, {("out", "left")})
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 5), name="b"), sink, {("out", "right")})

    application(sdk, compose).run()


@program
def per_receiver_sizes(sdk: SimpleNamespace, log: list) -> None:
    def setup(self: Any, spec: Any) -> None:
        spec.input("left", size=4).condition(sdk.ConditionType.NONE)
        spec.input("right", size=4).condition(sdk.ConditionType.NONE)
        spec.multi_port_condition(
            kind=sdk.ConditionType.MULTI_MESSAGE_AVAILABLE,
            port_names=["left", "right"],
            sampling_mode="PerReceiver",
            min_sizes=[1, 2],
        )

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append([i.receive("left"), i.receive("right"), i.receive("right")])

    def compose(app: Any) -> None:
        sink = operator(sdk, [], [], take, setup=setup)(app, name="sink")
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink, {("out", "left")})
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 4), name="b"), sink, {("out", "right")})

    application(sdk, compose).run()


@program
def a_user_condition_waits_until_a_time(sdk: SimpleNamespace, log: list) -> None:
    class Every(sdk.Condition):  # type: ignore[name-defined]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.target = 50
            self.now = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            pass

        def update_state(self, timestamp: int) -> None:
            self.now = timestamp

        def check(self, timestamp: int) -> Any:
            if timestamp >= self.target:
                return sdk.SchedulingStatusType.READY, self.target
            return sdk.SchedulingStatusType.WAIT_TIME, self.target

        def on_execute(self, timestamp: int) -> None:
            self.target = timestamp + 70

    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, name="greedy"))
        body = lambda self, i, o, c: log.append(clock.timestamp())  # noqa: E731
        app.add_operator(
            operator(sdk, [], [], body)(app, Every(app, name="every"), sdk.CountCondition(app, 4), name="a")
        )

    application(sdk, compose).run()


@program
def a_user_condition_that_says_never(sdk: SimpleNamespace, log: list) -> None:
    class Twice(sdk.Condition):  # type: ignore[name-defined]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.runs = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            pass

        def check(self, timestamp: int) -> Any:
            status = sdk.SchedulingStatusType.READY if self.runs < 2 else sdk.SchedulingStatusType.NEVER
            return status, None

        def on_execute(self, timestamp: int) -> None:
            self.runs += 1

    def compose(app: Any) -> None:
        body = lambda self, i, o, c: log.append(self.ticks)  # noqa: E731
        app.add_operator(operator(sdk, [], [], body)(app, Twice(app, name="twice"), name="a"))

    application(sdk, compose).run()


@program
def two_ports_are_and_combined(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        join = operator(
            sdk,
            ["left", "right"],
            [],
            lambda self, i, o, c: log.append([i.receive("left"), i.receive("right")]),
        )(app, name="join")
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 5), name="a"), join, {("out", "left")})
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 3), name="b"), join, {("out", "right")})

    application(sdk, compose).run()


@program
def a_batch_expires(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, name="greedy"))
        kind = (sdk.ConditionType.EXPIRING_MESSAGE_AVAILABLE, {"max_batch_size": 3, "max_delay_ns": 50})
        sink = operator(
            sdk,
            [("in", {"size": 4}, kind)],
            [],
            lambda self, i, o, c: log.append([clock.timestamp(), list(i.receive("in"))]),
        )
        source = operator(
            sdk,
            [],
            ["out"],
            lambda self, i, o, c: o.emit(self.ticks, "out", acq_timestamp=clock.timestamp()),
        )
        app.add_flow(
            source(app, sdk.PeriodicCondition(app, 30), sdk.CountCondition(app, 7), name="a"),
            sink(app, name="b"),
        )

    application(sdk, compose).run()


@program
def a_timeout_over_a_port(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, name="greedy"))
        arguments = {"execution_frequency": "100", "sampling_mode": "SumOfAll", "min_sum": 2}
        kind = (sdk.ConditionType.MULTI_MESSAGE_AVAILABLE_TIMEOUT, arguments)
        sink = operator(
            sdk,
            [("in", {"size": 4}, kind)],
            [],
            lambda self, i, o, c: log.append([clock.timestamp(), i.receive("in")]),
        )
        app.add_flow(
            counter(sdk)(app, sdk.PeriodicCondition(app, 30), sdk.CountCondition(app, 7), name="a"),
            sink(app, sdk.CountCondition(app, 4), name="b"),
        )

    application(sdk, compose).run()


def _event(sdk: SimpleNamespace, log: list, states: dict[int, str]) -> None:
    """Log each tick and the event's state; some ticks set it."""

    def compose(app: Any) -> None:
        event = sdk.AsynchronousCondition(app, name="event")

        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append([self.ticks, event.event_state.name])
            if self.ticks in states:
                event.event_state = getattr(sdk.AsynchronousEventState, states[self.ticks])

        app.add_operator(operator(sdk, [], [], body)(app, event, name="a"))

    application(sdk, compose).run()


@program
def an_event_that_is_done_stays_done(sdk: SimpleNamespace, log: list) -> None:
    _event(sdk, log, {1: "EVENT_DONE", 4: "EVENT_NEVER"})


@program
def an_event_state_of_wait_is_a_deadlock(sdk: SimpleNamespace, log: list) -> None:
    _event(sdk, log, {2: "WAIT"})


@program
def an_event_from_another_thread(sdk: SimpleNamespace, log: list) -> None:
    import threading

    def compose(app: Any) -> None:
        event = sdk.AsynchronousCondition(app, name="event")
        states = sdk.AsynchronousEventState

        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append([self.ticks, event.event_state.name])
            if self.ticks == 3:
                event.event_state = states.EVENT_NEVER
                return
            event.event_state = states.EVENT_WAITING
            threading.Timer(0.01, lambda: setattr(event, "event_state", states.EVENT_DONE)).start()

        app.add_operator(operator(sdk, [], [], body)(app, event, name="a"))

    application(sdk, compose).run()
