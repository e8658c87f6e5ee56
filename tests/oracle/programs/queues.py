"""Queues: bursts, policies, batches, and several connections to one port."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.oracle.sdk import application, counter, logger, operator, program


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
        # One thread: the source does not run ahead.
        app.scheduler(sdk.GreedyScheduler(app, name="greedy"))
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
    """Two emits in one compute where both ends have the same policy and a queue of one.

    One thread runs both ends, as by default in the SDK. In headrace each end has a thread if the queue may drop.
    """

    def send(self: Any, i: Any, o: Any, c: Any) -> None:
        o.emit("first", "out")
        o.emit("second", "out")

    def compose(app: Any) -> None:
        app.scheduler(sdk.GreedyScheduler(app, name="greedy"))
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
