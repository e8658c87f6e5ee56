"""Small programs that run unchanged on penstock and on the Holoscan SDK.

Each program is a function that takes `sdk` (a namespace with the names both systems share) and `log`
(a list to append to), runs an application and leaves in `log` what a user would have observed.
Exceptions that come out of `run()` are logged by the caller as one entry, without their text: the two
systems agree on whether a mistake is refused, not on how it is worded.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

Program = Callable[[SimpleNamespace, list], None]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def load(package: str) -> SimpleNamespace:
    """Gather the shared names from `penstock` or `holoscan`."""
    import importlib

    modules = [importlib.import_module(f"{package}.{part}") for part in ("core", "conditions", "schedulers")]
    modules.append(importlib.import_module(f"{package}.resources"))
    names: dict[str, Any] = {}
    for module in modules:
        names.update({name: getattr(module, name) for name in dir(module) if not name.startswith("_")})
    return SimpleNamespace(**names)


def operator(
    sdk: SimpleNamespace, inputs: Any = (), outputs: Any = (), body: Any = None, **hooks: Any
) -> type:
    """Make an operator class: ports are names, or (name, keyword arguments, condition or None)."""

    def declare(add: Any, ports: Any) -> None:
        for port in ports:
            name, keywords, condition = port if isinstance(port, tuple) else (port, {}, None)
            added = add(name, **keywords)
            if condition is not None:
                added.condition(condition[0], **condition[1])

    class Made(sdk.Operator):  # type: ignore[name-defined]
        def __init__(self, fragment: Any, *args: Any, **kwargs: Any) -> None:
            self.ticks = 0
            super().__init__(fragment, *args, **kwargs)

        def setup(self, spec: Any) -> None:
            declare(spec.input, inputs)
            declare(spec.output, outputs)
            if "setup" in hooks:
                hooks["setup"](self, spec)

        def start(self) -> None:
            if "start" in hooks:
                hooks["start"](self)

        def stop(self) -> None:
            if "stop" in hooks:
                hooks["stop"](self)

        def compute(self, op_input: Any, op_output: Any, context: Any) -> None:
            self.ticks += 1
            if body is not None:
                body(self, op_input, op_output, context)

    return Made


def application(sdk: SimpleNamespace, compose: Callable[[Any], None]) -> Any:
    class App(sdk.Application):  # type: ignore[name-defined]
        def compose(self) -> None:
            compose(self)

    return App()


def counter(sdk: SimpleNamespace) -> type:
    return operator(sdk, outputs=["out"], body=lambda self, i, o, c: o.emit(self.ticks, "out"))


def logger(sdk: SimpleNamespace, log: list) -> type:
    return operator(sdk, inputs=["in"], body=lambda self, i, o, c: log.append(i.receive("in")))


@program
def a_chain_of_three(sdk: SimpleNamespace, log: list) -> None:
    middle = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in") * 10, "out"))

    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 4), name="a")
        b = middle(app, name="b")
        c = logger(sdk, log)(app, name="c")
        app.add_flow(a, b)
        app.add_flow(b, c, {("out", "in")})

    application(sdk, compose).run()


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


def _burst(sdk: SimpleNamespace, log: list, port: Any, burst: int, out: Any = "out", rounds: int = 1) -> None:
    """Emit several messages in one compute into one port; the sink logs what it takes per compute."""

    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        for n in range(burst):
            o.emit(self.ticks * 100 + n, "out")

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = []
        for _ in range(burst + 1):
            message = i.receive("in")
            if message is None:
                break
            taken.append(message)
        log.append(taken)

    def compose(app: Any) -> None:
        a = operator(sdk, [], [out], send)(app, sdk.CountCondition(app, rounds), name="a")
        app.add_flow(a, operator(sdk, [port], [], take)(app, name="b"))

    application(sdk, compose).run()


@program
def a_burst_into_a_default_queue(sdk: SimpleNamespace, log: list) -> None:
    _burst(sdk, log, "in", 3)


@program
def a_burst_into_a_long_queue_is_a_batch(sdk: SimpleNamespace, log: list) -> None:
    _burst(sdk, log, ("in", {"size": 3}, None), 3, ("out", {"size": 3}, None))


@program
def an_empty_port_gives_none(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append([i.receive("in"), i.receive("in")])

    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        sink = operator(sdk, [("in", {}, (sdk.ConditionType.NONE, {}))], [], take)
        app.add_flow(a, sink(app, sdk.CountCondition(app, 4), name="b"))

    application(sdk, compose).run()


@program
def a_receivers_port_gives_a_tuple(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = i.receive("all")
        log.append([type(taken).__name__, list(taken)])

    def compose(app: Any) -> None:
        sink = operator(sdk, [("all", {"size": sdk.IOSpec.ANY_SIZE}, None)], [], take)(app, name="sink")
        for n in range(3):
            source = operator(sdk, [], ["out"], lambda self, i, o, c, n=n: o.emit(n * 10 + self.ticks, "out"))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), sink, {("out", "all")})

    application(sdk, compose).run()


@program
def an_unconnected_receivers_port(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        taken = i.receive("all")
        log.append(taken if taken is None else list(taken))

    def compose(app: Any) -> None:
        sink = operator(sdk, [("all", {"size": sdk.IOSpec.ANY_SIZE}, None)], [], take)
        app.add_operator(sink(app, sdk.CountCondition(app, 2), name="sink"))

    application(sdk, compose).run()


@program
def two_producers_into_one_port(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = logger(sdk, log)(app, name="sink")
        for n in range(2):
            source = operator(sdk, [], ["out"], lambda self, i, o, c, n=n: o.emit(n * 10 + self.ticks, "out"))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), sink)

    application(sdk, compose).run()
    log.sort()


@program
def preceding_count_waits_for_all(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(sorted(i.receive("in")))

    def compose(app: Any) -> None:
        sink = operator(sdk, [("in", {"size": sdk.IOSpec.PRECEDING_COUNT}, None)], [], take)(app, name="sink")
        for n in range(2):
            source = operator(sdk, [], ["out"], lambda self, i, o, c, n=n: o.emit(n * 10 + self.ticks, "out"))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), sink)

    application(sdk, compose).run()


@program
def one_output_to_many(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        for n in range(3):
            sink = operator(sdk, ["in"], [], lambda self, i, o, c, n=n: log.append([n, i.receive("in")]))
            app.add_flow(a, sink(app, name=f"b{n}"))

    application(sdk, compose).run()
    log.sort()


@program
def an_unconnected_output_is_allowed(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(
            sdk, [], ["out"], lambda self, i, o, c: (o.emit(self.ticks, "out"), log.append(self.ticks))
        )
        app.add_operator(source(app, sdk.CountCondition(app, 3), name="a"))

    application(sdk, compose).run()


@program
def an_unconnected_input(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["left", "right"], [], lambda self, i, o, c: log.append(i.receive("left")))
        app.add_flow(
            counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"), {("out", "left")}
        )

    application(sdk, compose).run()


@program
def an_unknown_port_in_a_port_map(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        app.add_flow(a, logger(sdk, log)(app, name="b"), {("out", "inn")})

    application(sdk, compose).run()


@program
def default_ports_with_two_inputs(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["left", "right"], [])
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def two_operators_with_one_name(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), logger(sdk, log)(app, name="a"))

    application(sdk, compose).run()


@program
def an_unknown_port_in_receive(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(sdk, ["in"], [], lambda self, i, o, c: i.receive("nothing"))
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 2), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def an_unknown_port_in_emit(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(sdk, [], ["out"], lambda self, i, o, c: o.emit(1, "nothing"))
        app.add_flow(source(app, sdk.CountCondition(app, 2), name="a"), logger(sdk, log)(app, name="b"))

    application(sdk, compose).run()


@program
def an_exception_in_compute(sdk: SimpleNamespace, log: list) -> None:
    def fail(self: Any, i: Any, o: Any, c: Any) -> None:
        if self.ticks == 2:
            raise ZeroDivisionError("on purpose")
        log.append(i.receive("in"))

    def compose(app: Any) -> None:
        source = operator(
            sdk, [], ["out"], lambda self, i, o, c: o.emit(self.ticks, "out"),
            start=lambda self: log.append("start"), stop=lambda self: log.append("stop"),
        )  # fmt: skip
        app.add_flow(
            source(app, sdk.CountCondition(app, 5), name="a"), operator(sdk, ["in"], [], fail)(app, name="b")
        )

    application(sdk, compose).run()


@program
def start_and_stop_are_called_once_each(sdk: SimpleNamespace, log: list) -> None:
    def hooks(name: str) -> dict:
        return {
            "start": lambda self: log.append(f"start {name}"),
            "stop": lambda self: log.append(f"stop {name}"),
        }

    def compose(app: Any) -> None:
        a = operator(
            sdk, [], ["out"], lambda self, i, o, c: (log.append("compute a"), o.emit(1, "out")), **hooks("a")
        )(app, sdk.CountCondition(app, 1), name="a")
        b = operator(
            sdk, ["in"], [], lambda self, i, o, c: (log.append("compute b"), i.receive("in")), **hooks("b")
        )(app, name="b")
        app.add_flow(a, b)

    application(sdk, compose).run()
    log[:] = [sorted(log[:2]), log[2:4], sorted(log[4:])]


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
def stop_execution_ends_the_run(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(self.ticks)
        if self.ticks == 3:
            self.fragment.stop_execution()

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, name="a"))

    application(sdk, compose).run()


@program
def stop_execution_of_one_operator(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        log.append(f"a{self.ticks}")
        if self.ticks == 2:
            self.stop_execution()

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, name="a"))
        app.add_operator(
            operator(sdk, [], [], lambda self, i, o, c: log.append(f"b{self.ticks}"))(
                app, sdk.CountCondition(app, 4), name="b"
            )
        )

    application(sdk, compose).run()
    log.sort()


@program
def a_dict_and_none_can_be_emitted(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        values = [{"a": [1, 2], "b": "text"}, None, (1, "x"), "text"]
        source = operator(sdk, [], ["out"], lambda self, i, o, c: o.emit(values[self.ticks - 1], "out"))
        app.add_flow(
            source(app, sdk.CountCondition(app, len(values)), name="a"), logger(sdk, log)(app, name="b")
        )

    application(sdk, compose).run()


@program
def a_cycle_with_a_seed_message(sdk: SimpleNamespace, log: list) -> None:
    def turn(self: Any, i: Any, o: Any, c: Any) -> None:
        value = i.receive("in") or 0
        log.append(value)
        o.emit(value + 1, "out")

    def compose(app: Any) -> None:
        none = (sdk.ConditionType.NONE, {})
        a = operator(sdk, [("in", {}, none)], ["out"], turn)(app, sdk.CountCondition(app, 4), name="a")
        b = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))(
            app, name="b"
        )
        app.add_flow(a, b)
        app.add_flow(b, a)

    application(sdk, compose).run()


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


def _metadata(sdk: SimpleNamespace, log: list, policy: str) -> None:
    """Two sources stamp the same key; the joining operator merges them under a policy."""

    def stamp(n: int) -> Any:
        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            self.metadata.set("who", n)
            self.metadata.set(f"only{n}", n)
            o.emit(n, "out")

        return body

    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("left")
        i.receive("right")
        log.append(sorted(self.metadata.items()))
        o.emit(0, "out")

    def last(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(sorted(self.metadata.items()))

    def compose(app: Any) -> None:
        app.enable_metadata(True)
        join = operator(sdk, ["left", "right"], ["out"], take)(app, name="join")
        join.metadata_policy = getattr(sdk.MetadataPolicy, policy)
        for n, port in enumerate(("left", "right")):
            source = operator(sdk, [], ["out"], stamp(n))
            app.add_flow(source(app, sdk.CountCondition(app, 2), name=f"s{n}"), join, {("out", port)})
        app.add_flow(join, operator(sdk, ["in"], [], last)(app, name="last"))

    application(sdk, compose).run()


@program
def metadata_update(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "UPDATE")


@program
def metadata_reject(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "REJECT")


@program
def metadata_raise(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "RAISE")


@program
def metadata_inplace_update(sdk: SimpleNamespace, log: list) -> None:
    _metadata(sdk, log, "INPLACE_UPDATE")


@program
def metadata_default_policy(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = counter(sdk)(app, sdk.CountCondition(app, 1), name="a")
        log.append([a.metadata_policy.name, app.is_metadata_enabled, a.is_metadata_enabled])
        app.add_operator(a)

    application(sdk, compose).run()


@program
def an_acquisition_timestamp_travels(sdk: SimpleNamespace, log: list) -> None:
    def take(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append([i.get_acquisition_timestamp("in"), i.get_acquisition_timestamps("in")])

    def compose(app: Any) -> None:
        source = operator(
            sdk,
            [],
            ["out"],
            lambda self, i, o, c: o.emit(1, "out", acq_timestamp=500 + self.ticks if self.ticks < 3 else -1),
        )
        app.add_flow(
            source(app, sdk.CountCondition(app, 3), name="a"), operator(sdk, ["in"], [], take)(app, name="b")
        )

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
def running_twice_composes_twice(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        log.append("compose")
        a = counter(sdk)(app, sdk.CountCondition(app, 2), name="a")
        app.add_flow(a, logger(sdk, log)(app, name="b"))

    app = application(sdk, compose)
    app.run()
    app.run()


@program
def a_full_downstream_holds_the_source(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(
            sdk,
            [],
            ["out"],
            lambda self, i, o, c: (log.append(f"sent {self.ticks}"), o.emit(self.ticks, "out")),
        )
        sink = operator(
            sdk, [("in", {"size": 3}, (sdk.ConditionType.MESSAGE_AVAILABLE, {"min_size": 1}))], [],
            lambda self, i, o, c: log.append(f"took {i.receive('in')}"),
        )  # fmt: skip
        app.add_flow(
            source(app, sdk.CountCondition(app, 6), name="a"), sink(app, sdk.CountCondition(app, 2), name="b")
        )

    application(sdk, compose).run()
    log[:] = [sum(entry.startswith("sent") for entry in log), sum(entry.startswith("took") for entry in log)]


@program
def a_queue_with_no_consumer_left_under_pop(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        source = operator(
            sdk, [], [("out", {}, (sdk.ConditionType.NONE, {}))],
            lambda self, i, o, c: (log.append(f"sent {self.ticks}"), o.emit(self.ticks, "out")),
        )  # fmt: skip
        port = ("in", {"size": 1, "policy": sdk.IOSpec.QueuePolicy.POP}, None)
        sink = operator(sdk, [port], [], lambda self, i, o, c: log.append(f"took {i.receive('in')}"))
        app.add_flow(
            source(app, sdk.CountCondition(app, 6), name="a"), sink(app, sdk.CountCondition(app, 2), name="b")
        )

    application(sdk, compose).run()
    log[:] = [sum(entry.startswith("sent") for entry in log), sum(entry.startswith("took") for entry in log)]


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
def an_operator_that_emits_on_every_other_tick(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        value = i.receive("in")
        if value % 2:
            o.emit(value, "out")

    def compose(app: Any) -> None:
        b = operator(sdk, ["in"], ["out"], body)(app, name="b")
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 5), name="a"), b)
        app.add_flow(b, logger(sdk, log)(app, name="c"))

    application(sdk, compose).run()


@program
def an_operator_that_does_not_receive(sdk: SimpleNamespace, log: list) -> None:
    """The message stays where it is, so the operator stays ready."""

    def compose(app: Any) -> None:
        sink = operator(sdk, ["in"], [], lambda self, i, o, c: log.append(self.ticks))
        app.add_flow(
            counter(sdk)(app, sdk.CountCondition(app, 3), name="a"),
            sink(app, sdk.CountCondition(app, 4), name="b"),
        )

    application(sdk, compose).run()


@program
def two_connections_between_the_same_operators(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        a = operator(
            sdk, [], ["x", "y"], lambda self, i, o, c: (o.emit(self.ticks, "x"), o.emit(-self.ticks, "y"))
        )(app, sdk.CountCondition(app, 2), name="a")
        b = operator(sdk, ["p", "q"], [], lambda self, i, o, c: log.append([i.receive("p"), i.receive("q")]))(
            app, name="b"
        )
        app.add_flow(a, b, {("x", "p"), ("y", "q")})

    application(sdk, compose).run()


@program
def max_duration_in_virtual_time(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        clock = sdk.ManualClock(app, name="clock")
        app.scheduler(sdk.GreedyScheduler(app, clock=clock, max_duration_ms=1, name="greedy"))
        body = lambda self, i, o, c: log.append(self.ticks)  # noqa: E731
        app.add_operator(operator(sdk, [], [], body)(app, sdk.PeriodicCondition(app, 300_000), name="a"))

    application(sdk, compose).run()


@program
def the_order_of_a_chain(sdk: SimpleNamespace, log: list) -> None:
    """One thread takes a message through the whole chain before it begins the next."""

    def named(name: str, inputs: list, outputs: list) -> type:
        def body(self: Any, i: Any, o: Any, c: Any) -> None:
            log.append(f"{name}{self.ticks}")
            for port in inputs:
                i.receive(port)
            for port in outputs:
                o.emit(1, port)

        return operator(sdk, inputs, outputs, body)

    def compose(app: Any) -> None:
        d = named("d", ["in"], [])(app, name="d")
        c = named("c", ["in"], ["out"])(app, name="c")
        b = named("b", ["in"], ["out"])(app, name="b")
        a = named("a", [], ["out"])(app, sdk.CountCondition(app, 3), name="a")
        app.add_flow(a, b)
        app.add_flow(b, c)
        app.add_flow(c, d)

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


@program
def metadata_set_twice_under_the_default_policy(sdk: SimpleNamespace, log: list) -> None:
    def body(self: Any, i: Any, o: Any, c: Any) -> None:
        self.metadata.set("key", 1)
        self.metadata.set("key", 2)
        log.append(self.metadata.get("key"))

    def compose(app: Any) -> None:
        app.add_operator(operator(sdk, [], [], body)(app, sdk.CountCondition(app, 1), name="a"))

    application(sdk, compose).run()


@program
def metadata_through_a_plain_operator(sdk: SimpleNamespace, log: list) -> None:
    def first(self: Any, i: Any, o: Any, c: Any) -> None:
        if self.ticks == 1:
            self.metadata.set("frame", self.ticks)
        o.emit(self.ticks, "out")

    def last(self: Any, i: Any, o: Any, c: Any) -> None:
        i.receive("in")
        log.append(sorted(self.metadata.items()))

    def compose(app: Any) -> None:
        middle = operator(sdk, ["in"], ["out"], lambda self, i, o, c: o.emit(i.receive("in"), "out"))
        a = operator(sdk, [], ["out"], first)(app, sdk.CountCondition(app, 2), name="a")
        b = middle(app, name="b")
        app.add_flow(a, b)
        app.add_flow(b, operator(sdk, ["in"], [], last)(app, name="c"))

    application(sdk, compose).run()


@program
def a_queue_of_three_gives_tuples_of_three(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        sink = operator(
            sdk,
            [("in", {"size": 3}, None)],
            [],
            lambda self, i, o, c: log.append([i.receive("in"), i.receive("in")]),
        )
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 7), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


@program
def a_queue_of_three_with_min_size_one(sdk: SimpleNamespace, log: list) -> None:
    def compose(app: Any) -> None:
        port = ("in", {"size": 3}, (sdk.ConditionType.MESSAGE_AVAILABLE, {"min_size": 1}))
        sink = operator(sdk, [port], [], lambda self, i, o, c: log.append(i.receive("in")))
        app.add_flow(counter(sdk)(app, sdk.CountCondition(app, 3), name="a"), sink(app, name="b"))

    application(sdk, compose).run()


def _late_policy(sdk: SimpleNamespace, log: list, policy: str) -> None:
    """Two emits in one compute where both ends have the same policy and a queue of one."""

    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit("first", "out")
        o.emit("second", "out")

    def compose(app: Any) -> None:
        chosen = {"policy": getattr(sdk.IOSpec.QueuePolicy, policy)}
        a = operator(sdk, [], [("out", chosen, None)], send)(app, sdk.CountCondition(app, 2), name="a")
        b = operator(sdk, [("in", chosen, None)], [], lambda self, i, o, c: log.append(i.receive("in")))
        app.add_flow(a, b(app, name="b"))

    application(sdk, compose).run()


@program
def two_emits_under_pop(sdk: SimpleNamespace, log: list) -> None:
    _late_policy(sdk, log, "POP")


@program
def two_emits_under_reject(sdk: SimpleNamespace, log: list) -> None:
    _late_policy(sdk, log, "REJECT")


@program
def two_emits_under_fault(sdk: SimpleNamespace, log: list) -> None:
    _late_policy(sdk, log, "FAULT")
